package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// The floor below which receive does not look is a hint: nothing may be lost or stuck by it. Each
// check here returns what it found wrong, so that it can be shown to find what is planted.
type floorCheck struct {
	name     string
	settings string
	check    func(a *arena) error
	// Bugs that it must find: edits of functions, each of one that there must be.
	bugs []plantedBug
}

type plantedBug struct {
	name     string
	function string
	cut, put string // in its definition: a regular expression that matches once, and its replacement
}

var (
	lookFromFloor = plantedBug{
		"a look begins at the floor", "workq.receive",
		`when found then timestamptz '-infinity'`, "when false then timestamptz '-infinity'",
	}
	staleLook = plantedBug{
		"a look that is due in an hour is waited for", "workq._due",
		`\b30000000\b`, "30000000000",
	}
	oneCounts = plantedBug{
		"only the most urgent priority counts", "workq._move_floor",
		`generate_series\(0, 10\)`, "generate_series(0, 0)",
	}
	raisedBlindly = plantedBug{
		"the floor is raised though somebody lowered it", "workq._move_floor",
		`v_floor >= floor_seen`, "true",
	}
	floorAhead = plantedBug{
		"a floor ahead of the clock counts", "workq._floor",
		`floor <= workq\._micros\(now\)`, "floor is not null",
	}
)

var floorChecks = []floorCheck{
	{"rolled-back receive", "", checkRolledBackReceive, []plantedBug{lookFromFloor}},
	{"late row of low priority", "", checkLateRowBehindFullBatches, []plantedBug{lookFromFloor, oneCounts}},
	{"late row of high priority", "", checkLateRowAheadOfBacklog, []plantedBug{lookFromFloor}},
	{"backlog of low priority", "", checkBacklogOfLowPriority, []plantedBug{oneCounts}},
	{"any order of things", "", checkAnyOrder, []plantedBug{lookFromFloor, oneCounts}},
	{"lowered while another walks", "", checkLoweredWhileAnotherWalks, []plantedBug{raisedBlindly}},
	{"clock stepped back by an hour", "", checkClockStep("1 hour"), []plantedBug{staleLook}},
	{"clock stepped ahead by an hour", "", checkClockStep("-1 hour"), nil},
	{"clock stepped back by 10 s", "", checkClockStep("10 seconds"), []plantedBug{floorAhead}},
	{"many sessions, late commits and rollbacks", "", checkManySessions, []plantedBug{lookFromFloor}},
}

func TestFloor(t *testing.T) {
	t.Parallel()
	for _, c := range floorChecks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, c.check(newArena(t, c.settings)))
		})
	}
}

func TestFloorCheckerCatches(t *testing.T) {
	t.Parallel()
	for _, c := range floorChecks {
		for _, bug := range c.bugs {
			t.Run(c.name+", "+bug.name, func(t *testing.T) {
				t.Parallel()
				a := newArena(t, c.settings)
				a.plant(bug)
				err := c.check(a)
				require.Error(t, err, "the check finds nothing wrong")
				require.ErrorIs(t, err, errStuck)
				t.Log(err)
			})
		}
	}
}

var errStuck = errors.New("messages are stuck below the floor")

func stuck(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errStuck, fmt.Sprintf(format, args...))
}

// plant changes a function in this database.
func (a *arena) plant(bug plantedBug) {
	a.t.Helper()
	def := value[string](a.t, a.pool, "select pg_get_functiondef($1::regproc)", bug.function)
	cut := regexp.MustCompile(bug.cut)
	require.Len(a.t, cut.FindAllString(def, -1), 1, "the bug cannot be planted in %s as it is now:\n%s", bug.function, def)
	execSQL(a.t, a.pool, cut.ReplaceAllString(def, bug.put))
}

// set sets a sequence of q that holds a time to so long from now.
func (a *arena) set(sequence, fromNow string) {
	a.t.Helper()
	execSQL(a.t, a.pool, fmt.Sprintf("select setval(q.%s, workq._micros(clock_timestamp() + '%s')) from workq.queue q where q.name = 'q'", sequence, fromNow))
}

// noLook sees to it that the next receive neither glances nor looks below the floor, and look that it looks.
func (a *arena) noLook() { a.t.Helper(); a.looks("25 seconds") }
func (a *arena) look()   { a.t.Helper(); a.looks("-1 second") }

func (a *arena) looks(fromNow string) {
	a.t.Helper()
	a.set("next_glance", fromNow)
	a.set("next_look", fromNow)
}

