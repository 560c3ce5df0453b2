package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandShowsMessages(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q', max_attempts => 1)")
	execSQL(t, db, "select workq.create_queue('other')")
	id := value[int64](t, db, `select id from workq.enqueue('q', '{"b": 1, "a": "x"}', kind => 'k', headers => '{"h": 1}')`)
	later := value[int64](t, db, "select id from workq.enqueue('q', body => 'abc', content_type => 'text/plain', delay => '1 hour')")

	messages := c.list("peek", "q")
	require.Len(t, messages, 2)
	require.Equal(t, float64(id), messages[0]["id"])
	require.Equal(t, "ready", messages[0]["state"])
	require.Equal(t, map[string]any{"a": "x", "b": 1.0}, messages[0]["payload"])
	require.Equal(t, `\x616263`, messages[1]["body"])
	require.Len(t, c.list("peek", "q", "-n", "1"), 1)
	require.Equal(t, float64(later), c.list("peek", "q", "--state", "delayed")[0]["id"])
	require.Equal(t, []map[string]any{}, c.list("peek", "other"))
	require.Regexp(t, fmt.Sprintf(`(?m)^%d +ready .* \{"a": "x", "b": 1\}$`, id), c.ok("peek", "q"))

	m := c.object("get", "q", fmt.Sprint(id))
	require.Equal(t, "k", m["kind"])
	require.Equal(t, map[string]any{"h": 1.0}, m["headers"])
	require.Regexp(t, `(?m)^body_bytes +3$`, c.ok("get", "q", fmt.Sprint(later)))

	require.Equal(t, map[string]any{"run_now": true}, c.object("run-now", "q", fmt.Sprint(later)))
	require.Equal(t, map[string]any{"run_now": false}, c.object("run-now", "q", fmt.Sprint(later)))
	require.Equal(t, map[string]any{"outcome": "cancelled"}, c.object("cancel", "q", fmt.Sprint(later)))
	require.Equal(t, "outcome  gone\n", c.ok("cancel", "q", fmt.Sprint(later)))

	execSQL(t, db, "select workq.fail('q', r.id, r.lease, 'first line'||chr(10)||chr(27)||'[31msecond') from workq.receive('q') r")
	dead := c.list("dead", "q", "--reason", "attempts_exhausted", "--kind", "k", "-n", "5")
	require.Len(t, dead, 1)
	require.Equal(t, "first line\n\x1b[31msecond", dead[0]["error"])
	require.Contains(t, c.ok("dead", "q"), "first line \uFFFD[31msecond", "one line, and nothing that steers the terminal")
	require.Empty(t, c.list("dead", "q", "--kind", "another"))
	history := c.list("history", "q", fmt.Sprint(id))
	require.Len(t, history, 1)
	require.Equal(t, "dead", history[0]["outcome"])

	require.Equal(t, map[string]any{"would_redrive": 1.0}, c.object("redrive", "q", "--dry-run"))
	require.Equal(t, map[string]any{"redriven": 0.0}, c.object("redrive", "q", "--ids", "1000001,1000002"))
	require.Equal(t, map[string]any{"redriven": 0.0}, c.object("redrive", "q", "--reason", "expired"))
	require.Equal(t, map[string]any{"redriven": 1.0}, c.object("redrive", "q", "--to-queue", "other", "--ids", fmt.Sprint(id), "-n", "3"))

	stats := c.list("stats")
	require.Len(t, stats, 2)
	require.Equal(t, "other", stats[0]["queue"])
	require.Equal(t, 1.0, stats[0]["ready"])
	require.Len(t, c.list("stats", "q"), 1)
	require.Regexp(t, `(?m)^other +1 +0`, c.ok("stats"))
}

func TestCommandStatsWatchesUntilInterrupted(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	p := c.start("stats", "q", "--json", "--watch=10ms")
	require.Equal(t, 0.0, decode[[]map[string]any](t, p.line())[0]["ready"])
	execSQL(t, db, "select workq.enqueue('q')")
	waitFor(t, "the new message to be counted", func() bool { return decode[[]map[string]any](t, p.line())[0]["ready"] == 1.0 })
	p.signal(os.Interrupt)
	require.Zero(t, p.wait(), p.stderr.String())
}

func TestCommandSweepsAndMaintains(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q', max_attempts => 1)")
	execSQL(t, db, "select workq.enqueue('q')")
	execSQL(t, db, "select workq.receive('q', visibility => '1 ms')")
	waitFor(t, "the lease to run out", func() bool {
		return c.object("sweep", "--max-rows", "10")["exhausted"] == 1.0
	})
	made := c.list("maintain")
	require.NotEmpty(t, made)
	require.Equal(t, "partition made", made[0]["action"])
	require.Equal(t, []map[string]any{}, c.list("maintain"), "the second time there is nothing to do")
}

func TestCommandTellsVersions(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	v := c.object("version")
	require.Equal(t, value[string](t, db, "select workq.version()"), v["functions"])
	require.Equal(t, v["latest"], v["schema"])
	require.NotEmpty(t, v["command"])
	require.NotEmpty(t, v["server"])

	e := c.with("DATABASE_URL=postgres://nobody@127.0.0.1:1/none").run("version", "--json")
	require.Zero(t, e.code, "a command without a database has a version, too")
	require.Contains(t, e.stderr, "cannot connect")
	require.Nil(t, decode[map[string]any](t, e.stdout)["schema"])
}

func TestCommandHelpHasExamples(t *testing.T) {
	t.Parallel()
	c := commandAt(t, "")
	help := c.ok("--help")
	for _, name := range strings.Fields("cancel dead dev enqueue get history maintain migrate peek redrive run-now stats sweep version work") {
		require.Contains(t, help, "  "+name+" ")
		require.Contains(t, c.ok(name, "--help"), "Examples:\n  workq "+name, name)
	}
	for _, name := range strings.Fields("create alter list show pause resume purge drop") {
		require.Contains(t, c.ok("queue", name, "--help"), "Examples:\n  workq queue "+name, name)
	}
}
