package tests

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

var oldSnapshots = []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable}

// A caller whose snapshot is older than what happened to the message gets 40001, never a wrong
// answer, and the right one when it tries again.
func TestRaceOldSnapshotAgainstEveryVerb(t *testing.T) {
	t.Parallel()
	for _, level := range oldSnapshots {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			s1, s2 := a.session(), a.session()
			for first, words := range settleWords {
				for second := range settleWords {
					what := first.name + " × " + second.name
					a.enqueue(a.pool, 1, 5)
					c := a.one(a.pool, "1 minute")
					execSQL(t, s2, "begin isolation level "+string(level))
					execSQL(t, s2, "select count(*) from workq.delivery")
					require.Equal(t, words.held, a.do(s1, first, c), what)
					got := a.do(s2, second, c)
					if got != "40001" {
						// Nothing to settle by the old snapshot either, or serializable in this order.
						require.Equal(t, settleWord(second, words.leaves), got, what)
					}
					a.end(s2, false)
					require.Equal(t, settleWord(second, words.leaves), a.do(s2, second, c), "%s, again", what)
					execSQL(t, a.pool, "select workq.purge_queue('q')")
				}
			}
		})
	}
}

func TestRaceOldSnapshotAgainstReceive(t *testing.T) {
	t.Parallel()
	for _, level := range oldSnapshots {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			s1, s2 := a.session(), a.session()
			ids := a.enqueue(a.pool, 2, 5)
			execSQL(t, s2, "begin isolation level "+string(level))
			execSQL(t, s2, "select count(*) from workq.delivery")
			c := a.one(s1, "1 minute")
			_, err := tryReceive(t.Context(), s2, 1, "1 minute")
			require.Equal(t, "40001", sqlstate(err), "its snapshot shows the message as ready")
			a.end(s2, false)
			execSQL(t, s2, "begin isolation level "+string(level))
			require.Equal(t, ids[1], a.one(s2, "1 minute").ID)
			a.end(s2, true)
			require.Equal(t, "acked", a.do(s1, ackVerb, c))
		})
	}
}

// Workers and senders of which all use one isolation level: only 40001, and everything is done once.
func TestRaceManyCallersWithOldSnapshots(t *testing.T) {
	t.Parallel()
	for _, level := range oldSnapshots {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			const callers, messages = 3, 60
			retry := func(conn *pgx.Conn, f func(tx pgx.Tx) error) error {
				for {
					err := pgx.BeginTxFunc(t.Context(), conn, pgx.TxOptions{IsoLevel: level}, f)
					if sqlstate(err) != "40001" {
						return err
					}
				}
			}
			var mu sync.Mutex
			acked := map[int64]int{}
			var wg sync.WaitGroup
			for range callers {
				conn := a.session()
				wg.Go(func() {
					for range messages / 2 {
						err := retry(conn, func(tx pgx.Tx) error {
							_, err := tx.Exec(t.Context(), "select workq.enqueue('q', '1'), workq.enqueue('q', '2')")
							return err
						})
						if err != nil {
							t.Errorf("enqueue: %v", err)
							return
						}
						var done []int64
						err = retry(conn, func(tx pgx.Tx) error {
							done = nil
							cs, err := tryReceive(t.Context(), tx, 5, "1 minute")
							if err != nil {
								return err
							}
							for _, c := range cs {
								word, err := try[string](t.Context(), tx, ackVerb.of(c))
								if err != nil {
									return err
								}
								if word != "acked" {
									return errors.New(word)
								}
								done = append(done, c.ID)
							}
							return nil
						})
						if err != nil {
							t.Errorf("receive and ack: %v", err)
							return
						}
						mu.Lock()
						for _, id := range done {
							acked[id]++
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			a.look()
			for _, c := range a.receive(a.pool, 1000, "1 minute") {
				require.Equal(t, 1, c.Attempt, "a rolled back receive left a trace")
				require.Equal(t, "acked", a.do(a.pool, ackVerb, c))
				acked[c.ID]++
			}
			require.Len(t, acked, callers*messages)
			for id, n := range acked {
				require.Equal(t, 1, n, "message %d", id)
			}
			require.Equal(t, callers*messages, a.count("attempt where outcome = 'acked'"))
		})
	}
}

// An enqueue with an old snapshot of a queue that is dropped and made again goes to neither unseen.
func TestRaceOldSnapshotEnqueueAgainstRecreatedQueue(t *testing.T) {
	t.Parallel()
	for _, level := range oldSnapshots {
		t.Run(fmt.Sprint(level), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, "")
			sender := a.session()
			execSQL(t, sender, "begin isolation level "+string(level))
			execSQL(t, sender, "select count(*) from workq.queue")
			execSQL(t, a.pool, "select workq.drop_queue('q')")
			execSQL(t, a.pool, "select workq.create_queue('q')")
			_, err := try[int64](t.Context(), sender, "select (workq.enqueue('q', '1')).id")
			require.Contains(t, []string{"40001", "WQ001"}, sqlstate(err))
			a.end(sender, false)
			require.Zero(t, a.count("delivery"))
			a.enqueue(sender, 1, 5)
			a.one(a.pool, "1 minute")
		})
	}
}