// late enqueues what a transaction leaves that commits five seconds after its enqueue, and gives the ids.
func (a *arena) late(n, priority int) []int64 {
	a.t.Helper()
	ids := a.enqueue(a.pool, n, priority)
	execSQL(a.t, a.pool, "update workq.delivery set visible_at = visible_at - interval '5 seconds' where message_id = any ($1)", ids)
	return ids
}

func idsOf(cs []claim) []int64 {
	ids := make([]int64, len(cs))
	for i, c := range cs {
		ids[i] = c.ID
	}
	return ids
}

// pollFor receives until all of the ids came, as a consumer does that looks again and again, and
// says what did not come in this time.
func (a *arena) pollFor(ids []int64, d time.Duration) error {
	missing := make(map[int64]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}
	for began := time.Now(); len(missing) > 0; {
		if time.Since(began) > d {
			return stuck("%d of %d did not come in %v", len(missing), len(ids), d)
		}
		cs := a.receive(a.pool, 1000, "10 minutes")
		for _, c := range cs {
			delete(missing, c.ID)
		}
		if len(cs) == 0 {
			time.Sleep(20 * time.Millisecond) // the poll interval
		}
	}
	return nil
}

// aLook is how long polling may take to find what is below the floor: a look a second, and the
// slowness of the machine. longestRest is the longest time between two looks, where they are slow:
// they walk past the rows that are not committed yet.
const (
	aLook       = 8 * time.Second
	longestRest = 30*time.Second + aLook
)

// checkRolledBackReceive rolls a claim back that raised the floor above its messages.
func checkRolledBackReceive(a *arena) error {
	s := a.session()
	ids := a.late(10, 5)
	a.look()
	execSQL(a.t, s, "begin")
	if n := len(a.receive(s, 10, "1 minute")); n != 10 {
		return stuck("a look found %d of 10", n)
	}
	require.Empty(a.t, a.receive(a.pool, 10, "1 minute"), "while it is open")
	a.set("floor", "-1 second") // where others who saw the claim as done would put it
	execSQL(a.t, s, "rollback")
	return a.pollFor(ids, aLook)
}

// A look whose batch is filled with urgent messages must not hide a late one of low priority.
func checkLateRowBehindFullBatches(a *arena) error {
	a.enqueue(a.pool, 10, 0)
	a.receive(a.pool, 1, "1 minute")
	a.set("floor", "-1 second")
	ids := a.late(3, 5)
	ids = append(ids, a.late(2, 10)...)
	a.look()
	if cs := a.receive(a.pool, 5, "1 minute"); len(cs) != 5 || slices.Contains(idsOf(cs), ids[0]) {
		return stuck("received %v, want five urgent ones", cs)
	}
	a.noLook()
	cs := a.receive(a.pool, 4, "1 minute") // the last urgent ones, as many as asked for
	if len(cs) != 4 || slices.Contains(idsOf(cs), ids[0]) {
		return stuck("received %v, want four urgent ones", cs)
	}
	if got := idsOf(a.receive(a.pool, 20, "1 minute")); !slices.Equal(got, ids) {
		return stuck("received %v, want %v", got, ids)
	}
	return nil
}

func checkLateRowAheadOfBacklog(a *arena) error {
	backlog := a.enqueue(a.pool, 50, 5)
	for range 3 {
		a.receive(a.pool, 5, "1 minute")
	}
	a.set("floor", "-1 second")
	ids := a.late(3, 0)
	a.look()
	got := idsOf(a.receive(a.pool, 2, "1 minute"))
	a.noLook()
	got = append(got, idsOf(a.receive(a.pool, 1, "1 minute"))...)
	if !slices.Equal(got, ids) {
		return stuck("received %v, want %v first", got, ids)
	}
	if n := len(a.receive(a.pool, 100, "1 minute")); n != len(backlog)-15 {
		return stuck("received %d of the backlog, want %d", n, len(backlog)-15)
	}
	return nil
}

// Urgent messages come and go, one at a time, above an old backlog of low priority; nobody looks.
func checkBacklogOfLowPriority(a *arena) error {
	backlog := a.late(30, 10)
	a.look()
	for i := range 10 {
		id := a.enqueue(a.pool, 1, i%2)[0]
		cs := a.receive(a.pool, 1, "1 minute")
		if len(cs) != 1 || cs[0].ID != id {
			return stuck("received %v, want the urgent %d", cs, id)
		}
		a.noLook()
	}
	if got := idsOf(a.receive(a.pool, 100, "1 minute")); !slices.Equal(got, backlog) {
		return stuck("received %d of a backlog of %d", len(got), len(backlog))
	}
	return nil
}

