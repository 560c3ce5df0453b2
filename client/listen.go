package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// A silent connection is asked for a sign of life after listenSilence and given up on after
	// listenTimeout more, so a half-open one is found within 14 s.
	listenSilence = 9 * time.Second
	listenTimeout = 5 * time.Second
)

// listener is the one LISTEN connection of a Client. It is open while somebody subscribes, is
// read at all times, and reconnects by itself. A notification is only a hint: subscribers are
// also woken when the connection comes and goes, as they may have missed something.
type listener struct {
	connect func(context.Context) (*pgx.Conn, error)
	log     *slog.Logger

	mu   sync.Mutex
	subs map[string][]*subscription // by channel
	poke context.CancelFunc         // ends the wait for a notification, to look at subs again
	stop func()                     // ends the goroutine and waits for it
}

// subscription is one worker's interest in a channel.
type subscription struct {
	wake      chan struct{} // holds at most one token
	listening atomic.Bool   // notifications arrive
}

func (s *subscription) notify() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func newListener(pool *pgxpool.Pool, cfg *pgx.ConnConfig, log *slog.Logger) *listener {
	return &listener{log: log, subs: map[string][]*subscription{}, connect: func(ctx context.Context) (*pgx.Conn, error) {
		if cfg != nil {
			return pgx.ConnectConfig(ctx, cfg)
		}
		pc := pool.Config()
		if pc.BeforeConnect != nil { // short-lived passwords
			if err := pc.BeforeConnect(ctx, pc.ConnConfig); err != nil {
				return nil, err
			}
		}
		return pgx.ConnectConfig(ctx, pc.ConnConfig)
	}}
}

// subscribe begins to listen on channel, soon. The returned function ends it. l may be nil: then
// nothing ever comes.
func (l *listener) subscribe(channel string) (*subscription, func()) {
	s := &subscription{wake: make(chan struct{}, 1)}
	if l == nil {
		return s, func() {}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs[channel] = append(l.subs[channel], s)
	if l.stop == nil {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); l.run(ctx) }()
		l.stop = func() { cancel(); <-done }
	} else if l.poke != nil {
		l.poke()
	}
	return s, func() { l.unsubscribe(channel, s) }
}

func (l *listener) unsubscribe(channel string, s *subscription) {
	l.mu.Lock()
	l.subs[channel] = slices.DeleteFunc(l.subs[channel], func(o *subscription) bool { return o == s })
	if len(l.subs[channel]) == 0 {
		delete(l.subs, channel)
	}
	stop := func() {}
	if len(l.subs) == 0 {
		stop, l.stop, l.poke = l.stop, nil, nil
	} else if l.poke != nil {
		l.poke()
	}
	l.mu.Unlock()
	stop()
}

// run keeps a connection until ctx ends.
func (l *listener) run(ctx context.Context) {
	for failures := 0; ; failures++ {
		began := time.Now()
		err := l.session(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(began) > listenSilence+listenTimeout {
			failures = 0
		}
		l.log.Warn("workq: not listening, polling instead", "error", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(backoff(failures)):
		}
	}
}

// session is the life of one connection.
func (l *listener) session(ctx context.Context) error {
	cctx, cancel := context.WithTimeout(ctx, 2*listenTimeout)
	defer cancel()
	conn, err := l.connect(cctx)
	if err != nil {
		return err
	}
	active := map[string]bool{}
	defer func() {
		cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(cctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		for channel := range active {
			l.tell(channel, false)
		}
	}()
	if err := direct(cctx, conn.PgConn()); err != nil {
		return err
	}
	for heard := time.Now(); ; {
		l.mu.Lock()
		wait, cancel := context.WithDeadline(ctx, heard.Add(listenSilence))
		want := slices.Collect(maps.Keys(l.subs))
		if ctx.Err() == nil { // else poke belongs to a successor
			l.poke = cancel
		}
		l.mu.Unlock()

		err := l.listen(ctx, conn, active, want)
		if err == nil {
			var n *pgconn.Notification
			if n, err = conn.WaitForNotification(wait); err == nil {
				heard = time.Now()
				l.mu.Lock()
				for _, s := range l.subs[n.Channel] {
					s.notify()
				}
				l.mu.Unlock()
			} else if wait.Err() != nil && !conn.IsClosed() {
				err = nil // time to look for life, or poked
				if time.Since(heard) >= listenSilence {
					if err = alive(ctx, conn.PgConn()); err == nil {
						heard = time.Now()
					}
				}
			}
		}
		cancel()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
}

// listen makes active what is wanted.
func (l *listener) listen(ctx context.Context, conn *pgx.Conn, active map[string]bool, want []string) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	for channel := range active {
		if !slices.Contains(want, channel) {
			if err := conn.PgConn().Exec(ctx, "unlisten "+pgx.Identifier{channel}.Sanitize()).Close(); err != nil {
				return err
			}
			delete(active, channel)
		}
	}
	for _, channel := range want {
		if !active[channel] {
			if err := conn.PgConn().Exec(ctx, "listen "+pgx.Identifier{channel}.Sanitize()).Close(); err != nil {
				return err
			}
			active[channel] = true
		}
		l.mu.Lock()
		l.tell(channel, true)
		l.mu.Unlock()
	}
	return nil
}

// tell says to the channel's subscribers whether notifications arrive; a change wakes them.
func (l *listener) tell(channel string, listening bool) {
	for _, s := range l.subs[channel] {
		if s.listening.Swap(listening) != listening {
			s.notify()
		}
	}
}

// direct is an error if a pooler sits between: one in transaction mode takes a LISTEN and
// delivers nothing. It shows by a backend that is not the one that the connection began with.
func direct(ctx context.Context, conn *pgconn.PgConn) error {
	r, err := conn.Exec(ctx, "select pg_catalog.pg_backend_pid()").ReadAll()
	if err != nil {
		return err
	}
	if pid := fmt.Sprint(conn.PID()); len(r) != 1 || len(r[0].Rows) != 1 || string(r[0].Rows[0][0]) != pid {
		return errors.New("the connection goes through a pooler: give a direct one in Options.Listen, or set DisableListen")
	}
	return nil
}

// alive makes one round trip that runs no query.
func alive(ctx context.Context, conn *pgconn.PgConn) error {
	ctx, cancel := context.WithTimeout(ctx, listenTimeout)
	defer cancel()
	p := conn.StartPipeline(ctx)
	if err := p.Sync(); err != nil {
		return errors.Join(err, p.Close())
	}
	_, err := p.GetResults()
	return errors.Join(err, p.Close())
}

// backoff is how long to wait after so many failures in a row: from about 50 ms to 5 s.
func backoff(failures int) time.Duration {
	d := min(50*time.Millisecond<<min(failures, 10), 5*time.Second)
	return d/2 + rand.N(d/2+1)
}
