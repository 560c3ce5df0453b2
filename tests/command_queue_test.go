package tests

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandCreatesAQueueWithEverySetting(t *testing.T) {
	t.Parallel()
	c, _ := newCommand(t)
	c.ok("queue", "create", "dead")
	q := c.object("queue", "create", "q",
		"--visibility", "5m", "--visibility-factor", "1.5", "--max-visibility", "1 hour", "--max-attempts", "7",
		"--retry-delays", "1s,1 min", "--retry-delays", "1h30m", "--retry-jitter", "0.25", "--ttl", "2d", "--retention", "3 days",
		"--dead-retention", "1w", "--dead-letter-queue", "dead", "--history", "failures", "--max-payload-bytes", "1000",
		"--max-depth", "5000000000", "--notify=false", "--paused")
	delete(q, "created_at")
	require.Equal(t, map[string]any{
		"queue": "q", "visibility": "00:05:00", "visibility_factor": 1.5, "max_visibility": "01:00:00", "max_attempts": 7.0,
		"retry_delays": []any{"00:00:01", "00:01:00", "01:30:00"}, "retry_jitter": 0.25, "ttl": "2 days", "retention": "3 days",
		"dead_retention": "7 days", "dead_letter_queue": "dead", "history": "failures", "max_payload_bytes": 1000.0,
		"max_depth": 5e9, "notify": false, "paused": true,
	}, q)

	q = c.object("queue", "alter", "q", "--max-attempts", "9", "--paused=false", "--clear", "ttl,max_depth", "--clear", "dead_letter_queue")
	require.Equal(t, 9.0, q["max_attempts"])
	require.Equal(t, false, q["paused"])
	require.Nil(t, q["ttl"])
	require.Nil(t, q["max_depth"])
	require.Nil(t, q["dead_letter_queue"])
	require.Equal(t, "00:05:00", q["visibility"], "what is not given stays")
}

func TestCommandManagesQueues(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	require.Equal(t, []map[string]any{}, c.list("queue", "list"))
	c.ok("queue", "create", "a")
	c.ok("queue", "create", "b")
	queues := c.list("queue", "list")
	require.Len(t, queues, 2)
	require.Equal(t, "a", queues[0]["queue"])
	require.Equal(t, "b", queues[1]["queue"])
	require.Regexp(t, `(?m)^queue +visibility +max_attempts`, c.ok("queue", "list"))
	require.Regexp(t, `(?m)^visibility +00:00:30$`, c.ok("queue", "show", "a"))

	require.Equal(t, true, c.object("queue", "pause", "a")["paused"])
	require.Equal(t, "queue   a\npaused  false\n", c.ok("queue", "resume", "a"))

	execSQL(t, db, "select workq.enqueue_many('a', array['1', '2', '3']::jsonb[])")
	e := c.run("queue", "purge", "a")
	require.Equal(t, 2, e.code)
	require.Contains(t, e.stderr, "--yes")
	require.Equal(t, map[string]any{"purged": 3.0}, c.object("queue", "purge", "a", "--yes"))

	execSQL(t, db, "select workq.enqueue('a')")
	e = c.run("queue", "drop", "a")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "workq: queue is not empty (queue is 'a')\nhint: ")
	e = c.run("queue", "drop", "a", "--force")
	require.Equal(t, 2, e.code, "nobody to ask")
	require.Equal(t, map[string]any{"dropped": "a"}, c.object("queue", "drop", "a", "--force", "--yes"))
	require.Equal(t, map[string]any{"dropped": "b"}, c.object("queue", "drop", "b"), "an empty queue is dropped without asking")
	require.Empty(t, c.list("queue", "list"))
}

func TestCommandCompletesQueueNames(t *testing.T) {
	t.Parallel()
	c, _ := newCommand(t)
	c.ok("queue", "create", "alpha")
	c.ok("queue", "create", "beta")
	for _, args := range [][]string{
		{"queue", "show", ""}, {"peek", ""}, {"stats", ""}, {"work", ""}, {"enqueue", ""}, {"redrive", "alpha", "--to-queue", ""},
	} {
		require.Contains(t, c.ok(append([]string{"__complete"}, args...)...), "alpha\nbeta\n:4\n", args)
	}
	require.Equal(t, ":4\n", c.ok("__complete", "get", "alpha", ""), "an id is not a queue")
	e := c.with("DATABASE_URL=postgres://nobody@127.0.0.1:1/none").run("__complete", "peek", "")
	require.Zero(t, e.code)
	require.Equal(t, ":4\n", e.stdout, "no database, no names and no noise")
	require.NotContains(t, e.stderr, "connect")
	require.Contains(t, c.ok("completion", "bash"), "__start_workq")
}
