package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client"
)

// runWorker runs a worker of the queue q until the returned function or the end of the test stops
// it; the function waits and gives what Run returned.
func runWorker(t *testing.T, c *client.Client, h client.Handler, opts client.WorkerOptions) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.NewWorker("q", h, opts).Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(patience):
			return errors.New("Run does not return")
		}
	})
	t.Cleanup(func() { _ = stop() })
	return stop
}

// outcomes are those of the message's finished attempts.
func outcomes(t *testing.T, c *client.Client, id int64) []string {
	t.Helper()
	history, err := c.History(t.Context(), "q", id)
	require.NoError(t, err)
	slices.SortFunc(history, func(a, b client.Attempt) int { return a.FinishedAt.Compare(b.FinishedAt) })
	var out []string
	for _, a := range history {
		out = append(out, a.Outcome)
	}
	return out
}

func waitForOutcomes(t *testing.T, c *client.Client, id int64, want ...string) {
	t.Helper()
	waitFor(t, fmt.Sprintf("message %d to have ended as %v", id, want), func() bool {
		return slices.Equal(outcomes(t, c, id), want)
	})
}

// receive calls f for the next value.
func next[T any](t *testing.T, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		require.FailNow(t, "waited "+patience.String()+" for: "+what)
		panic("unreachable")
	}
}

func TestWorkerSettlesAsTheHandlerSays(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		handle  client.HandlerFunc
		want    []string // of the attempts until it is finished
		check   func(t *testing.T, h []client.Attempt)
		waiting bool // is not finished, but waits for its time
	}{
		"nil acks": {
			handle: func(context.Context, *client.Message) error { return nil },
			want:   []string{"acked"},
		},
		"a result is kept": {
			handle: func(_ context.Context, m *client.Message) error {
				return m.SetResult(map[string]any{"lines": 3})
			},
			want: []string{"acked"},
			check: func(t *testing.T, h []client.Attempt) {
				require.JSONEq(t, `{"lines": 3}`, string(h[0].Result))
			},
		},
		"an error is retried until the attempts are used up": {
			handle: func(context.Context, *client.Message) error { return boom },
			want:   []string{"retry", "retry", "dead"},
			check: func(t *testing.T, h []client.Attempt) {
				require.Equal(t, "boom", h[0].Error)
			},
		},
		"RetryAfter chooses the delay": {
			handle: func(context.Context, *client.Message) error {
				return fmt.Errorf("wrapped: %w", client.RetryAfter(time.Hour, boom))
			},
			want:    []string{"retry"},
			waiting: true,
			check: func(t *testing.T, h []client.Attempt) {
				require.Equal(t, "wrapped: boom", h[0].Error)
			},
		},
		"Permanent is a dead letter at once": {
			handle: func(context.Context, *client.Message) error {
				return fmt.Errorf("wrapped: %w", client.Permanent(boom))
			},
			want: []string{"dead"},
			check: func(t *testing.T, h []client.Attempt) {
				require.Equal(t, "wrapped: boom", h[0].Error)
				require.Equal(t, "permanent", h[0].Reason)
			},
		},
		"Release gives the attempt back": {
			handle:  func(context.Context, *client.Message) error { return client.Release(time.Hour) },
			want:    []string{"released"},
			waiting: true,
		},
		"a panic is an error with a stack": {
			handle: func(context.Context, *client.Message) error { panic("ouch\x00\xff") },
			want:   []string{"retry", "retry", "dead"},
			check: func(t *testing.T, h []client.Attempt) {
				require.Contains(t, h[0].Error, "panic: ouch")
				require.Contains(t, string(h[0].Details), "worker_run_test.go")
			},
		},
		"a handler that ends its goroutine failed": {
			handle: func(context.Context, *client.Message) error { runtime.Goexit(); return nil },
			want:   []string{"retry", "retry", "dead"},
		},
		"a result that cannot be marshalled is an error": {
			handle: func(_ context.Context, m *client.Message) error { return m.SetResult(func() {}) },
			want:   []string{"retry", "retry", "dead"},
		},
		"a result that jsonb refuses is an error": {
			handle: func(_ context.Context, m *client.Message) error { return m.SetResult("\x00") },
			want:   []string{"retry", "retry", "dead"},
			check: func(t *testing.T, h []client.Attempt) {
				require.Contains(t, h[0].Error, "not stored")
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, _ := newClient(t, client.QueueSettings{MaxAttempts: new(3), RetryDelays: []time.Duration{0}})
			id := enqueue(t, c, 1, nil)
			runWorker(t, c, tt.handle, client.WorkerOptions{})
			waitForOutcomes(t, c, id, tt.want...)
			h, err := c.History(t.Context(), "q", id)
			require.NoError(t, err)
			slices.SortFunc(h, func(a, b client.Attempt) int { return a.FinishedAt.Compare(b.FinishedAt) })
			if tt.check != nil {
				tt.check(t, h)
			}
			stats, err := c.Stats(t.Context(), "q")
			require.NoError(t, err)
			require.Equal(t, tt.waiting, stats[0].Delayed+stats[0].Retrying == 1, "%+v", stats[0])
			require.Zero(t, stats[0].Ready+stats[0].Leased)
		})
	}
}

