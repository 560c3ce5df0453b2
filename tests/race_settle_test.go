package tests

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a verb says by the state in which another left the message.
var settleWords = map[verb]struct {
	held, waiting, ended string
	leaves               string // held, waiting or ended
}{
	ackVerb:     {"acked", "stale", "gone", "ended"},
	strictVerb:  {"acked", "WQ002", "WQ002", "ended"},
	failVerb:    {"retry", "stale", "gone", "waiting"},
	deadVerb:    {"dead", "stale", "gone", "ended"},
	extendVerb:  {"extended", "lost", "lost", "held"},
	releaseVerb: {"released", "stale", "gone", "waiting"},
	reportVerb:  {"reported", "stale", "gone", "held"},
	cancelVerb:  {"revoked", "cancelled", "gone", "ended"},
	purgeVerb:   {"1", "1", "0", "ended"},
}

func settleWord(v verb, state string) string {
	w := settleWords[v]
	switch state {
	case "held":
		return w.held
	case "waiting":
		return w.waiting
	default:
		return w.ended
	}
}

// Every verb against every other one, on the same lease: the second waits for the first, then goes
// by what the first left. A change by the row's old place (ctid) would be lost here.
func TestRaceEveryVerbAgainstEveryOther(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	s1, s2 := a.session(), a.session()
	for first, words := range settleWords {
		for second := range settleWords {
			for _, commit := range []bool{true, false} {
				a.enqueue(a.pool, 1, 5)
				c := a.one(a.pool, "1 minute")
				what := first.name + " × " + second.name

				execSQL(t, s1, "begin")
				require.Equal(t, words.held, a.do(s1, first, c), what)
				done := a.startBlocked(s2, second, c)
				a.end(s1, commit)
				state := "held"
				if commit {
					what += ", committed"
					state = words.leaves
				} else {
					what += ", rolled back"
				}
				require.Equal(t, settleWord(second, state), a.answered(done), what)

				unfinished := a.count("delivery where message_id = $1", c.ID)
				ends := a.count("attempt where message_id = $1 and outcome in ('acked', 'dead', 'cancelled', 'purged')", c.ID)
				dead := a.count("dead_letter where message_id = $1", c.ID)
				require.LessOrEqual(t, unfinished+ends, 1, "%s: ended twice, or ended and still there", what)
				require.LessOrEqual(t, dead, ends, what)
				if second != purgeVerb { // a purge keeps no history of what was not leased
					require.Equal(t, 1, unfinished+ends, "%s: neither there nor ended", what)
				}
				execSQL(t, a.pool, "select workq.purge_queue('q')")
			}
		}
	}
}

func TestRaceReceiveReceiveIsDisjointAndNeverMoreThanAsked(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	s1, s2 := a.session(), a.session()
	ids := a.enqueue(a.pool, 10, 5)

	execSQL(t, s1, "begin")
	execSQL(t, s2, "begin")
	first := a.receive(s1, 4, "1 minute")
	second := a.receive(s2, 10, "1 minute") // returns at once: it waits for nobody
	require.Len(t, first, 4)
	require.Len(t, second, 6)
	var got []int64
	for _, c := range append(first, second...) {
		got = append(got, c.ID)
	}
	require.ElementsMatch(t, ids, got)
	a.end(s1, true)
	a.end(s2, true)
	require.Equal(t, 10, a.count("delivery where lease is not null"))
}

