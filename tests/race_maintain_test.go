package tests

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	dropped = "select coalesce(string_agg(m.action || ' ' || m.target, ', '), '') from workq.maintain() m where m.action <> 'partition made'"
	oldBusy = "busy, left for the next time message_old"
	oldGone = "partition dropped message_old"
)

// withOldPartition closes the tail of message at 30 days ago, in a partition message_old. The queue's
// messages so far are in it.
func (a *arena) withOldPartition() {
	a.t.Helper()
	execSQL(a.t, a.pool, "alter table workq.message detach partition workq.message_tail")
	execSQL(a.t, a.pool, "alter table workq.message_tail rename to message_old")
	execSQL(a.t, a.pool, "update workq.message_old set created_at = created_at - interval '60 days'")
	execSQL(a.t, a.pool, "update workq.delivery set created_at = created_at - interval '60 days'")
	execSQL(a.t, a.pool, `do $$ begin
		execute format('alter table workq.message attach partition workq.message_old for values from (minvalue) to (%L)', date_trunc('second', now()) - interval '30 days');
		execute format('create table workq.message_tail partition of workq.message for values from (%L) to (maxvalue)', date_trunc('second', now()) - interval '30 days');
	end $$`)
	// Partitions ahead are made, so that from now on only the drop is left to do.
	require.Contains(a.t, value[string](a.t, a.pool, "select string_agg(m.action, ', ') from workq.maintain() m"), "partition made")
}

// maintain drops nothing while an enqueue is open, gives up soon, and never makes senders queue
// behind it for as long as that one is open.
func TestRaceDropPartitionAgainstOpenEnqueue(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	a.enqueue(a.pool, 1, 5)
	a.withOldPartition() // needed still, so it stayed
	open, maintainer, sender := a.session(), a.session(), a.session()
	c := a.one(a.pool, "1 minute")
	require.Equal(t, "acked", a.do(a.pool, ackVerb, c))

	execSQL(t, open, "begin")
	late := a.enqueue(open, 1, 5)
	began := time.Now()
	done := start[string](t, maintainer, dropped)
	waitUntilBlocked(t, a.pool, pidOf(maintainer))
	// This one comes to stand behind the waiting drop.
	ids := a.enqueue(sender, 1, 5)
	word, err := result(t, done)
	require.NoError(t, err)
	require.Equal(t, oldBusy, word)
	require.Less(t, time.Since(began), 10*time.Second, "it gave up by its own lock_timeout of 100 ms")
	require.Equal(t, ids[0], a.one(a.pool, "1 minute").ID)

	a.end(open, true)
	require.Equal(t, oldGone, value[string](t, maintainer, dropped))
	require.NoError(t, a.pollFor(late, aLook))
}

// The other order: an enqueue that comes while maintain's transaction is open waits for it, and works.
func TestRaceEnqueueAgainstOpenMaintain(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit %t", commit), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			a.withOldPartition()
			execSQL(t, a.pool, `do $$ begin
				execute format('create table workq.message_older partition of workq.message for values from (minvalue) to (%L)', now() - interval '31 days');
			end $$`) // the first call found message_old needless, and dropped it
			maintainer, sender := a.session(), a.session()
			execSQL(t, maintainer, "begin")
			require.Equal(t, "partition dropped message_older", value[string](t, maintainer, dropped))
			require.Equal(t, "", value[string](t, a.pool, dropped), "a second maintain has nothing to do, and does not wait")
			done := start[int64](t, sender, "select (workq.enqueue('q', '1')).id")
			waitUntilBlocked(t, a.pool, pidOf(sender))
			a.end(maintainer, commit)
			id, err := result(t, done)
			require.NoError(t, err)
			require.Equal(t, id, a.one(a.pool, "1 minute").ID)
		})
	}
}

// What an open transaction may still need, or give back by rolling back, is not dropped.
func TestRaceDropPartitionAgainstOpenAck(t *testing.T) {
	t.Parallel()
	for name, v := range map[string]verb{"ack": ackVerb, "cancel": cancelVerb, "permanent fail": deadVerb, "purge": purgeVerb} {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, commit %t", name, commit), func(t *testing.T) {
				t.Parallel()
				a := newArena(t, "")
				a.enqueue(a.pool, 1, 5)
				a.withOldPartition()
				worker := a.session()
				c := a.one(a.pool, "1 minute")
				execSQL(t, worker, "begin")
				a.do(worker, v, c)
				require.NotContains(t, value[string](t, a.pool, dropped), "dropped")
				a.end(worker, commit)
				if commit {
					require.Equal(t, oldGone, value[string](t, a.pool, dropped))
					if v == deadVerb { // a dead letter has its own copy
						require.Equal(t, 1, value[int](t, a.pool, "select workq.redrive('q')"))
						require.Equal(t, "1", value[string](t, a.pool, "select r.payload::text from workq.receive('q') r"))
					}
					return
				}
				require.Empty(t, value[string](t, a.pool, dropped), "needed again")
				require.Equal(t, "1", value[string](t, a.pool, "select g.payload::text from workq.get('q', $1) g", c.ID))
			})
		}
	}
}

// redrive writes the message anew; whether the old partition goes before, meanwhile or after.
func TestRaceRedriveAgainstDropPartition(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit %t", commit), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			a.enqueue(a.pool, 1, 5)
			a.withOldPartition()
			require.Equal(t, "dead", a.do(a.pool, deadVerb, a.one(a.pool, "1 minute")))
			redriver := a.session()
			execSQL(t, redriver, "begin")
			require.Equal(t, 1, value[int](t, redriver, "select workq.redrive('q')"))
			require.Equal(t, oldBusy, value[string](t, a.pool, dropped))
			a.end(redriver, commit)
			require.Equal(t, oldGone, value[string](t, a.pool, dropped))
			if !commit {
				require.Equal(t, 1, value[int](t, redriver, "select workq.redrive('q')"))
			}
			require.Empty(t, value[string](t, a.pool, dropped))
			require.Equal(t, "1", value[string](t, a.pool, "select r.payload::text from workq.receive('q') r"))
		})
	}
}
