package tests

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client/migrate"
	"github.com/pgworkq/workq/cmd/workq/devpg"
)

// The README's lines, in the real pg_cron. It is packaged for PostgreSQL 15 only, so this runs on a
// server of its own, whatever the other tests run on. pg_cron 1.4 knows no schedule below a minute: the
// test waits for the next full one.
func TestPgCronSweepsAndMaintainsAsTheReadmeSays(t *testing.T) {
	t.Parallel()
	var lines string
	for _, block := range codeBlocks(readme(t), "sql") {
		if strings.Contains(block, "cron.schedule") {
			require.Empty(t, lines, "one block of them")
			lines = block
		}
	}
	require.Equal(t, 2, strings.Count(lines, "cron.schedule("))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server, err := devpg.Start(ctx, devpg.Options{Major: 15})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	admin, err := pgx.Connect(ctx, server.URL("postgres"))
	require.NoError(t, err)
	execSQL(t, admin, "create role owner login")
	execSQL(t, admin, "create database jobs owner owner")
	require.NoError(t, admin.Close(ctx))
	// pg_cron's own connections come as any client does: here over the socket, as the owner of the job.
	server.Set("shared_preload_libraries", "pg_cron")
	server.Set("cron.database_name", "jobs")
	server.Set("cron.host", server.Dir())
	require.NoError(t, server.Restart(ctx, devpg.Fast), "pg_cron is missing? run: make setup")
	super := connect(t, server.URL("jobs"))
	execSQL(t, super, "create extension pg_cron")
	execSQL(t, super, "grant usage on schema cron to owner")

	// All the rest is the work of an ordinary role that owns workq.
	url := strings.Replace(server.URL("jobs"), "user=postgres", "user=owner", 1)
	require.NoError(t, migrate.Up(ctx, url))
	db := connect(t, url)
	execSQL(t, db, "select workq.create_queue('q', max_attempts => 1)")
	execSQL(t, db, "select workq.enqueue('q', '1')")
	id := value[int64](t, db, "select id from workq.receive('q', visibility => '1 ms')")
	partitions := "select count(*) from pg_inherits where inhparent in ('workq.message'::regclass, 'workq.attempt'::regclass)"
	require.Equal(t, 2, value[int](t, db, partitions), "the two tails")
	waitFor(t, "the lease to run out", func() bool {
		return value[string](t, db, "select state from workq.get('q', $1)", id) == "ready"
	})

	out, err := psql(t, url, lines)
	require.NoError(t, err, out)
	require.Equal(t, []string{"workq-maintain", "workq-sweep"}, column[string](t, db, "select jobname::text from cron.job order by 1"))

	// At the next full minute.
	deadline := time.Now().Add(75 * time.Second)
	var ended []string
	for len(ended) < 2 {
		require.True(t, time.Now().Before(deadline), "after 75 s only these jobs have ended: %v\n%v", ended,
			column[string](t, db, "select d::text from cron.job_run_details d"))
		ended = column[string](t, db, `
			select distinct j.jobname || ' ' || d.status
			from cron.job_run_details d join cron.job j using (jobid)
			where d.end_time is not null
			order by 1`)
		time.Sleep(50 * time.Millisecond) // between two looks
	}
	require.Equal(t, []string{"workq-maintain succeeded", "workq-sweep succeeded"}, ended)
	require.Equal(t, []string{"attempts_exhausted"}, column[string](t, db, "select reason from workq.dead_letters('q')"))
	require.Equal(t, []string{"dead"}, column[string](t, db, "select outcome from workq.history('q', $1)", id))
	require.GreaterOrEqual(t, value[int](t, db, partitions), 4, "maintain made partitions ahead of the tails")
}
