package tests

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client"
)

// notified waits for a notification.
func notified(t *testing.T, conn *pgx.Conn, d time.Duration) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	_, err := conn.WaitForNotification(ctx)
	if err != nil {
		require.ErrorIs(t, ctx.Err(), context.DeadlineExceeded)
	}
	return err == nil
}

// The protocol of a sleeper is: receive nothing, LISTEN, idle, receive once more, wait. Wherever an
// enqueue commits in between, the sleeper finds the message or is notified of it.
func TestRaceIdleAgainstEnqueue(t *testing.T) {
	t.Parallel()
	steps := []string{"before all", "after the receive", "after LISTEN", "after idle", "asleep"}
	// Where the enqueue runs, and where it commits.
	for at := range steps {
		for commitAt := at; commitAt < len(steps); commitAt++ {
			t.Run(steps[at]+", commits "+steps[commitAt], func(t *testing.T) {
				t.Parallel()
				a := newArena(t, "")
				sleeper, sender := a.session(), a.session()
				var found []claim
				step := func(i int) {
					if i == at {
						execSQL(t, sender, "begin")
						a.enqueue(sender, 1, 5)
					}
					if i == commitAt {
						a.end(sender, true)
					}
				}
				look := func() { found = append(found, a.receive(sleeper, 10, "1 minute")...) }
				step(0)
				look()
				step(1)
				execSQL(t, sleeper, `listen "workq.q"`)
				step(2)
				require.Equal(t, "workq.q", value[string](t, sleeper, "select channel from workq.idle('q')"))
				step(3)
				look()
				step(4)
				switch {
				case commitAt < 4:
					require.Len(t, found, 1, "found without a notification")
				case at > 2:
					require.Empty(t, found)
					require.True(t, notified(t, sleeper, patience))
					look()
					require.Len(t, found, 1)
				default:
					// The sender read the mark before it was set: what the steps of looking again are for.
					require.Empty(t, found)
					look()
					require.Len(t, found, 1)
				}
			})
		}
	}
}

// A sleeper that only knows the protocol is notified of a message that committed far below the floor,
// just after somebody looked. It finds it soon, not when its sleep of a minute ends.
func TestRaceSleeperAgainstALateCommit(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	sleeper, sender := a.session(), a.session()
	execSQL(t, sleeper, `listen "workq.q"`)
	execSQL(t, sleeper, "select workq.idle('q')")
	require.Empty(t, a.receive(sleeper, 10, "1 minute"))
	execSQL(t, sender, "begin")
	a.enqueue(sender, 1, 5)
	execSQL(t, sender, "update workq.delivery set visible_at = visible_at - interval '5 seconds'")
	a.set("floor", "-200 milliseconds")
	a.set("next_look", "1 second")
	a.set("next_glance", "1 second")
	execSQL(t, sender, "commit")
	require.True(t, notified(t, sleeper, patience))
	for began := time.Now(); len(a.receive(sleeper, 10, "1 minute")) == 0; {
		require.Less(t, time.Since(began), aLook)
		due := value[float64](t, sleeper, "select extract(epoch from next_due - clock_timestamp())::float8 from workq.idle('q')")
		if len(a.receive(sleeper, 10, "1 minute")) > 0 {
			return
		}
		notified(t, sleeper, time.Duration(max(due, 0)*float64(time.Second)))
	}
}

