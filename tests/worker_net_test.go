package tests

import (
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client"
)

// newProxied gives a client through a proxy, with a queue named q, and one that goes straight.
func newProxied(t *testing.T, settings client.QueueSettings) (px *proxy, proxied, direct *client.Client, pool *pgxpool.Pool) {
	t.Helper()
	dbURL := newDBURL(t)
	px = newProxy(t, dbURL)
	straight := newPool(t, dbURL)
	direct = client.New(straight, client.Options{})
	_, err := direct.CreateQueue(t.Context(), "q", settings)
	require.NoError(t, err)
	return px, client.New(newPool(t, px.dbURL), client.Options{Logger: slog.New(slog.NewTextHandler(t.Output(), nil))}), direct, straight
}

// Acks and the next receive are one round trip, and so one transaction.
func TestWorkerSettlesAndReceivesInOneRoundTrip(t *testing.T) {
	t.Parallel()
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			px, _, direct, pool := newProxied(t, client.QueueSettings{})
			const n = 300
			messages := make([]client.NewMessage, n)
			_, err := direct.EnqueueMany(t.Context(), "q", messages, nil)
			require.NoError(t, err)
			c := client.New(inExecMode(t, px.dbURL, mode), client.Options{DisableListen: true})
			var first, last atomic.Int64
			var handled atomic.Int64
			stop := runWorker(t, c, client.HandlerFunc(func(context.Context, *client.Message) error {
				switch handled.Add(1) {
				case 11: // statements are prepared by now
					first.Store(px.syncs.Load())
				case n:
					last.Store(px.syncs.Load())
				}
				return nil
			}), client.WorkerOptions{Concurrency: 1, DisableMaintenance: true})
			waitFor(t, "an empty queue", func() bool { return value[int](t, pool, "select count(*) from workq.delivery") == 0 })
			require.NoError(t, stop())
			require.EqualValues(t, n-11, last.Load()-first.Load())
			require.Equal(t, n, value[int](t, pool, "select count(*) from workq.attempt where outcome = 'acked'"))
		})
	}
}

// Rows arrive before the commit does: a handler must not start on a receive that may not have happened.
func TestWorkerStartsHandlersOnlyAfterTheCommit(t *testing.T) {
	t.Parallel()
	px, c, direct, _ := newProxied(t, client.QueueSettings{Visibility: new(time.Second)})
	attempts := make(chan int, 10)
	runWorker(t, c, client.HandlerFunc(func(_ context.Context, m *client.Message) error {
		attempts <- m.Attempt
		return nil
	}), client.WorkerOptions{DisableMaintenance: true})
	px.loseEndAfter("the marked one")
	id := enqueue(t, direct, "the marked one", nil)
	require.Equal(t, 2, next(t, "the second delivery", attempts))
	waitForOutcomes(t, direct, id, "timeout", "acked")
}

// An ack whose answer is lost is sent again, and being told "gone" then is no failure.
func TestWorkerSettlesAgainWhenTheAnswerIsLost(t *testing.T) {
	t.Parallel()
	px, c, direct, pool := newProxied(t, client.QueueSettings{})
	id := enqueue(t, direct, 1, nil)
	finish := make(chan struct{})
	var deliveries atomic.Int64
	stop := runWorker(t, c, client.HandlerFunc(func(context.Context, *client.Message) error {
		deliveries.Add(1)
		<-finish
		return nil
	}), client.WorkerOptions{Concurrency: 1, DisableMaintenance: true})
	waitFor(t, "the handler", func() bool { return deliveries.Load() == 1 })
	px.loseEndAfter("acked") // the outcome, on its way to the worker
	close(finish)
	waitForOutcomes(t, direct, id, "acked")
	require.NoError(t, stop())
	require.EqualValues(t, 1, deliveries.Load())
	require.Zero(t, value[int](t, pool, "select count(*) from workq.delivery"))
}

// While the database cannot be reached a handler keeps its context until its lease is over, and no longer.
func TestWorkerTrustsALeaseUntilItsDeadline(t *testing.T) {
	t.Parallel()
	px, c, direct, _ := newProxied(t, client.QueueSettings{Visibility: new(3 * time.Second)})
	received, cancelled := make(chan *client.Message, 1), make(chan error, 1)
	var at time.Time
	runWorker(t, c, client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
		if m.Attempt > 1 {
			return nil
		}
		px.silent.Store(true)
		received <- m
		<-ctx.Done()
		at = time.Now()
		cancelled <- context.Cause(ctx)
		return nil
	}), client.WorkerOptions{DisableMaintenance: true, CallTimeout: 2 * time.Second})
	began := time.Now()
	id := enqueue(t, direct, 1, nil)
	next(t, "the message", received)
	require.ErrorIs(t, next(t, "the end of the context", cancelled), client.ErrLeaseLost)
	require.InDelta(t, 3, at.Sub(began).Seconds(), 1)
	px.silent.Store(false)
	px.cut()
	// Nobody else received it, so the late ack still counts; or the worker itself did, a moment before.
	waitFor(t, "the message to be finished", func() bool {
		got := outcomes(t, direct, id)
		return len(got) > 0 && got[len(got)-1] == "acked"
	})
}

// A connection that went silent without being closed is found out by a sign of life that does not come.
func TestWorkerFindsAHalfOpenListenConnection(t *testing.T) {
	t.Parallel()
	px, _, direct, pool := newProxied(t, client.QueueSettings{})
	cfg, err := pgx.ParseConfig(px.dbURL)
	require.NoError(t, err)
	c := client.New(pool, client.Options{Listen: cfg})
	handled := make(chan int64, 10)
	runWorker(t, c, collectIDs(handled), client.WorkerOptions{PollInterval: time.Hour, DisableMaintenance: true})
	waitFor(t, "the LISTEN connection", func() bool { return listeners(t, pool) == 1 })
	enqueue(t, direct, 1, nil)
	next(t, "the first message", handled)
	px.silent.Store(true)
	before := value[int](t, pool, "select pid from pg_stat_activity where datname = current_database() and query ilike 'listen%'")
	began := time.Now()
	waitFor(t, "a connection that is tried anew", func() bool { return px.accepted.Load() > 1 })
	require.Less(t, time.Since(began), 15*time.Second)
	px.silent.Store(false)
	px.cut()
	waitFor(t, "another LISTEN connection", func() bool {
		return value[int](t, pool, `select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%' and pid <> $1`, before) == 1
	})
	sent := time.Now()
	id := enqueue(t, direct, 2, nil)
	require.Equal(t, id, next(t, "the second message", handled))
	require.Less(t, time.Since(sent), 2*time.Second)
}
