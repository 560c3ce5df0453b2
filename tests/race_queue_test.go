package tests

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

const dropQueue = "select workq.drop_queue('q')::text"

// drop_queue waits for an open enqueue, and goes by what that left. Whoever enqueues after it, and
// waited for it, is told that there is no queue.
func TestRaceDropQueueAgainstOpenEnqueue(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		for _, commit := range []bool{true, false} {
			for _, force := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, commit %t, force %t", isolation, commit, force), func(t *testing.T) {
					t.Parallel()
					a := newArena(t, "")
					enqueuer, dropper, later := a.session(), a.session(), a.session()

					execSQL(t, later, "begin isolation level "+isolation)
					execSQL(t, later, "select count(*) from workq.queue") // its snapshot has the queue
					execSQL(t, enqueuer, "begin isolation level "+isolation)
					a.enqueue(enqueuer, 2, 5)
					drop := start[string](t, dropper, fmt.Sprintf("select workq.drop_queue('q', force => %t)::text", force))
					waitUntilBlocked(t, a.pool, pidOf(dropper))
					enqueue := start[int64](t, later, "select (workq.enqueue('q', '1')).id")
					waitUntilBlocked(t, a.pool, pidOf(later))
					a.end(enqueuer, commit)

					_, dropErr := result(t, drop)
					_, err := result(t, enqueue)
					if commit && !force {
						require.Equal(t, "WQ007", sqlstate(dropErr))
						require.NoError(t, err, "the queue is still there")
						a.end(later, true)
						require.Len(t, a.receive(a.pool, 10, "1 minute"), 3)
						return
					}
					require.NoError(t, dropErr)
					a.end(later, false)
					if isolation != "read committed" && sqlstate(err) == "40001" {
						_, err = try[int64](t.Context(), later, "select (workq.enqueue('q', '1')).id")
					}
					require.Equal(t, "WQ001", sqlstate(err))
					require.Zero(t, a.count("delivery"), "nothing is left behind")
				})
			}
		}
	}
}

// A dropper whose snapshot is older than the message must not drop it unseen.
func TestRaceDropQueueWithAnOldSnapshotLosesNothing(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"repeatable read", "serializable"} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, early snapshot %t", isolation, early), func(t *testing.T) {
				t.Parallel()
				a := newArena(t, "")
				enqueuer, dropper := a.session(), a.session()
				execSQL(t, dropper, "begin isolation level "+isolation)
				if early {
					execSQL(t, dropper, "select count(*) from workq.delivery")
				}
				execSQL(t, enqueuer, "begin")
				a.enqueue(enqueuer, 1, 5)
				drop := start[string](t, dropper, dropQueue)
				// It waits, or refuses at once: its snapshot is taken by then.
				waitFor(t, "drop_queue to wait or to refuse", func() bool {
					return len(drop) > 0 || value[bool](t, a.pool, "select cardinality(pg_blocking_pids($1)) > 0", int32(pidOf(dropper)))
				})
				a.end(enqueuer, true)
				_, err := result(t, drop)
				require.Contains(t, []string{"40001", "WQ007", "0A000"}, sqlstate(err))
				a.end(dropper, false)
				require.Len(t, a.receive(a.pool, 10, "1 minute"), 1)
			})
		}
	}
}