// One bad result in a batch must not keep its siblings from being settled.
func TestWorkerSettlesTheSiblingsOfARefusedResult(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t, client.QueueSettings{MaxAttempts: new(1)})
	var ids []int64
	for i := range 20 {
		ids = append(ids, enqueue(t, c, i, nil))
	}
	var all sync.WaitGroup
	all.Add(20)
	runWorker(t, c, client.HandlerFunc(func(_ context.Context, m *client.Message) error {
		all.Done()
		all.Wait() // so that they finish together
		if m.ID == ids[7] {
			return m.SetResult("\x00")
		}
		return m.SetResult(m.ID)
	}), client.WorkerOptions{Concurrency: 20})
	for i, id := range ids {
		want := "acked"
		if i == 7 {
			want = "dead"
		}
		waitForOutcomes(t, c, id, want)
	}
}

func TestWorkerWorksInEveryExecMode(t *testing.T) {
	t.Parallel()
	dbURL := newDBURL(t)
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			c := client.New(inExecMode(t, dbURL, mode), client.Options{})
			_, err := c.CreateQueue(t.Context(), "q", client.QueueSettings{RetryDelays: []time.Duration{0}})
			require.NoError(t, err)
			id := enqueue(t, c, map[string]string{"a": `'"\`}, &client.EnqueueOptions{Body: []byte{0, 255}})
			stop := runWorker(t, c, client.HandlerFunc(func(_ context.Context, m *client.Message) error {
				if m.Attempt < 2 {
					panic("first")
				}
				if m.Attempt < 3 {
					return client.RetryAfter(0, errors.New(`e'\`))
				}
				return m.SetResult(m.Payload)
			}), client.WorkerOptions{})
			waitForOutcomes(t, c, id, "retry", "retry", "acked")
			require.NoError(t, stop())
			require.NoError(t, c.DropQueue(t.Context(), "q", true))
		})
	}
}

func TestWorkerCancelsAHandlerWhoseLeaseIsLost(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t, client.QueueSettings{Visibility: new(9 * time.Second)})
	started, cause := make(chan int64, 1), make(chan error, 1)
	runWorker(t, c, client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		started <- m.ID
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return nil
	}), client.WorkerOptions{})
	id := enqueue(t, c, 1, nil)
	next(t, "the handler", started)
	out, err := c.Cancel(t.Context(), "q", id)
	require.NoError(t, err)
	require.Equal(t, client.Revoked, out)
	began := time.Now()
	require.ErrorIs(t, next(t, "the cause", cause), client.ErrLeaseLost)
	require.Less(t, time.Since(began), 6*time.Second, "told by a heartbeat, before the deadline")
	require.Equal(t, []string{"cancelled"}, outcomes(t, c, id))
}