// A subquery with LIMIT and SKIP LOCKED can claim more than it returns.
func TestRaceReceiveClaimsAtMostWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	const messages, ask = 1200, 7
	for p := range 4 {
		a.enqueue(a.pool, messages/4, 3*p)
	}
	var mu sync.Mutex
	seen := map[int64]int64{}
	var wg sync.WaitGroup
	for range 4 {
		s := a.session()
		wg.Go(func() {
			for {
				cs, err := tryReceive(t.Context(), s, ask, "1 minute")
				if err != nil || len(cs) > ask {
					t.Errorf("received %d of %d: %v", len(cs), ask, err)
					return
				}
				if len(cs) == 0 {
					return
				}
				mu.Lock()
				for _, c := range cs {
					if other, twice := seen[c.ID]; twice {
						t.Errorf("message %d was received under %d and %d", c.ID, other, c.Lease)
					}
					seen[c.ID] = c.Lease
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	// Sessions that skipped each other's rows may all have left early: the rest must be receivable.
	a.look()
	for _, c := range a.receive(a.pool, 1000, "1 minute") {
		require.NotContains(t, seen, c.ID)
		seen[c.ID] = c.Lease
	}
	require.Len(t, seen, messages)
	require.Equal(t, messages, a.count("delivery where lease is not null and attempt = 1"), "claimed, as many as returned")
}

func TestRaceRolledBackReceiveLeavesNoTrace(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 1")
	s := a.session()
	ids := a.enqueue(a.pool, 3, 5)
	before := column[string](t, a.pool, "select to_jsonb(d)::text from workq.delivery d order by d.message_id")
	for range 5 {
		execSQL(t, s, "begin")
		require.Len(t, a.receive(s, 3, "1 minute"), 3)
		require.Empty(t, a.receive(a.pool, 3, "1 minute"), "while the claim is open")
		a.end(s, false)
	}
	require.Equal(t, before, column[string](t, a.pool, "select to_jsonb(d)::text from workq.delivery d order by d.message_id"))
	require.Zero(t, a.count("attempt"))
	require.Zero(t, a.count("dead_letter"))
	cs := a.receive(a.pool, 3, "1 minute")
	require.Len(t, cs, 3)
	for i, c := range cs {
		require.Equal(t, ids[i], c.ID)
		require.Equal(t, 1, c.Attempt)
	}
}

// A message whose lease ran out is receivable at once, whatever open transactions hold ahead of it.
func TestRaceReceiveALapsedMessageBehindALockedOne(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	s := a.session()
	a.enqueue(a.pool, 2, 5)
	both := a.receive(a.pool, 2, "1 ms")
	require.Len(t, both, 2)
	locked, lapsed := both[0], both[1]
	waitFor(t, "both leases to run out", func() bool { return a.count("delivery where visible_at < clock_timestamp()") == 2 })
	execSQL(t, s, "begin")
	require.Equal(t, "acked", a.do(s, ackVerb, locked))
	require.Equal(t, lapsed.ID, a.one(a.pool, "1 minute").ID)
	a.end(s, true)
}

// An open receive holds what it returned and nothing else, also where leases ran out.
func TestRaceReceiveHoldsNoMoreThanItReturned(t *testing.T) {
	t.Parallel()
	for _, exhausted := range []int{0, 1} {
		t.Run(fmt.Sprintf("%d exhausted", exhausted), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "max_attempts => 2")
			s := a.session()
			for p := range 4 {
				a.enqueue(a.pool, 3, 3*p)
			}
			require.Len(t, a.receive(a.pool, 12, "1 ms"), 12)
			execSQL(t, a.pool, "update workq.delivery set attempt = 2 where message_id in (select message_id from workq.delivery order by message_id limit $1)", exhausted)
			waitFor(t, "the leases to run out", func() bool { return a.count("delivery where visible_at < clock_timestamp()") == 12 })
			execSQL(t, s, "begin")
			mine := a.receive(s, 2, "1 minute")
			require.Len(t, mine, 2)
			theirs := a.receive(a.pool, 100, "1 minute")
			a.end(s, true)
			require.Len(t, theirs, 10-exhausted)
		})
	}
}

// The lease has run out. Whoever is first decides.
func TestRaceLateAckAgainstReceive(t *testing.T) {
	t.Parallel()
	for _, v := range []verb{ackVerb, strictVerb, failVerb, deadVerb, releaseVerb, reportVerb, extendVerb} {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			s1, s2 := a.session(), a.session()
			a.enqueue(a.pool, 1, 5)

			// The receive first: the late call waits, and is told.
			old := a.lapsed(a.pool)
			execSQL(t, s1, "begin")
			c := a.one(s1, "1 ms")
			require.Greater(t, c.Lease, old.Lease)
			done := a.startBlocked(s2, v, old)
			a.end(s1, true)
			lost := settleWord(v, "waiting")
			require.Equal(t, lost, a.answered(done))
			require.Equal(t, c.Lease, value[int64](t, a.pool, "select lease from workq.delivery"), "the new lease stands")
			require.Equal(t, 2, value[int](t, a.pool, "select attempt from workq.delivery"))

			// The receive first, but rolled back: nobody received it since, so the late call works.
			waitFor(t, "the lease to run out", func() bool {
				return a.count("delivery where visible_at < clock_timestamp()") == 1
			})
			execSQL(t, s1, "begin")
			a.one(s1, "1 minute")
			done = a.startBlocked(s2, v, c)
			a.end(s1, false)
			require.Equal(t, settleWord(v, "held"), a.answered(done))

			// The late call first: a receive does not wait, and passes it by.
			execSQL(t, a.pool, "select workq.purge_queue('q')")
			for _, commit := range []bool{false, true} {
				if !commit {
					a.enqueue(a.pool, 1, 5)
				}
				old = a.lapsed(a.pool)
				execSQL(t, s1, "begin")
				require.Equal(t, settleWord(v, "held"), a.do(s1, v, old))
				require.Empty(t, a.receive(s2, 10, "1 minute"), "while the late call is open")
				a.end(s1, commit)
			}
			if v == reportVerb { // it does not move the deadline
				require.Len(t, a.receive(s2, 10, "1 minute"), 1)
			} else {
				require.Empty(t, a.receive(s2, 10, "1 minute"), "after the late call")
			}
			require.Equal(t, a.count("attempt where outcome = 'acked'"),
				value[int](t, a.pool, "select count(distinct message_id) from workq.attempt where outcome = 'acked'"))
		})
	}
}

