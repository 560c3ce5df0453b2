package tests

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/pgworkq/workq/client/migrate"
)

func TestMigrateInstallsAndASecondRunDoesNothing(t *testing.T) {
	url := emptyDBURL(t)
	before, err := migrate.Status(t.Context(), url)
	require.NoError(t, err)
	require.Zero(t, before.Version)
	require.False(t, before.UpToDate())
	require.Len(t, before.Pending, int(before.Latest))
	conn := connect(t, url)
	require.False(t, value[bool](t, conn, "select to_regclass('public.workq_schema_version') is not null"), "status writes nothing")

	require.NoError(t, migrate.Up(t.Context(), url))
	after, err := migrate.Status(t.Context(), url)
	require.NoError(t, err)
	require.True(t, after.UpToDate())
	require.Empty(t, after.Pending)
	installed := catalog(t, conn)
	require.Contains(t, installed, "function workq.enqueue(")

	require.NoError(t, migrate.Up(t.Context(), url))
	require.Equal(t, installed, catalog(t, conn))
}

func TestTwentyInstallsAtOnceAllSucceed(t *testing.T) {
	url := emptyDBURL(t)
	var installs errgroup.Group
	for range 20 {
		installs.Go(func() error { return migrate.Up(t.Context(), url) })
	}
	require.NoError(t, installs.Wait())
	conn := connect(t, url)
	require.Equal(t, int64(1), value[int64](t, conn, "select count(*) from public.workq_schema_version"))
	status, err := migrate.Status(t.Context(), url)
	require.NoError(t, err)
	require.True(t, status.UpToDate())
}

func TestInstallsStepByStepAndAtOnceAreTheSame(t *testing.T) {
	url := emptyDBURL(t)
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	latest, err := migrate.Latest()
	require.NoError(t, err)
	var names []string
	for version := int32(1); version <= latest; version++ {
		result, err := migrate.Run(t.Context(), cfg, migrate.Options{
			To:     version,
			OnStep: func(_ int32, name string) { names = append(names, name) },
		})
		require.NoError(t, err)
		require.Equal(t, migrate.Result{From: version - 1, To: version}, result)
	}
	require.Len(t, names, int(latest))
	require.Equal(t, catalog(t, newDB(t)), catalog(t, connect(t, url)))

	result, err := migrate.Run(t.Context(), cfg, migrate.Options{To: 1})
	require.NoError(t, err, "an older target leaves the database as it is")
	require.Equal(t, latest, result.To)
	_, err = migrate.Run(t.Context(), cfg, migrate.Options{To: latest + 1})
	require.ErrorContains(t, err, "does not exist")
}

func TestADatabaseNewerThanTheBinaryIsRefused(t *testing.T) {
	url := newDBURL(t)
	conn := connect(t, url)
	execSQL(t, conn, "update public.workq_schema_version set version = version + 7")
	before := catalog(t, conn)

	err := migrate.Up(t.Context(), url)
	require.ErrorIs(t, err, migrate.ErrNewer)
	var newer *migrate.NewerError
	require.ErrorAs(t, err, &newer)
	require.Equal(t, newer.Binary+7, newer.Database)
	require.ErrorContains(t, err, "install a newer workq")
	require.Equal(t, before, catalog(t, conn))
	status, err := migrate.Status(t.Context(), url)
	require.NoError(t, err)
	require.True(t, status.Newer())
}

func TestATimeoutOfTheRoleDoesNotEndAMigrationThatWaits(t *testing.T) {
	url := emptyDBURL(t)
	name := value[string](t, connect(t, url), "select current_database()")
	super := connect(t, superuserURL(t, url))
	execSQL(t, super, "alter database "+pgx.Identifier{name}.Sanitize()+" set lock_timeout = '50ms'")
	execSQL(t, super, "alter database "+pgx.Identifier{name}.Sanitize()+" set statement_timeout = '2s'")
	holder := connect(t, url)
	execSQL(t, holder, "select pg_advisory_lock(9628173550095224)") // tern's lock
	done := inBackground(func() (bool, error) { return true, migrate.Up(t.Context(), url) })
	waitFor(t, "the migration to have waited longer than the lock_timeout", func() bool {
		return value[bool](t, super, `select exists (select from pg_stat_activity where datname = $1
			and application_name = 'workq migrate' and wait_event_type = 'Lock' and state_change < clock_timestamp() - interval '200 ms')`, name)
	})
	execSQL(t, holder, "select pg_advisory_unlock(9628173550095224)")
	_, err := result(t, done)
	require.NoError(t, err)
}

func TestARoleWithoutRightsIsToldWhichItNeeds(t *testing.T) {
	url := emptyDBURL(t)
	super := connect(t, superuserURL(t, url))
	name := value[string](t, super, "select current_database()")
	execSQL(t, super, "alter database "+pgx.Identifier{name}.Sanitize()+" owner to current_user")
	execSQL(t, super, "revoke all on schema public from public")
	execSQL(t, super, "grant usage on schema public to public")
	err := migrate.Up(t.Context(), url)
	require.Equal(t, "42501", sqlstate(err))
	require.ErrorContains(t, err, "grant them, or migrate as the owner")
}