// A worker has a message in an open transaction while its queue is dropped. Whatever it does next
// in that transaction, neither deadlocks.
func TestRaceDropQueueAgainstOpenWork(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ first, second string }{
		"receive, ack":            {"", "select workq.ack('q', %[1]d, %[2]d)"},
		"receive, fail":           {"", "select workq.fail('q', %[1]d, %[2]d, retry_in => '0')"},
		"receive, release":        {"", "select workq.release('q', %[1]d, %[2]d)"},
		"receive, extend":         {"", "select workq.extend('q', %[1]d, %[2]d)::text"},
		"receive, enqueue":        {"", "select (workq.enqueue('q', '1')).id::text"},
		"receive, receive":        {"", "select count(*)::text from workq.receive('q', 10)"},
		"receive, idle":           {"", "select (workq.idle('q')).channel"},
		"ack, enqueue":            {"select workq.ack('q', %[1]d, %[2]d)", "select (workq.enqueue('q', '1')).id::text"},
		"extend, fail":            {"select workq.extend('q', %[1]d, %[2]d)::text", "select workq.fail('q', %[1]d, %[2]d, retry_in => '0')"},
		"cancel, enqueue":         {"select workq.cancel('q', %[1]d)", "select (workq.enqueue('q', '1')).id::text"},
		"report, release":         {"select workq.report('q', %[1]d, %[2]d, '1')", "select workq.release('q', %[1]d, %[2]d)"},
		"permanent fail, redrive": {"select workq.fail('q', %[1]d, %[2]d, permanent => true)", "select workq.redrive('q')::text"},
		"purge, enqueue":          {"select workq.purge_queue('q')::text", "select (workq.enqueue('q', '1')).id::text"},
		"sweep, enqueue":          {"select (workq.sweep()).exhausted::text", "select (workq.enqueue('q', '1')).id::text"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "max_attempts => 2")
			worker, dropper := a.session(), a.session()
			a.enqueue(a.pool, 1, 5)
			var c claim
			if tt.first == "" {
				execSQL(t, worker, "begin")
				c = a.one(worker, "1 minute") // as many as asked for
			} else {
				c = a.one(a.pool, "1 minute")
				if name == "sweep, enqueue" {
					execSQL(t, a.pool, "update workq.delivery set attempt = 2, visible_at = clock_timestamp()")
				}
				execSQL(t, worker, "begin")
				value[string](t, worker, fmt.Sprintf(tt.first+" -- %[1]d %[2]d", c.ID, c.Lease))
			}
			drop := start[string](t, dropper, "select workq.drop_queue('q', force => true)::text")
			waitUntilBlocked(t, a.pool, pidOf(dropper))
			_, err := try[string](t.Context(), worker, fmt.Sprintf(tt.second+" -- %[1]d %[2]d", c.ID, c.Lease))
			require.NotEqual(t, "40P01", sqlstate(err), "the worker is the victim of a deadlock")
			require.NoError(t, err)
			a.end(worker, true)
			_, err = result(t, drop)
			require.NotEqual(t, "40P01", sqlstate(err), "the dropper is the victim of a deadlock")
			require.NoError(t, err)
			require.Zero(t, a.count("delivery"))
			require.Zero(t, a.count("dead_letter"))
		})
	}
}

// A queue dropped and made again under its name is another queue.
func TestRaceDropQueueAgainstCreateQueue(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit %t", commit), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			dropper, creator := a.session(), a.session()
			a.enqueue(a.pool, 3, 5)
			old := a.one(a.pool, "1 minute")
			execSQL(t, dropper, "begin")
			execSQL(t, dropper, "select workq.drop_queue('q', force => true)")
			create := start[string](t, creator, "select (workq.create_queue('q')).queue")
			waitUntilBlocked(t, a.pool, pidOf(creator))
			a.end(dropper, commit)
			_, err := result(t, create)
			require.NoError(t, err)
			if commit {
				require.Empty(t, a.receive(a.pool, 10, "1 minute"))
				require.Equal(t, "gone", a.do(a.pool, ackVerb, old))
			} else {
				require.Len(t, a.receive(a.pool, 10, "1 minute"), 2)
				require.Equal(t, "acked", a.do(a.pool, ackVerb, old))
			}
			a.enqueue(a.pool, 1, 5)
			a.one(a.pool, "1 minute")
		})
	}
}

// kill makes n dead letters in the queue and gives their ids.
func (a *arena) kill(queue string, n int) []int64 {
	a.t.Helper()
	execSQL(a.t, a.pool, "select workq.enqueue_many($1, array(select to_jsonb(i) from generate_series(1, $2::int) i))", queue, n)
	rows, err := a.pool.Query(a.t.Context(), "select r.id, r.lease, r.attempt from workq.receive($1, $2) r", queue, n)
	require.NoError(a.t, err)
	var ids, leases []int64
	var attempt int
	var c claim
	for rows.Next() {
		require.NoError(a.t, rows.Scan(&c.ID, &c.Lease, &attempt))
		ids, leases = append(ids, c.ID), append(leases, c.Lease)
	}
	require.NoError(a.t, rows.Err())
	require.Len(a.t, ids, n)
	execSQL(a.t, a.pool, "select workq.fail_many($1, $2, $3, permanents => array_fill(true, array[$4::int]))", queue, ids, leases, n)
	return ids
}