func TestRaceReleaseAgainstReceive(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 1")
	s1, s2 := a.session(), a.session()
	id := a.enqueue(a.pool, 1, 5)[0]
	old := a.one(a.pool, "1 minute")

	execSQL(t, s1, "begin")
	require.Equal(t, "released", value[string](t, s1, "select workq.release('q', $1, $2)", id, old.Lease))
	require.Empty(t, a.receive(s2, 10, "1 minute"))
	a.end(s1, true)

	c := a.one(s2, "1 minute")
	require.Equal(t, 1, c.Attempt, "the attempt was given back")
	require.Greater(t, c.Lease, old.Lease)
	for _, v := range []verb{ackVerb, failVerb, releaseVerb, reportVerb} {
		require.Equal(t, "stale", a.do(s1, v, old), v.name)
	}
	require.Equal(t, "acked", a.do(s1, ackVerb, c))
}

// The message is on its last attempt and its lease has run out: sweep wants it.
func TestRaceSweepAgainstEveryVerb(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 1")
	s1, s2 := a.session(), a.session()
	for v, words := range settleWords {
		for _, commit := range []bool{true, false} {
			// The verb first: sweep passes it by without waiting.
			a.enqueue(a.pool, 1, 5)
			c := a.lapsed(a.pool)
			execSQL(t, s1, "begin")
			held := words.held
			switch v {
			case failVerb:
				held = "dead" // it is the last attempt
			case cancelVerb:
				held = "cancelled" // nobody holds it any more
			}
			require.Equal(t, held, a.do(s1, v, c), v.name)
			require.Equal(t, "0", a.do(s2, sweepVerb, c), v.name)
			a.end(s1, commit)
			want := 0
			if !commit || v == reportVerb || held == "dead" {
				want = 1
			}
			a.do(s2, sweepVerb, c)
			require.Equal(t, want, a.count("dead_letter where message_id = $1", c.ID), "%s, then sweep, commit %t", v.name, commit)
			execSQL(t, a.pool, "select workq.purge_queue('q')")

			// Sweep first: the verb waits.
			a.enqueue(a.pool, 1, 5)
			c = a.lapsed(a.pool)
			execSQL(t, s1, "begin")
			require.Equal(t, "1", a.do(s1, sweepVerb, c))
			done := a.startBlocked(s2, v, c)
			a.end(s1, commit)
			if commit {
				require.Equal(t, words.ended, a.answered(done), "sweep, then %s", v.name)
				require.Equal(t, 1, a.count("dead_letter where message_id = $1", c.ID))
				require.Zero(t, a.count("delivery where message_id = $1", c.ID))
			} else {
				require.Equal(t, held, a.answered(done), "sweep rolled back, then %s", v.name)
			}
			execSQL(t, a.pool, "select workq.purge_queue('q')")
		}
	}
}