func TestPrintedSQLInPsqlInstallsTheSame(t *testing.T) {
	script, err := migrate.SQL()
	require.NoError(t, err)
	url := emptyDBURL(t)
	out, err := psql(t, url, script)
	require.NoError(t, err, out)
	conn := connect(t, url)
	installed := catalog(t, conn)
	require.Equal(t, catalog(t, newDB(t)), installed)
	require.NoError(t, migrate.Up(t.Context(), url), "the library takes over from here")

	out, err = psql(t, url, script)
	require.Error(t, err, "a second run is refused")
	require.Contains(t, out, "this migration needs version 0")
	require.Equal(t, installed, catalog(t, conn))

	out, err = psqlKeepGoing(t, url, script)
	require.NoError(t, err, out)
	require.Contains(t, out, "this migration needs version 0")
	require.Equal(t, installed, catalog(t, conn), "not even without ON_ERROR_STOP")
}

func TestPrintedSQLFromAVersionUpgrades(t *testing.T) {
	url := emptyDBURL(t)
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	_, err = migrate.Run(t.Context(), cfg, migrate.Options{To: 1})
	require.NoError(t, err)
	var script bytes.Buffer
	require.NoError(t, migrate.WriteSQL(&script, 1))

	fresh := emptyDBURL(t)
	out, err := psql(t, fresh, script.String())
	require.Error(t, err)
	require.Contains(t, out, "workq is not installed in this database")

	out, err = psql(t, url, script.String())
	require.NoError(t, err, out)
	require.Equal(t, catalog(t, newDB(t)), catalog(t, connect(t, url)))

	latest, err := migrate.Latest()
	require.NoError(t, err)
	script.Reset()
	require.NoError(t, migrate.WriteSQL(&script, latest))
	out, err = psql(t, url, script.String())
	require.NoError(t, err, out)
	require.ErrorContains(t, migrate.WriteSQL(&script, latest+1), "choose 0 to")
}

func TestPrintedSQLAndTheLibraryRaced(t *testing.T) {
	script, err := migrate.SQL()
	require.NoError(t, err)
	url := emptyDBURL(t)
	var installs errgroup.Group
	for range 5 {
		installs.Go(func() error { return migrate.Up(t.Context(), url) })
		installs.Go(func() error {
			_, _ = psql(t, url, script) // one may win, the others are refused
			return nil
		})
	}
	require.NoError(t, installs.Wait())
	require.Equal(t, catalog(t, newDB(t)), catalog(t, connect(t, url)))
}

// Two processes with different targets: the one with the smaller target chose its direction
// after the other was through.
func TestAMigrationThatWaitedDoesNotUndoANewerOne(t *testing.T) {
	url := emptyDBURL(t)
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	script, err := migrate.SQL()
	require.NoError(t, err)
	holder := connect(t, url)
	execSQL(t, holder, "select pg_advisory_lock(9628173550095224)") // tern's lock
	older := inBackground(func() (migrate.Result, error) {
		return migrate.Run(context.WithoutCancel(t.Context()), cfg, migrate.Options{To: 1})
	})
	watcher := connect(t, url)
	waitFor(t, "the older one to wait", func() bool {
		return value[bool](t, watcher, "select exists (select from pg_stat_activity where datname = current_database() and application_name = 'workq migrate' and wait_event_type = 'Lock')")
	})
	_, err = holder.PgConn().Exec(t.Context(), strings.ReplaceAll(script, `\set ON_ERROR_STOP on`, "")).ReadAll()
	require.NoError(t, err)
	execSQL(t, holder, "select pg_advisory_unlock(9628173550095224)")
	got, err := result(t, older)
	require.NoError(t, err)
	latest, err := migrate.Latest()
	require.NoError(t, err)
	require.Equal(t, latest, got.To)
	require.Equal(t, catalog(t, newDB(t)), catalog(t, watcher))
}

func TestMigrationsHaveLineEndsThatTernUnderstands(t *testing.T) {
	files, err := filepath.Glob("../sql/migrations/*.sql")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		body, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NotContains(t, string(body), "\r", file)
	}
}

// psql runs the script as a user would, and gives all that it said.
func psql(t *testing.T, url, script string) (string, error) {
	return runPsql(t, url, script)
}

// psqlKeepGoing runs it as somebody who took the ON_ERROR_STOP out.
func psqlKeepGoing(t *testing.T, url, script string) (string, error) {
	return runPsql(t, url, strings.ReplaceAll(script, `\set ON_ERROR_STOP on`, ""))
}

func runPsql(t *testing.T, url, script string) (string, error) {
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "psql", "-X", "-q", "-d", url)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