// Whatever happened: after one look of any session, receives that do not look find everything.
func checkAnyOrder(a *arena) error {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 24))
		waiting := map[int64]bool{}
		conn := a.session()
		for range 12 {
			for range 6 {
				priority := []int{0, 2, 5, 10}[rng.IntN(4)]
				switch rng.IntN(6) {
				case 0, 1:
					for _, id := range a.enqueue(a.pool, 1+rng.IntN(6), priority) {
						waiting[id] = true
					}
				case 2:
					for _, id := range a.late(1+rng.IntN(6), priority) {
						waiting[id] = true
					}
				case 3:
					execSQL(a.t, conn, "begin")
					a.receive(conn, 1+rng.IntN(8), "1 minute")
					execSQL(a.t, conn, "rollback")
				case 4:
					a.look()
				default:
					a.noLook()
				}
				for _, c := range a.receive(a.pool, 1+rng.IntN(5), "1 minute") {
					delete(waiting, c.ID)
				}
			}
			a.look()
			for wanted := 1 + rng.IntN(4); ; {
				cs := a.receive(a.pool, wanted, "1 minute")
				for _, c := range cs {
					delete(waiting, c.ID)
				}
				if len(cs) == 0 {
					break
				}
				a.noLook()
			}
			if len(waiting) > 0 {
				return stuck("seed %d: %d messages", seed, len(waiting))
			}
		}
	}
	return nil
}

// One session walks from a high floor and is held up before it can raise it; another looks, finds late
// rows and lowers it. The first must leave it there.
func checkLoweredWhileAnotherWalks(a *arena) error {
	slow, holder := a.session(), a.session()
	a.enqueue(a.pool, 1, 5)
	a.lapsed(a.pool)
	a.set("floor", "-1500 milliseconds")
	a.noLook()
	a.set("next_glance", "-1 second")            // after a glance it moves the floor
	execSQL(a.t, a.pool, "select pg_sleep(0.1)") // so that the floor is worth raising
	// It stops at the history of the lease that ran out.
	execSQL(a.t, holder, "begin")
	execSQL(a.t, holder, "lock table workq.attempt in exclusive mode")
	done := inBackground(func() ([]claim, error) { return tryReceive(a.t.Context(), slow, 10, "1 minute") })
	waitUntilBlocked(a.t, a.pool, pidOf(slow))

	ids := a.late(3, 5)
	a.look()
	got := idsOf(a.receive(a.pool, 1, "1 minute"))
	a.noLook()
	execSQL(a.t, holder, "commit")
	_, err := result(a.t, done)
	require.NoError(a.t, err)
	got = append(got, idsOf(a.receive(a.pool, 10, "1 minute"))...)
	if !slices.Equal(got, ids) {
		return stuck("received %v, want %v", got, ids)
	}
	return nil
}

// checkClockStep checks a queue whose sequences were left by a clock that was ahead by so much.
func checkClockStep(ahead string) func(a *arena) error {
	return func(a *arena) error {
		for _, sequence := range []string{"sleepers", "quiet", "next_due_look", "next_glance"} {
			a.set(sequence, ahead)
		}
		execSQL(a.t, a.pool, "select setval('workq.sweep_due', workq._micros(clock_timestamp() + $1::text::interval))", ahead)
		a.set("next_look", ahead)
		if ahead == "10 seconds" {
			a.set("next_look", "11 seconds")
		}
		a.set("floor", ahead)

		// What is ready is received at once.
		ids := a.late(2, 5)
		if ahead == "-1 hour" {
			a.enqueue(a.pool, 1, 5)
			if n := len(a.receive(a.pool, 10, "1 minute")); n != 3 {
				return stuck("received %d, want 3", n)
			}
		} else {
			id := a.enqueue(a.pool, 1, 5)[0]
			got := idsOf(a.receive(a.pool, 10, "1 minute"))
			if !slices.Equal(got, append(ids, id)) {
				return stuck("received %v, want %v and %d", got, ids, id)
			}
		}
		if ahead == "10 seconds" {
			return nil // a look is only due when the clock has caught up
		}
		// Late rows are found by the looks, which go on.
		a.set("next_look", ahead)
		a.receive(a.pool, 1, "1 minute")
		a.set("floor", "-1 second")
		if err := a.pollFor(a.late(5, 5), aLook); err != nil {
			return err
		}
		// Sleepers sleep for a minute at most, and are told.
		s := a.session()
		execSQL(a.t, s, `listen "workq.q"`)
		if due := value[float64](a.t, s, "select extract(epoch from i.next_due - clock_timestamp())::float8 from workq.idle('q') i"); due > 60 {
			return fmt.Errorf("idle says %v s", due)
		}
		a.enqueue(a.pool, 1, 5)
		if !notified(a.t, s, patience) {
			return errors.New("a sleeper was not notified")
		}
		return nil
	}
}

