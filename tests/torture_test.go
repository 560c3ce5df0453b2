package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client"
)

// 100,000 messages through four worker processes, one of which is killed every two seconds and
// replaced. Some messages kill their worker themselves. Every message is acked exactly once, by a
// valid lease, or dead after exactly max_attempts.
func TestTorture(t *testing.T) {
	const (
		messages    = 100_000
		batch       = 500
		workers     = 4
		killEvery   = 2 * time.Second
		load        = 22 * time.Second // in which they are enqueued
		poisonous   = 3
		maxAttempts = 5
		lease       = 2 * time.Second
	)
	a := newArena(t, fmt.Sprintf("max_attempts => %d", maxAttempts))
	execSQL(t, a.pool, "create table public.effect (message_id bigint not null)")
	h := &tortureHistory{maxAttempts: maxAttempts, poison: map[int64]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	// Workers, replaced when they end, by their own hand or ours.
	dir := t.TempDir()
	kills := make(chan struct{})
	var killed, started int
	var mu sync.Mutex
	for n := range workers {
		wg.Go(func() {
			for generation := 0; ctx.Err() == nil; generation++ {
				name := fmt.Sprintf("%d-%d", n, generation)
				kill, exited := workerProcess{
					URL: a.url, Name: name, History: filepath.Join(dir, name+".jsonl"), Concurrency: 50, Visibility: lease,
				}.start(t)
				mu.Lock()
				started++
				mu.Unlock()
				select {
				case <-exited:
				case <-kills:
					kill()
				case <-ctx.Done():
					kill()
				}
			}
		})
	}
	wg.Go(func() { // the killer
		tick := time.NewTicker(killEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			select {
			case <-ctx.Done():
				return
			case kills <- struct{}{}:
				mu.Lock()
				killed++
				mu.Unlock()
			}
		}
	})
	for _, sql := range []string{"select (" + sweepNow + ").exhausted::text", "select count(*)::text from workq.maintain()"} {
		conn := a.session()
		wg.Go(func() { // beside them, whatever the timing
			for ctx.Err() == nil {
				if _, err := try[string](ctx, conn, sql); err != nil && ctx.Err() == nil {
					t.Errorf("%s: %v", sql, err)
					return
				}
				time.Sleep(500 * time.Millisecond) // now and then
			}
		})
	}

	// One sender, one that rolls back.
	rng := rand.New(rand.NewPCG(1, 1))
	began := time.Now()
	sender := a.session()
	for len(h.enqueued) < messages {
		kinds := make([]string, batch)
		priorities := make([]int32, batch)
		for i := range kinds {
			priorities[i] = int32(rng.IntN(11))
			switch k := rng.IntN(100); {
			case k < 2:
				kinds[i] = "in one transaction"
			case k < 5:
				kinds[i] = "fails once"
			default:
				kinds[i] = "plain"
			}
		}
		poisoned := len(h.enqueued)%10_000 == 0 && len(h.poison) < poisonous
		if poisoned {
			kinds[0] = "poison"
		}
		rollBack := rng.IntN(20) == 0 && !poisoned
		execSQL(t, sender, "begin")
		ids := column[int64](t, sender, "select r.id from workq.enqueue_many('q', kinds => $1, priorities => $2) r", kinds, priorities)
		a.end(sender, !rollBack)
		if rollBack {
			h.rolledBack = append(h.rolledBack, ids...)
			continue
		}
		if poisoned {
			h.poison[ids[0]] = true
		}
		h.enqueued = append(h.enqueued, ids...)
		due := began.Add(load * time.Duration(len(h.enqueued)) / messages)
		time.Sleep(time.Until(due)) // an even load
	}
	enqueuedIn := time.Since(began)

	// I9: drained within 60 s and one lease.
	deadline := time.Now().Add(60*time.Second + lease)
	for a.count("delivery") > 0 {
		require.Less(t, time.Now(), deadline, "not drained: %d left", a.count("delivery"))
		time.Sleep(100 * time.Millisecond) // between two looks
	}
	drained := time.Since(began)
	cancel()
	wg.Wait()

	h.events = readEvents(t, dir)
	rows, err := a.pool.Query(t.Context(), `select message_id, coalesce(lease, 0), attempt, outcome, started_at, finished_at from workq.attempt`)
	require.NoError(t, err)
	h.attempts, err = pgx.CollectRows(rows, pgx.RowToStructByPos[tortureAttempt])
	require.NoError(t, err)
	h.dead = column[int64](t, a.pool, "select message_id from workq.dead_letter")
	h.stored = column[int64](t, a.pool, "select message_id from workq.delivery")
	h.effects = column[int64](t, a.pool, "select message_id from public.effect")
	wrong := h.check()
	for _, w := range wrong {
		t.Error(w)
	}

	timeouts, lost := 0, 0
	for _, at := range h.attempts {
		if at.Outcome == "timeout" {
			timeouts++
		}
	}
	for _, e := range h.events {
		if e.Event == "lost" {
			lost++
		}
	}
	t.Logf("%d messages enqueued in %v, drained after %v; %d workers started, %d killed; %d attempts, %d timed out, %d late acks refused, %d dead letters",
		len(h.enqueued), enqueuedIn.Round(time.Second), drained.Round(time.Second), started, killed, len(h.attempts), timeouts, lost, len(h.dead))
	require.GreaterOrEqual(t, killed, int(load/killEvery)-1, "the fault was there")
	require.GreaterOrEqual(t, len(h.dead), poisonous)
	require.NotZero(t, timeouts)
	require.NotEmpty(t, h.rolledBack)
	if len(wrong) > 0 {
		t.Log("the histories are not kept; run it again with -count=1 -run TestTorture")
	}
}

// A worker process that holds a message is killed. Another worker that sleeps receives the message
// when the lease has run out, by itself: nobody sweeps, and nobody notifies it.
func TestTortureMessageOfAKilledWorkerComesBackWithItsLease(t *testing.T) {
	t.Parallel()
	for _, listen := range []bool{true, false} {
		t.Run(fmt.Sprintf("listen %t", listen), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			dir := t.TempDir()
			id := a.enqueue(a.pool, 1, 5)[0]
			kill, _ := workerProcess{
				URL: a.url, Name: "victim", History: filepath.Join(dir, "victim.jsonl"), Concurrency: 1, Visibility: 2 * time.Second, Hold: true,
			}.start(t)
			waitFor(t, "the victim to work", func() bool { return len(readEvents(t, dir)) == 1 })
			first := value[int64](t, a.pool, "select lease from workq.delivery")

			received := make(chan int64, 10)
			c := client.New(a.pool, client.Options{DisableListen: !listen})
			runWorker(t, c, client.HandlerFunc(func(_ context.Context, m *client.Message) error {
				received <- m.Lease
				return nil
			}), client.WorkerOptions{DisableMaintenance: true, PollInterval: 30 * time.Second})
			// The victim extends its lease, and the other has looked in vain, and sleeps.
			extended := value[int64](t, a.pool, "select workq._micros(visible_at) from workq.delivery")
			waitFor(t, "the victim to extend its lease twice", func() bool {
				return value[bool](t, a.pool, "select workq._micros(visible_at) > $1::bigint + 1200000 from workq.delivery", extended)
			})
			require.Empty(t, received)
			kill()
			until := value[int64](t, a.pool, "select workq._micros(visible_at) from workq.delivery")

			second := next(t, "the message to come back", received)
			require.Greater(t, second, first)
			late := time.Duration(value[int64](t, a.pool, `select workq._micros(min(started_at)) - $2::bigint from (
				select received_at as started_at from workq.delivery where message_id = $1 and attempt = 2
				union all select started_at from workq.attempt where message_id = $1 and attempt = 2) a`, id, until)) * time.Microsecond
			require.GreaterOrEqual(t, late, time.Duration(0), "not before the lease ran out")
			require.Less(t, late, time.Second)
			waitForOutcomes(t, c, id, "timeout", "acked")
			t.Logf("received %v after the end of the lease", late)
		})
	}
}