func TestWorkerKeepsTheLeasesOfLongHandlers(t *testing.T) {
	t.Parallel()
	c, pool := newClient(t, client.QueueSettings{Visibility: new(500 * time.Millisecond)})
	var ids []int64
	for i := range 50 {
		ids = append(ids, enqueue(t, c, i, nil))
	}
	finish := make(chan struct{})
	var deliveries atomic.Int64
	h := client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		deliveries.Add(1)
		select {
		case <-finish:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	stop := runWorker(t, c, h, client.WorkerOptions{Concurrency: 50})
	other := runWorker(t, c, h, client.WorkerOptions{Concurrency: 50}) // would take any whose lease ends
	waitFor(t, "50 deliveries", func() bool { return deliveries.Load() == 50 })
	// Four leases later by the database's clock, which is what leases are measured by.
	began := value[time.Time](t, pool, "select clock_timestamp()")
	waitFor(t, "four leases", func() bool {
		return value[time.Time](t, pool, "select clock_timestamp()").Sub(began) > 2*time.Second
	})
	close(finish)
	require.NoError(t, stop())
	require.NoError(t, other())
	require.EqualValues(t, 50, deliveries.Load())
	for _, id := range ids {
		require.Equal(t, []string{"acked"}, outcomes(t, c, id))
	}
}

func TestWorkerDrains(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t, client.QueueSettings{})
	first, second := enqueue(t, c, 1, nil), enqueue(t, c, 2, nil)
	started, finish := make(chan int64), make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	done := inBackground(func() (struct{}, error) {
		return struct{}{}, c.NewWorker("q", client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
			started <- m.ID
			<-finish
			return context.Cause(ctx)
		}), client.WorkerOptions{Concurrency: 1}).Run(ctx)
	})
	require.Equal(t, first, next(t, "the handler", started))
	cancel()
	close(finish)
	_, err := result(t, done)
	require.NoError(t, err)
	require.Equal(t, []string{"acked"}, outcomes(t, c, first))
	require.Empty(t, outcomes(t, c, second))
	require.Equal(t, second, receiveOne(t, c).ID)
}

// What was received while the worker was being stopped is released at once, its attempt given back.
func TestWorkerReleasesWhatNoHandlerHasBegun(t *testing.T) {
	t.Parallel()
	c, pool := newClient(t, client.QueueSettings{})
	// The first receive finds a row and then waits for this lock, within the worker's round trip.
	id := enqueue(t, c, 1, nil)
	execSQL(t, pool, `create function slow() returns trigger language plpgsql as $$
		begin perform pg_advisory_xact_lock(42); return new; end $$`)
	execSQL(t, pool, `create trigger slow before update on workq.delivery for each row execute function slow()`)
	conn := connect(t, pool.Config().ConnString())
	execSQL(t, conn, "select pg_advisory_lock(42)")

	var handled atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	done := inBackground(func() (struct{}, error) {
		return struct{}{}, c.NewWorker("q", client.HandlerFunc(func(context.Context, *client.Message) error {
			handled.Add(1)
			return nil
		}), client.WorkerOptions{}).Run(ctx)
	})
	waitFor(t, "the receive to wait for the lock", func() bool {
		return value[bool](t, pool, "select exists (select from pg_locks where locktype = 'advisory' and not granted)")
	})
	cancel()
	execSQL(t, conn, "select pg_advisory_unlock(42)")
	_, err := result(t, done)
	require.NoError(t, err)
	require.Zero(t, handled.Load())
	require.Equal(t, []string{"released"}, outcomes(t, c, id))
	require.Equal(t, 1, receiveOne(t, c).Attempt)
}

func TestWorkerCancelsHandlersAfterTheGracePeriodAndReleases(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t, client.QueueSettings{})
	id := enqueue(t, c, 1, nil)
	started, cause := make(chan int64, 1), make(chan error, 1)
	stop := runWorker(t, c, client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		started <- m.ID
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	}), client.WorkerOptions{GracePeriod: 50 * time.Millisecond})
	next(t, "the handler", started)
	require.NoError(t, stop())
	require.ErrorIs(t, next(t, "the cause", cause), client.ErrStopped)
	require.Equal(t, []string{"released"}, outcomes(t, c, id))
	require.Equal(t, 1, receiveOne(t, c).Attempt)
}

