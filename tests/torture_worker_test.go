package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client"
)

// A worker process is this test binary again, with what it is to do in its environment. It ends
// when its standard input does, so that none outlives the tests.
type workerProcess struct {
	URL         string
	Name        string
	History     string // the file
	Concurrency int
	Visibility  time.Duration
	Hold        bool // work on a message for ever
}

const workerVariable = "WORKQ_TEST_WORKER"

func init() {
	job := os.Getenv(workerVariable)
	if job == "" {
		return
	}
	var p workerProcess
	err := json.Unmarshal([]byte(job), &p)
	if err == nil {
		err = p.run()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker process:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// start runs the process. kill ends it by SIGKILL, if it has not ended before, and waits for that;
// exited is closed when it has ended.
func (p workerProcess) start(t *testing.T) (kill func(), exited <-chan struct{}) {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	job, err := json.Marshal(p)
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), workerVariable+"="+string(job))
	cmd.Stderr = os.Stderr
	_, err = cmd.StdinPipe() // open as long as this process lives
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	done := make(chan struct{})
	go func() { defer close(done); _ = cmd.Wait() }()
	kill = func() { _ = cmd.Process.Kill(); <-done }
	t.Cleanup(kill)
	return kill, done
}

func (p workerProcess) run() error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	file, err := os.OpenFile(p.History, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	// One write(2) a line: what was written is there, whatever becomes of this process.
	say := func(e tortureEvent) {
		e.Worker = p.Name
		line, err := json.Marshal(e)
		if err == nil {
			_, err = file.Write(append(line, '\n'))
		}
		if err != nil {
			panic(err)
		}
	}
	pool, err := pgxpool.New(ctx, p.URL)
	if err != nil {
		return err
	}
	defer pool.Close()
	c := client.New(pool, client.Options{Logger: slog.New(lostLeases(say))})
	handle := func(ctx context.Context, m *client.Message) error {
		e := tortureEvent{Event: "delivered", ID: m.ID, Lease: m.Lease, Attempt: m.Attempt, Until: m.LeaseUntil}
		say(e)
		switch {
		case p.Hold:
			<-ctx.Done()
			return context.Cause(ctx)
		case m.Kind == "poison":
			self, err := os.FindProcess(os.Getpid())
			if err == nil {
				err = self.Kill()
			}
			if err != nil {
				return err
			}
			select {} // until it arrives
		case m.Kind == "fails once" && m.Attempt == 1:
			return client.RetryAfter(0, errors.New("not yet"))
		case m.Kind == "in one transaction":
			e.Event = "acking"
			say(e)
			err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, "insert into public.effect values ($1)", m.ID); err != nil {
					return err
				}
				return m.AckTx(ctx, tx, nil)
			})
			if err == nil {
				e.Event = "acked"
				say(e)
			}
			return err
		}
		return nil
	}
	err = c.NewWorker("q", client.HandlerFunc(handle), client.WorkerOptions{
		Concurrency: p.Concurrency, Visibility: p.Visibility, Name: p.Name, DisableMaintenance: true, GracePeriod: time.Second,
	}).Run(ctx)
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// lostLeases is a log handler that hears what the worker says of acks that were refused.
type lostLeases func(tortureEvent)

func (lostLeases) Enabled(context.Context, slog.Level) bool { return true }
func (l lostLeases) WithAttrs([]slog.Attr) slog.Handler     { return l }
func (l lostLeases) WithGroup(string) slog.Handler          { return l }

func (l lostLeases) Handle(_ context.Context, r slog.Record) error {
	if !strings.Contains(r.Message, "nothing settled") {
		return nil
	}
	e := tortureEvent{Event: "lost"}
	ack := false
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "id":
			e.ID = a.Value.Int64()
		case "attempt":
			e.Attempt = int(a.Value.Int64())
		case "verb":
			ack = a.Value.String() == "ack"
		}
		return true
	})
	if ack {
		l(e)
	}
	return nil
}

// readEvents reads the histories of all workers. A last line that a SIGKILL cut off does not count.
func readEvents(t *testing.T, dir string) []tortureEvent {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	require.NoError(t, err)
	var events []tortureEvent
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		lines := strings.Split(string(text), "\n")
		for _, line := range lines[:len(lines)-1] {
			var e tortureEvent
			require.NoError(t, json.Unmarshal([]byte(line), &e), line)
			events = append(events, e)
		}
	}
	return events
}
