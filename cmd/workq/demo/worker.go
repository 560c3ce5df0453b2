package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgworkq/workq/client"
)

// work is a worker process. It drains and ends when alive ends, so that it never outlives the demo.
func work(ctx context.Context, alive io.Reader, url, dir, name string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, alive)
		cancel()
	}()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	config.ConnConfig.RuntimeParams["application_name"] = name
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return err
	}
	defer pool.Close()
	c := client.New(pool, client.Options{Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	handler := client.HandlerFunc(func(_ context.Context, m *client.Message) error {
		var p payload
		if err := m.Decode(&p); err != nil {
			return client.Permanent(err)
		}
		d, err := digestOf(root, p.Path)
		if errors.Is(err, fs.ErrNotExist) {
			return client.Permanent(err)
		}
		if err != nil {
			return err
		}
		return m.SetResult(d)
	})
	return c.NewWorker(queue, handler, client.WorkerOptions{Name: name}).Run(ctx)
}

// worker is a worker process, seen from the demo.
type worker struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	out   buffer
	done  chan struct{} // closed when it ended
	err   error         // how, after done
}

func startWorker(url, dir, name string) (*worker, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	w := &worker{name: name, done: make(chan struct{})}
	w.cmd = exec.Command(self, "demo", "--as-worker", name, "--dir", dir)
	w.cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.out
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		w.err = w.cmd.Wait()
		close(w.done)
	}()
	return w, nil
}

func (w *worker) pid() int { return w.cmd.Process.Pid }

func (w *worker) ended() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// kill ends it with SIGKILL and waits until it is dead.
func (w *worker) kill() error {
	if err := w.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("kill %s: %w", w.name, err)
	}
	<-w.done
	return nil
}

// drain tells it to end. It may be called again.
func (w *worker) drain() { _ = w.stdin.Close() }

// wait waits for its end and gives its exit status. It may be called again.
func (w *worker) wait() error {
	select {
	case <-w.done:
		return w.err
	case <-time.After(30 * time.Second):
		return errors.Join(errors.New("it did not drain within 30 s and was killed"), w.kill())
	}
}

func (w *worker) log() string { return w.out.tail(2000) }

// buffer keeps what a worker writes.
type buffer struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bytes.Write(p)
}

func (b *buffer) tail(n int) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.bytes.Bytes()
	return string(all[max(0, len(all)-n):])
}
