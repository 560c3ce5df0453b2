package tests

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// proxy stands between a client and the server. It can fall silent, as a half-open connection
// does, and understands enough of the protocol to count round trips and to lose the end of one.
type proxy struct {
	dbURL  string // of the server's database, through the proxy
	silent atomic.Bool
	syncs  atomic.Int64 // round trips: Sync and Query messages from clients

	accepted atomic.Int64 // connections

	mu     sync.Mutex
	marker []byte // cut the connection instead of ending the round trip that delivers this
	conns  map[net.Conn]bool
}

func newProxy(t *testing.T, dbURL string) *proxy {
	t.Helper()
	cfg, err := pgx.ParseConfig(dbURL)
	require.NoError(t, err)
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	u, err := url.Parse(dbURL)
	require.NoError(t, err)
	u.Host = ln.Addr().String()
	q := u.Query()
	q.Del("host")
	u.RawQuery = q.Encode()
	p := &proxy{dbURL: u.String(), conns: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			down, err := ln.Accept()
			if err != nil {
				return
			}
			p.accepted.Add(1)
			up, err := net.Dial(network, address)
			if err != nil {
				_ = down.Close()
				continue
			}
			p.mu.Lock()
			p.conns[down], p.conns[up] = true, true
			p.mu.Unlock()
			wg.Go(func() { p.fromClient(down, up) })
			wg.Go(func() { p.fromServer(up, down) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.cut()
		wg.Wait()
	})
	return p
}

// cut ends all connections.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// loseEndAfter cuts the connection once, in place of the ReadyForQuery that follows a message with
// this text: the server has committed, the client does not know.
func (p *proxy) loseEndAfter(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.marker = []byte(text)
}

func (p *proxy) fromClient(down, up net.Conn) {
	defer up.Close()
	defer down.Close()
	for first := true; ; first = false {
		msg, err := readMessage(down, first)
		if err != nil {
			return
		}
		if msg[0] == 'S' || msg[0] == 'Q' {
			p.syncs.Add(1)
		}
		if p.silent.Load() {
			continue
		}
		if _, err := up.Write(msg); err != nil {
			return
		}
	}
}

func (p *proxy) fromServer(up, down net.Conn) {
	defer up.Close()
	defer down.Close()
	armed := false
	for {
		msg, err := readMessage(up, false)
		if err != nil {
			return
		}
		p.mu.Lock()
		if p.marker != nil && bytes.Contains(msg, p.marker) {
			armed, p.marker = true, nil
		}
		p.mu.Unlock()
		if armed && msg[0] == 'Z' {
			return
		}
		if p.silent.Load() {
			continue
		}
		if _, err := down.Write(msg); err != nil {
			return
		}
	}
}

// readMessage reads one message of the protocol; the first of a client has no type.
func readMessage(r io.Reader, untyped bool) ([]byte, error) {
	head := make([]byte, 5)
	if untyped {
		head = head[:4]
	}
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(head[len(head)-4:])) - 4
	msg := append(head, make([]byte, n)...)
	_, err := io.ReadFull(r, msg[len(head):])
	return msg, err
}
