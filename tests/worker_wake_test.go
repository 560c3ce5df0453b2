package tests

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client"
)

// listeners is how many sessions have the LISTEN of the queue q as their last statement.
func listeners(t *testing.T, pool execer) int {
	t.Helper()
	return value[int](t, pool, `select count(*) from pg_stat_activity where datname = current_database() and query ilike 'listen%'`)
}

// asleep waits until the worker has announced its sleep and its steps of looking again are over:
// only a notification or the poll can wake it soon.
func asleep(t *testing.T, pool *pgxpool.Pool, looks *atomic.Int64) {
	t.Helper()
	waitFor(t, "the LISTEN connection", func() bool { return listeners(t, pool) == 1 })
	last, since := looks.Load(), time.Now()
	waitFor(t, "the worker to sleep", func() bool {
		if n := looks.Load(); n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 5*time.Second // the longest step is less than 4 s
	})
}

func collectIDs(handled chan int64) client.HandlerFunc {
	return func(_ context.Context, m *client.Message) error {
		handled <- m.ID
		return nil
	}
}

func TestWorkerIsWokenByANotification(t *testing.T) {
	t.Parallel()
	px := newProxy(t, newDBURL(t))
	pool := newPool(t, px.dbURL)
	c := client.New(pool, client.Options{})
	_, err := c.CreateQueue(t.Context(), "q", client.QueueSettings{})
	require.NoError(t, err)
	handled := make(chan int64, 10)
	stop := runWorker(t, c, collectIDs(handled), client.WorkerOptions{PollInterval: time.Hour, DisableMaintenance: true})
	other := runWorker(t, c, collectIDs(handled), client.WorkerOptions{PollInterval: time.Hour, DisableMaintenance: true})
	asleep(t, pool, &px.syncs)
	require.Equal(t, 1, listeners(t, pool), "workers of a client share one connection")

	sent := time.Now()
	id := enqueue(t, c, 1, nil)
	require.Equal(t, id, next(t, "the message", handled))
	require.Less(t, time.Since(sent), time.Second)

	// A delay that ends is announced by nobody: idle tells when.
	sent = time.Now()
	id = enqueue(t, c, 2, &client.EnqueueOptions{Delay: 1500 * time.Millisecond})
	require.Equal(t, id, next(t, "the delayed message", handled))
	require.InDelta(t, 1.5, time.Since(sent).Seconds(), 0.7)

	require.NoError(t, stop())
	require.NoError(t, other())
	waitFor(t, "the LISTEN connection to end", func() bool { return listeners(t, pool) == 0 })
}

func TestWorkerPollsWithoutNotifications(t *testing.T) {
	t.Parallel()
	px := newProxy(t, newDBURL(t))
	pool := newPool(t, px.dbURL)
	c := client.New(pool, client.Options{DisableListen: true})
	_, err := c.CreateQueue(t.Context(), "q", client.QueueSettings{})
	require.NoError(t, err)
	handled := make(chan int64, 10)
	runWorker(t, c, collectIDs(handled), client.WorkerOptions{DisableMaintenance: true})
	looks := px.syncs.Load()
	waitFor(t, "the steps to be over", func() bool { return px.syncs.Load() >= looks+8 })
	sent := time.Now()
	id := enqueue(t, c, 1, nil)
	require.Equal(t, id, next(t, "the message", handled))
	require.Less(t, time.Since(sent), 3*time.Second)
	require.Zero(t, listeners(t, pool))
}

// A transaction that was open when the worker announced its sleep notifies nobody.
func TestWorkerFindsWhatASlowTransactionEnqueued(t *testing.T) {
	t.Parallel()
	_, pool := newClient(t, client.QueueSettings{})
	c := client.New(pool, client.Options{DisableListen: true}) // no wake-up by a connection that comes up
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	id := enqueue(t, c.With(tx), 1, nil)
	handled := make(chan int64, 10)
	runWorker(t, c, collectIDs(handled), client.WorkerOptions{PollInterval: time.Hour, DisableMaintenance: true})
	waitFor(t, "the worker to sleep", func() bool {
		return value[bool](t, pool, `select exists (select from pg_stat_activity
			where datname = current_database() and query like '%workq.receive%' and state = 'idle' and state_change < clock_timestamp() - interval '100 ms')`)
	})
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, id, next(t, "the message", handled))
}

func TestWorkerTakesOverWithinTheLeaseOfADeadOne(t *testing.T) {
	t.Parallel()
	c, pool := newClient(t, client.QueueSettings{Visibility: new(3 * time.Second)})
	handled := make(chan int64, 10)
	runWorker(t, c, collectIDs(handled), client.WorkerOptions{PollInterval: time.Hour, DisableMaintenance: true})
	waitFor(t, "the LISTEN connection", func() bool { return listeners(t, pool) == 1 })
	for range 3 {
		// A receiver that dies: nobody settles this.
		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		enqueue(t, c.With(tx), 1, nil)
		m := receiveOne(t, c.With(tx))
		require.NoError(t, tx.Commit(t.Context()))
		require.Equal(t, m.ID, next(t, "the message", handled))
		now := value[time.Time](t, pool, "select clock_timestamp()")
		require.False(t, now.Before(m.LeaseUntil))
		require.Less(t, now.Sub(m.LeaseUntil), time.Second)
	}
}

func TestWorkerRecoversFromTerminatedBackends(t *testing.T) {
	t.Parallel()
	dbURL := newDBURL(t)
	pool := newPool(t, dbURL)
	c := client.New(pool, client.Options{})
	_, err := c.CreateQueue(t.Context(), "q", client.QueueSettings{Visibility: new(2 * time.Second), MaxAttempts: new(50)})
	require.NoError(t, err)
	watcher := connect(t, superuserURL(t, dbURL))
	handled := make(chan int64, 10000)
	runWorker(t, c, client.HandlerFunc(func(_ context.Context, m *client.Message) error {
		handled <- m.ID
		return nil
	}), client.WorkerOptions{Concurrency: 5, PollInterval: time.Hour, DisableMaintenance: true})
	waitFor(t, "the LISTEN connection", func() bool { return listeners(t, watcher) == 1 })
	const n = 300
	killed := 0
	left := map[int64]bool{}
	for i := range n {
		// The sender is a session of its own, which nobody terminates.
		left[value[int64](t, watcher, "select id from workq.enqueue('q', to_jsonb($1::int))", i)] = true
		if i%30 == 29 {
			killed += value[int](t, watcher, `select count(*) filter (where pg_terminate_backend(pid)) from pg_stat_activity
				where datname = current_database() and pid <> pg_backend_pid()`)
		}
	}
	require.Positive(t, killed)
	for len(left) > 0 {
		delete(left, next(t, "the other messages", handled))
	}
	waitFor(t, "the acks", func() bool {
		return value[int](t, watcher, "select count(*) from workq.delivery") == 0
	})
	require.Equal(t, n, value[int](t, watcher, "select count(distinct message_id) from workq.attempt where outcome = 'acked'"))
	waitFor(t, "the LISTEN connection", func() bool { return listeners(t, watcher) == 1 })
}