// Two redrives share the work and wait for nobody.
func TestRaceRedriveAgainstRedrive(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit %t", commit), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			s1, s2 := a.session(), a.session()
			dead := a.kill("q", 10)
			execSQL(t, s1, "begin")
			require.Equal(t, 6, value[int](t, s1, "select workq.redrive('q', max_messages => 6)"))
			require.Equal(t, 4, value[int](t, s2, "select workq.redrive('q')"))
			require.Zero(t, value[int](t, s2, "select workq.redrive('q')"))
			a.end(s1, commit)
			if !commit {
				require.Equal(t, 6, value[int](t, s2, "select workq.redrive('q')"))
			}
			require.Zero(t, a.count("dead_letter"))
			cs := a.receive(a.pool, 100, "1 minute")
			var got []int64
			for _, c := range cs {
				got = append(got, c.ID)
				require.Equal(t, 1, c.Attempt)
				require.Equal(t, "acked", a.do(a.pool, ackVerb, c))
			}
			require.ElementsMatch(t, dead, got, "each once")
		})
	}
}

// A dead letter that redrive takes is not removed by retention, and one that retention removes is
// not redriven; neither waits for the other.
func TestRaceRedriveAgainstDeadRetention(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit %t", commit), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "dead_retention => '1 hour'")
			s1, s2 := a.session(), a.session()
			removed := "select (workq.sweep(1000 + 0 * setval('workq.sweep_due', 1)::int)).dead_removed"
			old := func() {
				a.kill("q", 8)
				execSQL(t, a.pool, "update workq.dead_letter set died_at = died_at - interval '2 hours'")
			}

			old()
			execSQL(t, s1, "begin")
			require.Equal(t, 5, value[int](t, s1, "select workq.redrive('q', max_messages => 5)"))
			require.Equal(t, 3, value[int](t, s2, removed))
			a.end(s1, commit)
			if commit {
				require.Len(t, a.receive(a.pool, 100, "1 minute"), 5)
				require.Zero(t, a.count("dead_letter"))
			} else {
				require.Empty(t, a.receive(a.pool, 100, "1 minute"))
				require.Equal(t, 5, a.count("dead_letter"))
			}

			execSQL(t, a.pool, "select workq.purge_queue('q')")
			execSQL(t, a.pool, removed)
			old()
			execSQL(t, s1, "begin")
			require.Equal(t, 8, value[int](t, s1, removed))
			require.Zero(t, value[int](t, s2, "select workq.redrive('q')"))
			a.end(s1, commit)
			want := 0
			if !commit {
				want = 8
			}
			require.Equal(t, want, value[int](t, s2, "select workq.redrive('q')"))
			require.Len(t, a.receive(a.pool, 100, "1 minute"), want)
		})
	}
}

