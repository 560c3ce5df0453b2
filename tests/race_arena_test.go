package tests

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
)

// arena is a fresh database with a queue q, for tests that play sessions against each other. The
// order of events is made by open transactions, and by waiting until the server says that a
// session waits for a lock.
type arena struct {
	t    *testing.T
	url  string
	pool *pgxpool.Pool // bystanders
}

// newArena makes the queue with these settings, in SQL: "max_attempts => 1".
func newArena(t *testing.T, settings string) *arena {
	t.Helper()
	url := newDBURL(t)
	a := &arena{t: t, url: url, pool: newPool(t, url)}
	a.create("q", settings)
	return a
}

func (a *arena) create(queue, settings string) {
	a.t.Helper()
	if settings != "" {
		settings = ", " + settings
	}
	execSQL(a.t, a.pool, fmt.Sprintf("select workq.create_queue('%s'%s)", queue, settings))
}

func (a *arena) session() *pgx.Conn {
	a.t.Helper()
	return connect(a.t, a.url)
}

// enqueue puts n messages of this priority into q and gives their ids.
func (a *arena) enqueue(db execer, n, priority int) []int64 {
	a.t.Helper()
	return column[int64](a.t, db, `select r.id from workq.enqueue_many('q',
		array(select to_jsonb(i) from generate_series(1, $1::int) i), priorities => array_fill($2::int, array[$1::int])) r`, n, priority)
}

// claim is a message that was received.
type claim struct {
	ID, Lease int64
	Attempt   int
}

const receiveClaims = "select r.id, r.lease, r.attempt from workq.receive('q', $1, $2::text::interval) r"

// receive receives up to n messages of q for so long.
func (a *arena) receive(db execer, n int, visibility string) []claim {
	a.t.Helper()
	cs, err := tryReceive(a.t.Context(), db, n, visibility)
	require.NoError(a.t, err)
	return cs
}

func tryReceive(ctx context.Context, db execer, n int, visibility string) ([]claim, error) {
	rows, err := db.Query(ctx, receiveClaims, n, visibility)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[claim])
}

// one receives the one message that must be there.
func (a *arena) one(db execer, visibility string) claim {
	a.t.Helper()
	cs := a.receive(db, 1, visibility)
	require.Len(a.t, cs, 1)
	return cs[0]
}

// lapsed receives a message and waits until its lease has run out.
func (a *arena) lapsed(db execer) claim {
	a.t.Helper()
	c := a.one(db, "1 ms")
	waitFor(a.t, "a lease of 1 ms to run out", func() bool {
		return value[bool](a.t, a.pool, "select d.visible_at < clock_timestamp() from workq.delivery d where d.message_id = $1", c.ID)
	})
	return c
}

// count is how many rows of the table hold for the condition.
func (a *arena) count(from string, args ...any) int {
	a.t.Helper()
	return value[int](a.t, a.pool, "select count(*) from workq."+from, args...)
}

// verb is something that settles or ends a claim.
type verb struct {
	name string
	sql  string // with %[1]d for the id, %[2]d for the lease; gives one text
}

var (
	ackVerb     = verb{"ack", "select workq.ack('q', %[1]d, %[2]d)"}
	strictVerb  = verb{"strict ack", "select workq.ack('q', %[1]d, %[2]d, strict => true)"}
	failVerb    = verb{"fail", "select workq.fail('q', %[1]d, %[2]d, retry_in => '1 hour')"}
	deadVerb    = verb{"permanent fail", "select workq.fail('q', %[1]d, %[2]d, permanent => true)"}
	extendVerb  = verb{"extend", "select case when workq.extend('q', %[1]d, %[2]d, '10 minutes') is null then 'lost' else 'extended' end"}
	releaseVerb = verb{"release", "select workq.release('q', %[1]d, %[2]d, '1 hour')"}
	reportVerb  = verb{"report", "select workq.report('q', %[1]d, %[2]d, '{}')"}
	cancelVerb  = verb{"cancel", "select workq.cancel('q', %[1]d)"}
	purgeVerb   = verb{"purge", "select workq.purge_queue('q')::text"}
	sweepVerb   = verb{"sweep", "select (" + sweepNow + ").exhausted::text"}
)

// sweepNow sweeps even though a long sweep before says to rest.
const sweepNow = "workq.sweep(1000 + 0 * setval('workq.sweep_due', 1)::int)"

func (v verb) of(c claim) string {
	if v == purgeVerb || v == sweepVerb {
		return v.sql
	}
	if v == cancelVerb {
		return fmt.Sprintf(v.sql, c.ID)
	}
	return fmt.Sprintf(v.sql, c.ID, c.Lease)
}

// do settles the claim. A SQLSTATE is an outcome too.
func (a *arena) do(db execer, v verb, c claim) string {
	a.t.Helper()
	return a.answer(try[string](a.t.Context(), db, v.of(c)))
}

// start begins to settle in the background.
func (a *arena) start(conn *pgx.Conn, v verb, c claim) <-chan outcome[string] {
	return start[string](a.t, conn, v.of(c))
}

// startBlocked begins to settle, and waits until that waits for somebody.
func (a *arena) startBlocked(conn *pgx.Conn, v verb, c claim) <-chan outcome[string] {
	a.t.Helper()
	done := a.start(conn, v, c)
	waitUntilBlocked(a.t, a.pool, pidOf(conn))
	return done
}

// answered waits for what start began.
func (a *arena) answered(done <-chan outcome[string]) string {
	a.t.Helper()
	return a.answer(result(a.t, done))
}

func (a *arena) answer(word string, err error) string {
	a.t.Helper()
	if code := sqlstate(err); code != "" {
		return code
	}
	require.NoError(a.t, err)
	return word
}

// try gives the one value of the query.
func try[T any](ctx context.Context, db execer, sql string, args ...any) (v T, err error) {
	err = db.QueryRow(ctx, sql, args...).Scan(&v)
	return v, err
}

// start runs a query for its one value in the background.
func start[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) <-chan outcome[T] {
	ctx := t.Context()
	return inBackground(func() (T, error) { return try[T](ctx, conn, sql, args...) })
}

// end commits or rolls back. The next receive looks for what that left below the floor: how soon one
// does by itself is what the tests of the floor are about.
func (a *arena) end(conn *pgx.Conn, commit bool) {
	a.t.Helper()
	if commit {
		execSQL(a.t, conn, "commit")
	} else {
		execSQL(a.t, conn, "rollback")
	}
	a.look()
}
