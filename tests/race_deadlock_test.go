package tests

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
)

// storm lets sessions settle the same claims in batches, each in an order of its own, while one
// receives, and one sweeps, purges and redrives. It ends after so many calls, or at the first error, which it
// returns. It also says what the calls answered.
func (a *arena) storm(seed uint64, calls int64) (words map[string]int, err error) {
	a.t.Helper()
	const batch = 40
	var (
		made   atomic.Int64
		mu     sync.Mutex
		claims []claim // what all sessions settle now
		wg     sync.WaitGroup
	)
	words = map[string]int{}
	ctx, cancel := context.WithCancelCause(a.t.Context())
	defer cancel(nil)
	share := func() (ids, leases []int64) {
		mu.Lock()
		defer mu.Unlock()
		for _, c := range claims {
			ids, leases = append(ids, c.ID), append(leases, c.Lease)
		}
		return ids, leases
	}
	run := func(conn *pgx.Conn, sql string, args ...any) []string {
		rows, err := conn.Query(ctx, sql, args...)
		if err == nil {
			var out []string
			if out, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
				made.Add(1)
				mu.Lock()
				for _, w := range out {
					words[w]++
				}
				mu.Unlock()
				return out
			}
		}
		if ctx.Err() == nil {
			cancel(err)
		}
		return nil
	}
	loop := func(n uint64, f func(conn *pgx.Conn, rng *rand.Rand)) {
		conn := a.session()
		rng := rand.New(rand.NewPCG(seed, n))
		wg.Go(func() {
			for ctx.Err() == nil && made.Load() < calls {
				f(conn, rng)
			}
		})
	}

	// One receives and says what there is to settle; it also refills.
	loop(0, func(conn *pgx.Conn, _ *rand.Rand) {
		run(conn, "select 'enqueued' from workq.enqueue_many('q', array_fill('1'::jsonb, array[10])) limit 1")
		cs, err := tryReceive(ctx, conn, batch, "1 minute")
		if err != nil {
			if ctx.Err() == nil {
				cancel(err)
			}
			return
		}
		made.Add(1)
		mu.Lock()
		claims = append(cs, claims...)
		claims = claims[:min(len(claims), batch)]
		mu.Unlock()
	})
	for n, sql := range []string{
		"select outcome from workq.extend_many('q', $1, $2)",
		"select outcome from workq.extend_many('q', $1, $2)",
		"select outcome from workq.ack_many('q', ($1::bigint[])[1:8], ($2::bigint[])[1:8])",
		"select outcome from workq.fail_many('q', $1, $2, retry_ins => array_fill('0'::interval, array[cardinality($1::bigint[])]))",
		"select outcome from workq.release_many('q', $1, $2)",
	} {
		loop(uint64(n)+1, func(conn *pgx.Conn, rng *rand.Rand) {
			ids, leases := share()
			if len(ids) == 0 {
				time.Sleep(time.Millisecond) // nothing to fight about yet
				return
			}
			if n%2 == 0 {
				slices.Reverse(ids)
				slices.Reverse(leases)
			} else {
				rng.Shuffle(len(ids), func(i, j int) {
					ids[i], ids[j] = ids[j], ids[i]
					leases[i], leases[j] = leases[j], leases[i]
				})
			}
			if n > 1 && rng.IntN(3) > 0 { // so that leases live for a while
				run(conn, "select outcome from workq.extend_many('q', $1, $2)", ids, leases)
				return
			}
			run(conn, sql, ids, leases)
		})
	}
	loop(9, func(conn *pgx.Conn, rng *rand.Rand) {
		switch rng.IntN(12) {
		case 0:
			if run(conn, "select 'purged' from workq.purge_queue('q')") != nil {
				mu.Lock()
				claims = nil
				mu.Unlock()
			}
		case 1:
			run(conn, "select 'redriven' from workq.redrive('q', max_messages => 20)")
		case 2, 3:
			run(conn, "select 'swept' from "+sweepNow)
		case 4:
			// Plans are made anew, for a table that is large, small or empty now.
			if _, err := conn.Exec(ctx, "analyze workq.delivery"); err != nil && ctx.Err() == nil {
				cancel(err)
			}
		default:
			run(conn, "select 'due' from workq.idle('q')")
		}
	})
	wg.Wait()
	err = context.Cause(ctx)
	if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) {
		err = fmt.Errorf("%w\n%s\n%s", err, pg.Detail, pg.Where) // who waited for whom, and where
	}
	return words, err
}

// Fault 15: batches in every order, with sweep, purge and redrive. Nobody is the victim of a deadlock.
func TestRaceDeadlockStorm(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 3")
	words, err := a.storm(1, 20_000)
	require.NoError(t, err)
	for _, w := range []string{"extended", "acked", "retry", "dead", "released", "stale", "gone", "swept", "purged", "redriven"} {
		require.NotZero(t, words[w], "the storm never met %q: %v", w, words)
	}
	t.Log(words)
}

// The storm is one: it fells an extend_many that locks in the order in which it is told.
func TestRaceDeadlockStormCatchesLocksOutOfOrder(t *testing.T) {
	t.Parallel()
	a := newArena(t, "max_attempts => 3")
	execSQL(t, a.pool, `create or replace function workq.extend_many(queue text, ids bigint[], leases bigint[], visibilities interval[] default null)
		returns setof workq.settled language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
		#variable_conflict use_column
		begin
			for n in 1 .. cardinality(ids) loop
				update workq.delivery d set visible_at = clock_timestamp() + interval '1 minute' where d.message_id = ids[n] and d.lease = leases[n];
			end loop;
			return query select 1, 1::bigint, 'extended'::text;
		end; $$`)
	_, err := a.storm(1, 20_000)
	require.Equal(t, "40P01", sqlstate(err))
}