// Two sweeps and a receive meet the same exhausted messages: one dead letter each.
func TestRaceSweepAgainstSweepAndReceive(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 1")
	s1, s2 := a.session(), a.session()
	a.enqueue(a.pool, 20, 5)
	require.Len(t, a.receive(a.pool, 20, "1 ms"), 20)
	waitFor(t, "the leases to run out", func() bool { return a.count("delivery where visible_at < clock_timestamp()") == 20 })

	execSQL(t, s1, "begin")
	require.Equal(t, 12, value[int](t, s1, "select (workq.sweep(12 + 0 * setval('workq.sweep_due', 1)::int)).exhausted"))
	require.Equal(t, 5, value[int](t, s2, "select (workq.sweep(5 + 0 * setval('workq.sweep_due', 1)::int)).exhausted"), "those that the first left")
	require.Empty(t, a.receive(a.pool, 10, "1 minute"), "a receive takes the rest, and waits for nobody")
	require.Equal(t, 8, a.count("dead_letter"))
	a.end(s1, true)
	require.Equal(t, 20, a.count("dead_letter"))
	require.Equal(t, 20, a.count("attempt where outcome = 'dead' and reason = 'attempts_exhausted'"))
	require.Zero(t, a.count("delivery"))
}

func TestRacePurgeAgainstReceiveAndEnqueue(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	s1, s2 := a.session(), a.session()

	for _, commit := range []bool{true, false} {
		// An open receive: purge waits for it, and ends the message either way.
		a.enqueue(a.pool, 2, 5)
		execSQL(t, s1, "begin")
		c := a.one(s1, "1 minute")
		done := a.startBlocked(s2, purgeVerb, c)
		a.end(s1, commit)
		require.Equal(t, "2", a.answered(done))
		require.Equal(t, "gone", a.do(s1, ackVerb, c))
		require.Empty(t, a.receive(a.pool, 10, "1 minute"))

		// An open purge: receive passes by, and finds what was not purged after all.
		a.enqueue(a.pool, 2, 5)
		execSQL(t, s1, "begin")
		require.Equal(t, "2", a.do(s1, purgeVerb, c))
		require.Empty(t, a.receive(s2, 10, "1 minute"))
		a.end(s1, commit)
		if commit {
			require.Empty(t, a.receive(s2, 10, "1 minute"))
		} else {
			require.Len(t, a.receive(s2, 10, "1 minute"), 2)
			require.Equal(t, "2", a.do(s2, purgeVerb, c))
		}

		// An open enqueue: purge does not wait, and what is committed later stays.
		execSQL(t, s1, "begin")
		ids := a.enqueue(s1, 3, 5)
		require.Equal(t, "0", a.do(s2, purgeVerb, c))
		a.end(s1, commit)
		if commit {
			got := a.receive(a.pool, 10, "1 minute")
			require.Len(t, got, 3)
			require.Equal(t, ids[0], got[0].ID)
			require.Equal(t, "3", a.do(s2, purgeVerb, c))
		} else {
			require.Empty(t, a.receive(a.pool, 10, "1 minute"))
		}
	}
	// What was leased when it was purged is in the history.
	require.Equal(t, 6, a.count("attempt where outcome = 'purged'"))
}

// Exhausted messages ahead of a ready one neither hide it nor are buried twice.
func TestRaceAPageOfExhaustedMessagesAheadOfAReadyOne(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 1")
	const exhausted = 5000
	a.enqueue(a.pool, exhausted, 5)
	for range exhausted / 1000 {
		require.Len(t, a.receive(a.pool, 1000, "1 ms"), 1000)
	}
	ready := a.enqueue(a.pool, 1, 5)[0]
	waitFor(t, "the leases to run out", func() bool {
		return a.count("delivery where visible_at < clock_timestamp()") == exhausted+1
	})
	for calls := 1; ; calls++ {
		require.LessOrEqual(t, calls, exhausted/1000+2, "a few calls, not one for each")
		cs := a.receive(a.pool, 1, "1 minute")
		require.LessOrEqual(t, a.count("dead_letter"), 1100*calls, "a call is bounded")
		if len(cs) > 0 {
			require.Equal(t, ready, cs[0].ID)
			break
		}
		require.True(t, value[bool](t, a.pool, "select next_due <= clock_timestamp() from workq.idle('q')"), "idle says: at once")
	}
	require.Equal(t, exhausted, a.count("dead_letter"))
	require.Equal(t, exhausted, value[int](t, a.pool, "select count(distinct message_id) from workq.attempt where outcome = 'dead'"))
	require.Equal(t, exhausted, a.count("attempt where outcome = 'dead'"))
	require.Equal(t, 1, a.count("delivery"))
	require.True(t, value[bool](t, a.pool, "select next_due > clock_timestamp() + interval '10 seconds' from workq.idle('q')"), "nothing is left")
}