func TestWorkerLeavesNoGoroutineBehind(t *testing.T) {
	c, pool := newClient(t, client.QueueSettings{Visibility: new(2 * time.Second)})
	require.NoError(t, pool.Ping(t.Context()))
	base := runtime.NumGoroutine()
	const n = 5000
	messages := make([]client.NewMessage, n)
	for i := range messages {
		messages[i].Payload = i
	}
	_, err := c.EnqueueMany(t.Context(), "q", messages, nil)
	require.NoError(t, err)
	var running, most, handled atomic.Int64
	stop := runWorker(t, c, client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		defer running.Add(-1)
		now := running.Add(1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		if handled.Add(1) < 2000 { // thousands at once, then freely
			waitForAtomic(ctx, &handled, 2000)
		}
		return nil
	}), client.WorkerOptions{Concurrency: 2500})
	waitFor(t, "an empty queue", func() bool {
		stats, err := c.Stats(t.Context(), "q")
		require.NoError(t, err)
		return stats[0].Ready+stats[0].Leased == 0
	})
	require.NoError(t, stop())
	require.EqualValues(t, n, handled.Load())
	require.GreaterOrEqual(t, most.Load(), int64(1500))
	waitFor(t, "the goroutines to end", func() bool { return runtime.NumGoroutine() <= base })
}

func waitForAtomic(ctx context.Context, v *atomic.Int64, want int64) {
	for v.Load() < want && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
}

// The handler's own rows and the ack commit together, whatever else happens.
func TestWorkerAcksInTheHandlersTransaction(t *testing.T) {
	t.Parallel()
	// The lease is short and the transaction long: a heartbeat must neither wait for the handler's
	// lock nor take the ack for a lost lease.
	c, pool := newClient(t, client.QueueSettings{Visibility: new(300 * time.Millisecond), RetryDelays: []time.Duration{0}})
	execSQL(t, pool, "create table effect (id bigint)")
	id, beside := enqueue(t, c, 1, nil), enqueue(t, c, "beside", nil)
	acked, commit := make(chan struct{}), make(chan struct{})
	var causes atomic.Int64
	stop := runWorker(t, c, client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		defer func() {
			if ctx.Err() != nil {
				causes.Add(1)
			}
		}()
		if m.ID == beside {
			<-commit
			return nil
		}
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into effect values ($1)", m.ID); err != nil {
				return err
			}
			if err := m.AckTx(ctx, tx, map[string]int{"attempt": m.Attempt}); err != nil {
				return err
			}
			if m.Attempt == 1 {
				return errors.New("roll back")
			}
			close(acked)
			<-commit
			return nil
		})
	}), client.WorkerOptions{})
	next(t, "the ack", acked)
	began := value[time.Time](t, pool, "select clock_timestamp()")
	waitFor(t, "three leases", func() bool {
		return value[time.Time](t, pool, "select clock_timestamp()").Sub(began) > 900*time.Millisecond
	})
	close(commit)
	waitForOutcomes(t, c, id, "retry", "acked")
	require.NoError(t, stop())
	require.Equal(t, []int64{id}, column[int64](t, pool, "select id from effect"))
	require.Equal(t, []string{"acked"}, outcomes(t, c, beside))
	require.Zero(t, causes.Load(), "no handler was cancelled")
	h, err := c.History(t.Context(), "q", id)
	require.NoError(t, err)
	results := map[string]bool{}
	for _, a := range h {
		results[string(a.Result)] = true
	}
	require.True(t, results[`{"attempt": 2}`], "%v", slices.Collect(maps.Keys(results)))
}