// Whatever makes a message receivable tells those who sleep.
func TestRaceEverythingThatFreesAMessageNotifies(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ before, during string }{
		"enqueue":          {"", "select workq.enqueue('q', '1')"},
		"short delay":      {"", "select workq.enqueue('q', '1', delay => '2 seconds')"},
		"fail":             {"", "select workq.fail('q', %[1]d, %[2]d, retry_in => '0')"},
		"release":          {"", "select workq.release('q', %[1]d, %[2]d)"},
		"run_now":          {"select workq.fail('q', %[1]d, %[2]d, retry_in => '1 hour')", "select workq.run_now('q', %[1]d)"},
		"redrive":          {"select workq.fail('q', %[1]d, %[2]d, permanent => true)", "select workq.redrive('q')"},
		"resume":           {"select workq.release('q', %[1]d, %[2]d), workq.pause_queue('q')", "select workq.resume_queue('q')"},
		"burial elsewhere": {"select workq.create_queue('other', dead_letter_queue => 'q'), workq.enqueue('other', '1')", "select workq.fail('other', r.id, r.lease, permanent => true) from workq.receive('other') r"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			sleeper := a.session()
			a.enqueue(a.pool, 1, 5)
			c := a.one(a.pool, "1 hour")
			if tt.before != "" {
				execSQL(t, a.pool, fmt.Sprintf(tt.before+" -- %[1]d %[2]d", c.ID, c.Lease))
			}
			execSQL(t, sleeper, `listen "workq.q"`)
			execSQL(t, sleeper, "select workq.idle('q')")
			require.Empty(t, a.receive(sleeper, 10, "1 minute"))
			execSQL(t, a.pool, fmt.Sprintf(tt.during+" -- %[1]d %[2]d", c.ID, c.Lease))
			require.True(t, notified(t, sleeper, patience))
		})
	}
}

// A sleeper that misses every notification wakes at next_due, which is never later than the next
// delay, backoff or lease ends.
func TestRaceNotifyLostNextDueIsEnough(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	nextDue := func() time.Duration {
		return time.Duration(value[float64](t, a.pool, `select extract(epoch from next_due - clock_timestamp())::float8
			from (select next_due, setval(q.next_due_look, 1) from workq.queue q, workq.idle('q')) i`) * float64(time.Second))
	}
	require.LessOrEqual(t, nextDue(), time.Minute)
	execSQL(t, a.pool, "select workq.enqueue('q', '1', delay => '20 seconds')")
	require.InDelta(t, 20, nextDue().Seconds(), 10)
	require.LessOrEqual(t, nextDue(), 20*time.Second, "a delay")
	a.enqueue(a.pool, 1, 0)
	c := a.one(a.pool, "15 seconds")
	require.LessOrEqual(t, nextDue(), 15*time.Second, "a lease")
	require.Equal(t, "retry", value[string](t, a.pool, "select workq.fail('q', $1, $2, retry_in => '10 seconds')", c.ID, c.Lease))
	require.LessOrEqual(t, nextDue(), 10*time.Second, "a backoff")
}

// Every notification is dropped. Workers find what was enqueued by polling, and delayed messages when
// they are due.
func TestRaceNotifyLostWorkersStillFindMessages(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	execSQL(t, a.pool, `create or replace function workq._wake(q workq.queue, visible_at timestamptz) returns void
		language plpgsql set search_path = pg_catalog, pg_temp as $$ begin end $$`)
	c := client.New(a.pool, client.Options{})
	const poll = 400 * time.Millisecond
	handled := make(chan int64, 10)
	runWorker(t, c, client.HandlerFunc(func(_ context.Context, m *client.Message) error {
		handled <- m.ID
		return nil
	}), client.WorkerOptions{PollInterval: poll, DisableMaintenance: true})
	waitFor(t, "the worker to sleep", func() bool {
		return value[bool](t, a.pool, "select coalesce(pg_sequence_last_value(sleepers) is not null, false) from workq.queue")
	})
	for range 3 {
		id := enqueue(t, c, 1, nil)
		began := time.Now()
		require.Equal(t, id, next(t, "a poll", handled))
		require.Less(t, time.Since(began), poll+3*time.Second)
	}
}

// The sender's transaction is open while the worker falls asleep, so it notifies nobody.
func TestRaceWorkerAgainstAnEnqueueThatCommitsWhileItSleeps(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	sender := a.session()
	execSQL(t, sender, "begin")
	id := a.enqueue(sender, 1, 5)[0]
	handled := make(chan int64, 10)
	runWorker(t, client.New(a.pool, client.Options{}), client.HandlerFunc(func(_ context.Context, m *client.Message) error {
		handled <- m.ID
		return nil
	}), client.WorkerOptions{DisableMaintenance: true})
	waitFor(t, "the worker to sleep", func() bool {
		return value[bool](t, a.pool, "select coalesce(pg_sequence_last_value(sleepers) is not null, false) from workq.queue")
	})
	a.end(sender, true)
	began := time.Now()
	require.Equal(t, id, next(t, "a look again", handled))
	require.Less(t, time.Since(began), 10*time.Second, "long before the poll interval of 30 s")
}