// A message that is in two queues (as a topic will do) dies in one of them while a redrive of the
// other puts it into the same target: one of them moves, the other stays a dead letter where it is.
func TestRaceBuryAgainstRedriveIntoTheSameTarget(t *testing.T) {
	t.Parallel()
	for _, buryFirst := range []bool{true, false} {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("bury first %t, commit %t", buryFirst, commit), func(t *testing.T) {
				t.Parallel()
				a := newArena(t, "")
				a.create("target", "")
				a.create("other", "")
				execSQL(t, a.pool, "select workq.alter_queue('q', dead_letter_queue => 'target')")
				s1, s2 := a.session(), a.session()
				ids := a.kill("other", 3)
				execSQL(t, a.pool, `insert into workq.delivery (message_id, created_at, visible_at, queue_id, priority)
					select m.id, m.created_at, clock_timestamp(), (select id from workq.queue where name = 'q'), 5 from workq.message m`)
				cs := a.receive(a.pool, 10, "1 minute")
				require.Len(t, cs, 3)

				redrive := "select workq.redrive('other', 'target')::text"
				var bury string
				for i, c := range cs {
					if i > 0 {
						bury += " union all "
					}
					bury += fmt.Sprintf("select %d, %d", c.ID, c.Lease)
				}
				bury = fmt.Sprintf(`select string_agg(f.outcome, ' ') from (select array_agg(id) as ids, array_agg(lease) as leases
					from (%s) c (id, lease)) c, workq.fail_many('q', c.ids, c.leases, permanents => '{t,t,t}') f`, bury)
				first, second := bury, redrive
				if !buryFirst {
					first, second = redrive, bury
				}
				execSQL(t, s1, "begin")
				execSQL(t, s1, first)
				done := start[string](t, s2, second)
				waitUntilBlocked(t, a.pool, pidOf(s2))
				a.end(s1, commit)
				word, err := result(t, done)
				require.NoError(t, err)

				inTarget := a.count("delivery d join workq.queue q on q.id = d.queue_id where q.name = 'target' and d.message_id = any ($1)", ids)
				deadHere := a.count("dead_letter d join workq.queue q on q.id = d.queue_id where q.name = 'q'")
				deadThere := a.count("dead_letter d join workq.queue q on q.id = d.queue_id where q.name = 'other'")
				leased := a.count("delivery d join workq.queue q on q.id = d.queue_id where q.name = 'q'")
				require.Equal(t, 3, inTarget, "each is in the target once")
				switch {
				case buryFirst && commit:
					require.Equal(t, "0", word)
					require.Equal(t, []int{0, 3, 0}, []int{deadHere, deadThere, leased})
				case buryFirst:
					require.Equal(t, "3", word)
					require.Equal(t, []int{0, 0, 3}, []int{deadHere, deadThere, leased})
				case commit:
					require.Equal(t, "dead dead dead", word)
					require.Equal(t, []int{3, 0, 0}, []int{deadHere, deadThere, leased}, "they stay dead letters where they died")
				default:
					require.Equal(t, "dead dead dead", word)
					require.Equal(t, []int{0, 3, 0}, []int{deadHere, deadThere, leased})
				}
			})
		}
	}
}

// The dead letter queue goes away while a message dies: the dead letter stays where it died.
func TestRaceBuryAgainstDropOfTheTarget(t *testing.T) {
	t.Parallel()
	for _, commit := range []bool{true, false} {
		for _, buryFirst := range []bool{true, false} {
			t.Run(fmt.Sprintf("bury first %t, commit %t", buryFirst, commit), func(t *testing.T) {
				t.Parallel()
				a := newArena(t, "")
				a.create("target", "")
				execSQL(t, a.pool, "select workq.alter_queue('q', dead_letter_queue => 'target')")
				s1, s2 := a.session(), a.session()
				a.enqueue(a.pool, 1, 5)
				c := a.one(a.pool, "1 minute")
				drop := "select workq.drop_queue('target', force => true)::text"
				execSQL(t, s1, "begin")
				if buryFirst {
					require.Equal(t, "dead", a.do(s1, deadVerb, c))
					done := start[string](t, s2, drop)
					waitUntilBlocked(t, a.pool, pidOf(s2))
					a.end(s1, commit)
					_, err := result(t, done)
					require.NoError(t, err)
					if !commit {
						require.Equal(t, "dead", a.do(a.pool, deadVerb, c))
						require.Equal(t, 1, a.count("dead_letter"))
					} else {
						require.Zero(t, a.count("dead_letter"), "it had moved, and was thrown away with the target")
					}
				} else {
					execSQL(t, s1, drop)
					done := a.startBlocked(s2, deadVerb, c)
					a.end(s1, commit)
					require.Equal(t, "dead", a.answered(done))
					if commit {
						require.Equal(t, 1, a.count("dead_letter"))
					} else {
						require.Equal(t, 1, a.count("delivery d join workq.queue q on q.id = d.queue_id where q.name = 'target'"))
					}
				}
				require.Zero(t, a.count("delivery d where not exists (select from workq.queue q where q.id = d.queue_id)"), "orphans")
				require.Zero(t, a.count("dead_letter d where not exists (select from workq.queue q where q.id = d.queue_id)"), "orphans")
			})
		}
	}
}