func TestWorkerAckTxRaisesWhenTheLeaseIsLost(t *testing.T) {
	t.Parallel()
	c, pool := newClient(t, client.QueueSettings{})
	execSQL(t, pool, "create table effect (id bigint)")
	id := enqueue(t, c, 1, nil)
	got := make(chan error, 1)
	runWorker(t, c, client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		_, err := c.Cancel(ctx, "q", m.ID)
		require.NoError(t, err)
		err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into effect values ($1)", m.ID); err != nil {
				return err
			}
			return m.AckTx(ctx, tx, nil)
		})
		got <- err
		return err
	}), client.WorkerOptions{})
	require.ErrorIs(t, next(t, "the error", got), client.ErrLeaseLost)
	require.Empty(t, column[int64](t, pool, "select id from effect"))
	require.Equal(t, []string{"cancelled"}, outcomes(t, c, id))
}

type greeting struct{ Name string }

func TestWorkerChoosesByKind(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t, client.QueueSettings{MaxAttempts: new(2), RetryDelays: []time.Duration{0}})
	var x client.Mux
	client.HandleKind(&x, "greet", func(_ context.Context, m *client.Message, g greeting) error {
		return m.SetResult("hello " + g.Name)
	})
	var order []string
	mw := func(name string) client.Middleware {
		return func(h client.Handler) client.Handler {
			return client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
				order = append(order, name)
				return h.Handle(ctx, m)
			})
		}
	}
	ok := enqueue(t, c, greeting{"Ada"}, &client.EnqueueOptions{Kind: "greet"})
	stop := runWorker(t, c, &x, client.WorkerOptions{Middleware: []client.Middleware{mw("outer"), mw("inner")}})
	waitForOutcomes(t, c, ok, "acked")
	require.NoError(t, stop())
	require.Equal(t, []string{"outer", "inner"}, order)

	wrong := enqueue(t, c, json.RawMessage(`{"Name": 5}`), &client.EnqueueOptions{Kind: "greet"})
	unknown := enqueue(t, c, greeting{"Ada"}, &client.EnqueueOptions{Kind: "part"})
	runWorker(t, c, &x, client.WorkerOptions{})
	waitForOutcomes(t, c, wrong, "dead")            // no retry can mend it
	waitForOutcomes(t, c, unknown, "retry", "dead") // a newer worker may know it
	h, err := c.History(t.Context(), "q", unknown)
	require.NoError(t, err)
	require.Contains(t, h[0].Error, `no handler for kind "part"`)
}

func TestWorkerFailsFast(t *testing.T) {
	t.Parallel()
	h := client.HandlerFunc(func(context.Context, *client.Message) error { return nil })
	pool := newDB(t)
	c := client.New(pool, client.Options{})
	err := c.NewWorker("none", h, client.WorkerOptions{}).Run(t.Context())
	require.ErrorIs(t, err, client.ErrQueueNotFound)

	away := newPool(t, "postgres://nobody@127.0.0.1:1/none?connect_timeout=2")
	require.Error(t, client.New(away, client.Options{}).NewWorker("q", h, client.WorkerOptions{}).Run(t.Context()))

	execSQL(t, pool, `create or replace function workq.version() returns text language sql as $$ select '99.0' $$`)
	err = c.NewWorker("q", h, client.WorkerOptions{}).Run(t.Context())
	require.ErrorContains(t, err, "99.0")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, c.NewWorker("q", h, client.WorkerOptions{}).Run(ctx))
}

func TestWorkerTellsItsNameAndProgress(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t, client.QueueSettings{})
	id := enqueue(t, c, 1, nil)
	shown := make(chan client.MessageInfo, 1)
	runWorker(t, c, client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		if err := m.Report(ctx, map[string]int{"percent": 50}); err != nil {
			return err
		}
		info, err := c.Get(ctx, "q", m.ID)
		shown <- info
		return err
	}), client.WorkerOptions{Name: "berta"})
	info := next(t, "the message", shown)
	require.Equal(t, "berta", info.Worker)
	require.JSONEq(t, `{"percent": 50}`, string(info.Status))
	waitForOutcomes(t, c, id, "acked")
	require.False(t, strings.Contains(fmt.Sprint(info), "\x00"))
}
