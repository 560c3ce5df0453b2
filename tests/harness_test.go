package tests

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx", for pgtestdb
	"github.com/peterldowns/pgtestdb"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client/migrate"
)

// patience is how long a condition may take to come true on a slow machine.
const patience = 30 * time.Second

// testRole owns the test databases. It is an ordinary role: workq must install without a superuser.
var testRole = pgtestdb.Role{
	Username:     "workq_test",
	Password:     "workq_test",
	Capabilities: "NOSUPERUSER NOCREATEDB NOCREATEROLE",
}

// migrator makes the template database. Its hash covers every embedded file.
type migrator struct{}

func (migrator) Hash() (string, error) { return migrate.Hash() }

func (migrator) Migrate(ctx context.Context, _ *sql.DB, conf pgtestdb.Config) error {
	return migrate.Up(ctx, conf.URL())
}

// newDB gives a pool on a fresh database with workq installed, as its ordinary owner. Both go
// when the test ends; the database of a failed test stays, and the log says where.
func newDB(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return newPool(t, newDBURL(t))
}

// newDBURL is the connection string of such a database.
func newDBURL(t *testing.T) string {
	t.Helper()
	return pgtestdb.Custom(t, testConfig(t), migrator{}).URL()
}

// emptyDBURL is the connection string of a fresh database without workq.
func emptyDBURL(t *testing.T) string {
	t.Helper()
	return pgtestdb.Custom(t, testConfig(t), pgtestdb.NoopMigrator{}).URL()
}

func testConfig(t *testing.T) pgtestdb.Config {
	t.Helper()
	cfg, err := pgx.ParseConfig(serverURL)
	require.NoError(t, err, "DATABASE_URL")
	options := url.Values{"sslmode": {"disable"}}
	if cfg.TLSConfig != nil {
		options.Set("sslmode", "require")
	}
	host := cfg.Host
	if strings.HasPrefix(host, "/") { // a Unix socket has no place in the host of a URL
		options.Set("host", host)
		host = ""
	}
	return pgtestdb.Config{
		DriverName:                "pgx",
		Host:                      host,
		Port:                      strconv.Itoa(int(cfg.Port)),
		User:                      url.QueryEscape(cfg.User),
		Password:                  url.QueryEscape(cfg.Password),
		Database:                  cfg.Database,
		Options:                   options.Encode(),
		TestRole:                  &testRole,
		ForceTerminateConnections: true,
	}
}

// superuserURL is the connection string of the superuser on the database that dbURL names.
func superuserURL(t *testing.T, dbURL string) string {
	t.Helper()
	cfg, err := pgx.ParseConfig(dbURL)
	require.NoError(t, err)
	conf := testConfig(t)
	conf.Database = cfg.Database
	return conf.URL()
}

// newPool gives a pool that is closed when the test ends.
func newPool(t *testing.T, dbURL string) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dbURL)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// connect gives a connection of its own, closed when the test ends.
func connect(t *testing.T, dbURL string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dbURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// execer is a pool, a connection or a transaction.
type execer interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// execSQL runs a statement that must succeed.
func execSQL(t *testing.T, db execer, sql string, args ...any) {
	t.Helper()
	_, err := db.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

// value gives the first column of the one row that the query must return.
func value[T any](t *testing.T, db execer, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, db.QueryRow(t.Context(), sql, args...).Scan(&v), sql)
	return v
}

// column gives the first column of all rows, never nil.
func column[T any](t *testing.T, db execer, sql string, args ...any) []T {
	t.Helper()
	rows, err := db.Query(t.Context(), sql, args...)
	require.NoError(t, err, sql)
	vs, err := pgx.CollectRows(rows, pgx.RowTo[T])
	require.NoError(t, err, sql)
	return vs
}

// inBackground runs f in a goroutine and gives a channel with its one result. A caller waits for
// it with result.
func inBackground[T any](f func() (T, error)) <-chan outcome[T] {
	done := make(chan outcome[T], 1)
	go func() {
		v, err := f()
		done <- outcome[T]{v, err}
	}()
	return done
}

type outcome[T any] struct {
	value T
	err   error
}

// result waits for what inBackground started.
func result[T any](t *testing.T, done <-chan outcome[T]) (T, error) {
	t.Helper()
	select {
	case o := <-done:
		return o.value, o.err
	case <-time.After(patience):
		var none T
		require.FailNow(t, "still running after "+patience.String())
		return none, nil
	}
}

// waitFor waits until the condition holds, and fails the test if it does not in good time.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			require.FailNow(t, fmt.Sprintf("waited %s for: %s", patience, what))
		}
		time.Sleep(5 * time.Millisecond) // between two looks
	}
}

// waitUntilBlocked waits until the backend waits for a lock that somebody else holds. The watcher is
// another session.
func waitUntilBlocked(t *testing.T, watcher execer, pid uint32) {
	t.Helper()
	waitFor(t, fmt.Sprintf("backend %d to wait for a lock", pid), func() bool {
		return value[bool](t, watcher, `select exists (select from pg_locks where pid = $1 and not granted)
			and cardinality(pg_blocking_pids($1)) > 0`, int32(pid))
	})
}

// pidOf is the connection's backend.
func pidOf(conn *pgx.Conn) uint32 { return conn.PgConn().PID() }

// sqlstate is the SQLSTATE in the error, "" when there is none.
func sqlstate(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}