// Senders that commit late or roll back, receivers that roll back, eight sessions at once. When they
// have ended, polling finds everything.
func checkManySessions(a *arena) error {
	ctx, cancel := context.WithTimeout(a.t.Context(), 4*time.Second)
	defer cancel()
	var (
		mu   sync.Mutex
		want = map[int64]bool{}
		errs = make(chan error, 16)
		wg   sync.WaitGroup
	)
	for n := range 4 {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		conn := a.session()
		wg.Go(func() {
			for ctx.Err() == nil {
				err := pgx.BeginFunc(a.t.Context(), conn, func(tx pgx.Tx) error {
					rows, err := tx.Query(a.t.Context(), `select r.id from workq.enqueue_many('q', array_fill('1'::jsonb, array[20]),
						priorities => array(select ($1 + i) % 11 from generate_series(1, 20) i)) r`, rng.IntN(11))
					if err != nil {
						return err
					}
					ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
					if err != nil {
						return err
					}
					time.Sleep(time.Duration(rng.IntN(2200)) * time.Millisecond) // the transaction's work
					if rng.IntN(5) == 0 {
						return errRollBack
					}
					mu.Lock()
					defer mu.Unlock()
					for _, id := range ids {
						want[id] = true
					}
					return nil
				})
				if err != nil && !errors.Is(err, errRollBack) {
					errs <- err
					return
				}
			}
		})
	}
	received := make(chan int64, 1<<16)
	for n := range 4 {
		rng := rand.New(rand.NewPCG(2, uint64(n)))
		conn := a.session()
		wg.Go(func() {
			for ctx.Err() == nil {
				var cs []claim
				err := pgx.BeginFunc(a.t.Context(), conn, func(tx pgx.Tx) (err error) {
					if cs, err = tryReceive(a.t.Context(), tx, 1+rng.IntN(5), "10 minutes"); err != nil || rng.IntN(40) > 0 {
						return err
					}
					time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
					cs = nil
					return errRollBack
				})
				if err != nil && !errors.Is(err, errRollBack) {
					errs <- err
					return
				}
				for _, c := range cs {
					received <- c.ID
				}
				time.Sleep(5 * time.Millisecond) // the poll interval
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		return err
	}
	close(received)
	twice := map[int64]bool{}
	for id := range received {
		if twice[id] || !want[id] {
			return fmt.Errorf("message %d was received twice, or was rolled back", id)
		}
		twice[id] = true
	}
	var left []int64
	for id := range want {
		if !twice[id] {
			left = append(left, id)
		}
	}
	a.t.Logf("%d enqueued, %d left to poll for", len(want), len(left))
	return a.pollFor(left, aLook)
}

var errRollBack = errors.New("roll back")

// 100,000 rows commit after the floor has risen far above them, under the eyes of consumers that keep
// receiving. They come within a second or two, and then keep coming.
func TestFloorLateCommitOf100kRows(t *testing.T) {
	t.Parallel()
	a := newArena(t, "history => 'none'")
	require.NoError(t, a.lateCommit(100_000, longestRest))
}

func TestFloorCheckerCatchesALateCommitThatNobodyFinds(t *testing.T) {
	t.Parallel()
	a := newArena(t, "history => 'none'")
	a.plant(lookFromFloor)
	a.plant(floorAhead) // else a receive that began before the last move of the floor takes it for none
	require.ErrorIs(t, a.lateCommit(2000, aLook), errStuck)
}

// lateCommit says what is wrong when no late row came for this long.
func (a *arena) lateCommit(n int, longest time.Duration) error {
	const consumers, batch = 3, 500
	late := a.session()
	execSQL(a.t, late, "begin")
	ids := a.enqueue(late, n/2, 5)
	ids = append(ids, a.enqueue(late, n-n/2, 5)...)
	lastVisible := value[int64](a.t, late, "select workq._micros(max(visible_at)) from workq.delivery")

	missing := make(map[int64]bool, n)
	for _, id := range ids {
		missing[id] = true
	}
	ctx, cancel := context.WithCancelCause(a.t.Context())
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	arrived := make(chan []int64)
	for range consumers {
		conn := a.session()
		wg.Go(func() {
			for ctx.Err() == nil {
				// What is in time, so that the floor rises.
				got, err := conn.Query(ctx, `with sent as materialized (select workq.enqueue('q', '1'))
					select a.id from (select count(*) from sent) s, lateral (select array_agg(r.id) as ids, array_agg(r.lease) as leases
						from workq.receive('q', $1 + 0 * s.count::int) r) r, workq.ack_many('q', r.ids, r.leases) a where r.ids is not null`, batch)
				if err == nil {
					var out []int64
					if out, err = pgx.CollectRows(got, pgx.RowTo[int64]); err == nil {
						select {
						case arrived <- out:
						case <-ctx.Done():
						}
					}
				}
				if err != nil && ctx.Err() == nil {
					cancel(err)
				}
			}
		})
	}
	var committed, last time.Time
	var longestGap time.Duration
	check := time.NewTicker(50 * time.Millisecond)
	defer check.Stop()
	for len(missing) > 0 {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case out := <-arrived:
			for _, id := range out {
				if !missing[id] {
					continue
				}
				if committed.IsZero() {
					return fmt.Errorf("message %d was received before its commit", id)
				}
				delete(missing, id)
				last = time.Now()
			}
		case <-check.C:
			if committed.IsZero() {
				floor := value[int64](a.t, a.pool, "select coalesce(pg_sequence_last_value(floor), 0) from workq.queue")
				if floor > lastVisible+3_000_000 { // farther than a glance reaches
					execSQL(a.t, late, "commit")
					committed = time.Now()
					last = committed
				}
			} else if gap := time.Since(last); gap > longest {
				return stuck("%d of %d did not come in %v", len(missing), n, gap)
			} else {
				longestGap = max(longestGap, gap)
			}
		}
	}
	a.t.Logf("%d late rows in %v, the longest gap %v", n, time.Since(committed).Round(time.Millisecond), longestGap.Round(time.Millisecond))
	return nil
}

// Should nobody ever get to look below the floor, because a look is longer than every
// statement_timeout, sweep lowers the floor.
func TestFloorSweepFindsWhatNobodyLooksFor(t *testing.T) {
	t.Parallel()
	a := newArena(t, "")
	a.receive(a.pool, 1, "1 minute")
	a.set("floor", "-1 second")
	ids := a.late(3, 5)
	a.noLook()
	require.Empty(t, a.receive(a.pool, 10, "1 minute"), "it is below the floor")
	// Far behind in other messages, and in bounded steps.
	a.enqueue(a.pool, 500, 6)
	var got []int64
	for range 10 {
		execSQL(t, a.pool, "select workq.sweep(20 + 0 * setval('workq.sweep_due', 1)::int)")
		a.noLook()
		if got = idsOf(a.receive(a.pool, 3, "1 minute")); slices.Equal(got, ids) {
			return
		}
	}
	require.Fail(t, "sweep did not lower the floor", "received %v, want %v", got, ids)
}

// What a call does after its look, with what it found, does not put the next look off.
func TestFloorBuryingIsNotLooking(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 1")
	a.enqueue(a.pool, 1000, 5)
	require.Len(t, a.receive(a.pool, 1000, "1 ms"), 1000)
	waitFor(t, "the leases to run out", func() bool {
		return a.count("delivery where visible_at < clock_timestamp()") == 1000
	})
	// Burying takes half a second here, as a slow trigger of the user's could make it.
	execSQL(t, a.pool, `create function public.slow() returns trigger language plpgsql as $$ begin perform pg_sleep(0.5); return null; end $$`)
	execSQL(t, a.pool, "create trigger slow after insert on workq.dead_letter for each statement execute function public.slow()")
	a.look()
	require.Empty(t, a.receive(a.pool, 1000, "1 minute"))
	require.Less(t, value[float64](t, a.pool, `select extract(epoch from workq._time(pg_sequence_last_value(next_look)) - clock_timestamp())::float8
		from workq.queue`), 2.5, "seconds until the next look")
}
