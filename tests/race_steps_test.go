package tests

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// pauses lets sessions be stopped between the snapshot of a statement and its locks: the test's own
// workq._doom, which the walks of receive and sweep call for each row, stops at its nth call in a
// session that asks for it.
func (a *arena) pauses() {
	a.t.Helper()
	execSQL(a.t, a.pool, "create sequence public.race_step")
	def := value[string](a.t, a.pool, "select pg_get_function_arguments('workq._doom'::regproc)")
	require.Equal(a.t, "attempt integer, max_attempts integer, expires_at timestamp with time zone, now timestamp with time zone", def)
	execSQL(a.t, a.pool, fmt.Sprintf(`create or replace function workq._doom(%s) returns text language plpgsql volatile as $$
		begin
			if current_setting('race.step', true) <> '' and nextval('public.race_step') = current_setting('race.step', true)::bigint then
				perform pg_advisory_xact_lock_shared(1);
			end if;
			return case when attempt >= max_attempts then 'attempts_exhausted' when expires_at <= now then 'expired' end;
		end $$`, def))
}

// pauseAt runs the query and stops it at its nth step, while f runs; false when it has fewer steps.
func (a *arena) pauseAt(conn *pgx.Conn, step int, sql string, f func()) bool {
	a.t.Helper()
	holder := a.session()
	execSQL(a.t, holder, "select pg_advisory_lock(1)")
	execSQL(a.t, a.pool, "select setval('public.race_step', 1, false)")
	execSQL(a.t, conn, fmt.Sprintf("set race.step = %d", step))
	done := start[string](a.t, conn, sql)
	waitFor(a.t, "it to stop, or to end", func() bool {
		return len(done) > 0 || value[bool](a.t, a.pool, "select cardinality(pg_blocking_pids($1)) > 0", int32(pidOf(conn)))
	})
	paused := len(done) == 0
	if paused {
		f()
	}
	require.NoError(a.t, holder.Close(a.t.Context()))
	_, err := result(a.t, done)
	require.NoError(a.t, err)
	return paused
}

// allLapsed receives n messages in one call and waits until their leases have run out.
func (a *arena) allLapsed(n int) []claim {
	a.t.Helper()
	cs := a.receive(a.pool, n, "1 ms")
	require.Len(a.t, cs, n)
	waitFor(a.t, "leases of 1 ms to run out", func() bool { return a.count("delivery where visible_at < clock_timestamp()") == n })
	return cs
}

// A message is on its last attempt and its lease has run out, so receive and sweep want to bury it. At
// any step of theirs its worker extends the lease: either that works and the lease holds, or the
// message is dead and the worker is told.
func TestRaceBurialAgainstExtendAtEveryStep(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"receive": "select count(*)::text from workq.receive('q', 3)",
		"sweep":   "select (" + sweepNow + ").exhausted::text",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "max_attempts => 1")
			a.pauses()
			require.NoError(t, a.buryAgainstExtend(sql))
		})
	}
}

// The test sees a sweep that does not look again at what it has locked.
func TestRaceBurialCheckerCatchesAStaleLook(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 1")
	a.pauses()
	a.plant(plantedBug{"the deadline does not count", "workq._doom_unmet", `visible_at <= now`, "true"})
	require.ErrorContains(t, a.buryAgainstExtend("select ("+sweepNow+").exhausted::text"), "buried")
}

func (a *arena) buryAgainstExtend(sql string) error {
	for step := 1; ; step++ {
		burier, worker := a.session(), a.session()
		a.enqueue(a.pool, 2, 5)
		c := a.allLapsed(2)[1]
		a.look()
		var extend <-chan outcome[string]
		if !a.pauseAt(burier, step, sql, func() {
			extend = a.start(worker, extendVerb, c)
			waitFor(a.t, "extend to work or to wait", func() bool {
				return len(extend) > 0 || value[bool](a.t, a.pool, "select cardinality(pg_blocking_pids($1)) > 0", int32(pidOf(worker)))
			})
		}) {
			if step < 3 {
				return fmt.Errorf("it was stopped %d times, want one for each row", step-1)
			}
			return nil
		}
		dead := a.count("dead_letter where message_id = $1", c.ID)
		if word := a.answered(extend); word == "extended" {
			if dead != 0 {
				return fmt.Errorf("step %d: buried under a lease that was extended", step)
			}
			if word := a.do(a.pool, ackVerb, c); word != "acked" {
				return fmt.Errorf("step %d: the ack after extend is %s", step, word)
			}
		} else if dead != 1 {
			return fmt.Errorf("step %d: extend said %s, and there are %d dead letters", step, word, dead)
		}
		execSQL(a.t, a.pool, "select workq.purge_queue('q')")
	}
}

// Two receives want the same messages, whose leases have run out. At any step of one the other comes
// and commits: each message goes to one of them, and nothing dies of it.
func TestRaceReceiveAgainstReceiveAtEveryStep(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 2")
	a.pauses()
	steps := 0
	for step := 1; ; step++ {
		one, other := a.session(), a.session()
		a.enqueue(a.pool, 4, 5)
		a.allLapsed(4)
		a.look()
		execSQL(t, other, "begin")
		theirs := a.receive(other, 1, "1 minute") // passed by, as it is locked, until the pause
		if !a.pauseAt(one, step, "select count(*)::text from workq.receive('q', 2)", func() {
			a.end(other, true)
			theirs = append(theirs, a.receive(other, 1, "1 minute")...)
		}) {
			break
		}
		steps++
		require.Zero(t, a.count("dead_letter"), "step %d", step)
		for _, c := range theirs {
			require.Equal(t, 1, a.count("attempt where message_id = $1", c.ID), "step %d: only its first lease ran out", step)
			require.Equal(t, "acked", a.do(a.pool, ackVerb, c), "step %d", step)
		}
		require.Equal(t, a.count("delivery where attempt = 2"),
			value[int](t, a.pool, `select count(distinct a.message_id) from workq.attempt a join workq.delivery d on d.message_id = a.message_id
				where a.outcome = 'timeout' and d.attempt = 2`))
		execSQL(t, a.pool, "select workq.purge_queue('q')")
		execSQL(t, a.pool, "truncate workq.attempt")
	}
	require.GreaterOrEqual(t, steps, 2)
}
