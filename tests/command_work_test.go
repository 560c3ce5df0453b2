package tests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandWorkSettlesByHowTheProgramEnds(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q', max_attempts => 1)")
	tests := map[string]struct{ script, outcome, reason, error, result string }{
		"done":                    {`true`, "acked", "", "", ""},
		"JSON":                    {`echo '{"b": 1, "a": [1.50, null]}'`, "acked", "", "", `{"a": [1.50, null], "b": 1}`},
		"text":                    {`echo one; echo two`, "acked", "", "", `"one\ntwo"`},
		"two JSON values":         {`echo 1 2`, "acked", "", "", `"1 2"`},
		"JSON that jsonb has not": {`printf '"\\u0000"'`, "acked", "", "", `"\"\\u0000\""`},
		"half a surrogate":        {`printf '"\\ud800"'`, "acked", "", "", `"` + "\uFFFD" + `"`},
		"NUL":                     {`printf 'a\0b'`, "acked", "", "", `"a` + "\uFFFD" + `b"`},
		"stderr is no failure":    {`echo oops >&2`, "acked", "", "", ""},
		"retry":                   {`echo first >&2; echo last >&2; exit 75`, "dead", "attempts_exhausted", "last", ""},
		"retry, silent":           {`exit 75`, "dead", "attempts_exhausted", "exit status 75", ""},
		"permanent":               {`echo bad >&2; echo data >&2; exit 65`, "dead", "permanent", "bad\ndata", ""},
		"failed":                  {`echo line 1 >&2; echo line 2 >&2; exit 1`, "dead", "attempts_exhausted", "line 1\nline 2", ""},
		"failed, silent":          {`exit 3`, "dead", "attempts_exhausted", "exit status 3", ""},
		"failed, verbose":         {`head -c 20000 /dev/zero | tr "\0" y >&2; printf "\nend\n" >&2; exit 1`, "dead", "attempts_exhausted", "… " + strings.Repeat("y", 8187) + "\nend", ""},
		"signal":                  {`echo why >&2; kill -9 $$`, "dead", "attempts_exhausted", "signal: killed: why", ""},
		"leaves a child":          {`sleep 4 & echo done`, "acked", "", "", `"done"`},
		"does not read":           {`exec <&-; echo 1`, "acked", "", "", "1"},
	}
	ids := map[string]int64{}
	for name, test := range tests {
		ids[name] = value[int64](t, db, "select id from workq.enqueue('q', to_jsonb(repeat('x', 200000)), headers => jsonb_build_object('script', $1::text))", test.script)
	}
	c.ok("work", "q", "--concurrency", "3", "--drain", "--", "sh", "-c", `eval "$WORKQ_HEADER_SCRIPT"`)
	for name, test := range tests {
		var outcome, reason, errorText, result string
		require.NoError(t, db.QueryRow(t.Context(), `select h.outcome, coalesce(h.reason, ''), coalesce(h.error, ''), coalesce(h.result::text, '')
			from workq.history('q', $1) h`, ids[name]).Scan(&outcome, &reason, &errorText, &result))
		require.Equal(t, test.outcome, outcome, name)
		require.Equal(t, test.reason, reason, name)
		require.True(t, test.error == errorText, "%s: %.100q", name, errorText)
		require.Equal(t, test.result, result, name)
	}
}

func TestCommandWorkCutsALargeResult(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	id := value[int64](t, db, "select id from workq.enqueue('q')")
	c.ok("work", "q", "--drain", "--", "sh", "-c", `head -c 3000000 /dev/zero | tr '\0' z`)
	result := c.object("get", "q", fmt.Sprint(id))["result"].(map[string]any)
	require.Equal(t, true, result["cut"])
	require.Equal(t, 3e6, result["bytes"])
	require.Equal(t, strings.Repeat("z", 16384), result["head"])
}

func TestCommandWorkRetries(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q', retry_delays => '{1 hour}')")
	id := value[int64](t, db, "select id from workq.enqueue('q')")
	c.ok("work", "q", "--drain", "--", "sh", "-c", "exit 75")
	require.Equal(t, "retrying", c.object("get", "q", fmt.Sprint(id))["state"])
	require.Equal(t, "retry", c.list("history", "q", fmt.Sprint(id))[0]["outcome"])
}

func TestCommandWorkTellsTheProgramAboutItsMessage(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	execSQL(t, db, `select workq.enqueue('q', '{"b": 1, "a": "it''s"}', kind => 'k 1', max_attempts => 3,
		headers => '{"Trace-Id": "a b\nc", "n": 1.5, "o": {"x": []}}')`)
	execSQL(t, db, "select workq.enqueue('q', '1', body => 'by\\000tes', content_type => 'a/b', priority => 9)")
	execSQL(t, db, "select workq.alter_queue('q', clear => '{max_attempts}')")
	dir := t.TempDir()
	c.with("WORKQ_HEADER_OLD=of another message", "WORKQ_KIND=of another message", "KEPT=1", "DIR="+dir).ok("work", "q", "--drain", "--", "sh", "-c",
		`cat > "$DIR/$WORKQ_ID.in"; env -0 > "$DIR/$WORKQ_ID.env"; echo $WORKQ_ID`)
	env := func(id int64) map[string]string {
		body, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(id)+".env"))
		require.NoError(t, err)
		got := map[string]string{}
		for _, kv := range strings.Split(strings.TrimSuffix(string(body), "\x00"), "\x00") {
			name, value, _ := strings.Cut(kv, "=")
			got[name] = value
		}
		require.Equal(t, "1", got["KEPT"])
		require.NotContains(t, got, "WORKQ_HEADER_OLD")
		require.Equal(t, fmt.Sprint(id), got["WORKQ_ID"])
		require.Equal(t, "q", got["WORKQ_QUEUE"])
		require.Equal(t, "1", got["WORKQ_ATTEMPT"])
		require.Equal(t, fmt.Sprint(value[int64](t, db, "select lease from workq.history('q', $1)", id)), got["WORKQ_LEASE"])
		return got
	}
	input := func(id int64) string {
		body, err := os.ReadFile(filepath.Join(dir, fmt.Sprint(id)+".in"))
		require.NoError(t, err)
		return string(body)
	}
	one := env(1)
	require.Equal(t, "3", one["WORKQ_MAX_ATTEMPTS"])
	require.Equal(t, "k 1", one["WORKQ_KIND"])
	require.Equal(t, "", one["WORKQ_CONTENT_TYPE"])
	require.Equal(t, "a b\nc", one["WORKQ_HEADER_TRACE_ID"])
	require.Equal(t, "1.5", one["WORKQ_HEADER_N"])
	require.Equal(t, `{"x": []}`, one["WORKQ_HEADER_O"])
	require.Equal(t, map[string]any{"Trace-Id": "a b\nc", "n": 1.5, "o": map[string]any{"x": []any{}}}, decode[map[string]any](t, one["WORKQ_HEADERS"]))
	require.Equal(t, map[string]any{"a": "it's", "b": 1.0}, decode[map[string]any](t, input(1)))

	two := env(2)
	require.Equal(t, "", two["WORKQ_MAX_ATTEMPTS"], "no limit")
	require.Equal(t, "", two["WORKQ_KIND"])
	require.Equal(t, "a/b", two["WORKQ_CONTENT_TYPE"])
	require.Equal(t, "", two["WORKQ_HEADERS"])
	require.Equal(t, "by\x00tes", input(2), "the body, not the payload")
}

// gate is a script that says its process id in a file and goes on when another file appears.
const gate = `echo $$ > "$DIR/pid.tmp"; mv "$DIR/pid.tmp" "$DIR/pid"; while [ ! -e "$DIR/go" ]; do sleep 0.02; done; `

func openGate(t *testing.T, dir string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o644))
}

func TestCommandWorkExtendsTheLeaseWhileTheProgramRuns(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	id := value[int64](t, db, "select id from workq.enqueue('q')")
	dir := t.TempDir()
	p := c.with("DIR="+dir).start("work", "q", "--visibility", "1 s", "--", "sh", "-c", gate+"echo late")
	waitForFile(t, dir+"/pid")
	waitFor(t, "the lease to last more than twice its length", func() bool {
		return value[bool](t, db, "select clock_timestamp() > received_at + interval '2.5 s' from workq.get('q', $1)", id)
	})
	require.Empty(t, column[int64](t, db, "select id from workq.receive('q')"), "it is out")
	require.Equal(t, int32(1), value[int32](t, db, "select attempt from workq.get('q', $1)", id))
	openGate(t, dir)
	waitFor(t, "the ack", func() bool { return value[string](t, db, "select state from workq.get('q', $1)", id) == "acked" })
	require.Equal(t, `"late"`, value[string](t, db, "select result::text from workq.get('q', $1)", id))
	p.stop()
}

func TestCommandWorkFinishesWhatRunsWhenItIsStopped(t *testing.T) {
	t.Parallel()
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		c, db := newCommand(t)
		execSQL(t, db, "select workq.create_queue('q')")
		ids := column[int64](t, db, "select id from workq.enqueue_many('q', array['1', '2']::jsonb[])")
		dir := t.TempDir()
		p := c.with("DIR="+dir).start("work", "q", "--", "sh", "-c", gate+"echo $WORKQ_ID")
		waitForFile(t, dir+"/pid")
		p.signal(signal)
		waitFor(t, "the worker to hear the signal", func() bool { return strings.Contains(p.stderr.String(), "workq: stopping") })
		openGate(t, dir)
		require.Zero(t, p.wait(), p.stderr.String())
		require.Equal(t, "acked", value[string](t, db, "select state from workq.get('q', $1)", ids[0]))
		require.Equal(t, "ready", value[string](t, db, "select state from workq.get('q', $1)", ids[1]), "nothing new was begun")
		require.Equal(t, int32(0), value[int32](t, db, "select attempt from workq.get('q', $1)", ids[1]))
	}
}

// stubborn ignores SIGTERM, as do its children.
const stubborn = `trap '' TERM; sleep 1000 & echo $! > "$DIR/child.tmp"; mv "$DIR/child.tmp" "$DIR/child"; `

func TestCommandWorkKillsAndReleasesAfterTheGracePeriod(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	id := value[int64](t, db, "select id from workq.enqueue('q')")
	dir := t.TempDir()
	p := c.with("DIR="+dir).start("work", "q", "--grace", "100 ms", "--", "sh", "-c", stubborn+gate)
	program, child := waitForFile(t, dir+"/pid"), waitForFile(t, dir+"/child")
	p.stop()
	waitUntilGone(t, program)
	waitUntilGone(t, child)
	require.Equal(t, "ready", value[string](t, db, "select state from workq.get('q', $1)", id))
	require.Equal(t, int32(0), value[int32](t, db, "select attempt from workq.get('q', $1)", id), "the attempt is given back")
	require.Equal(t, []string{"released"}, column[string](t, db, "select outcome from workq.history('q', $1)", id))
}

func TestCommandWorkKillsTheProgramWhenItsLeaseIsLost(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	id := value[int64](t, db, "select id from workq.enqueue('q')")
	dir := t.TempDir()
	p := c.with("DIR="+dir).start("work", "q", "--visibility", "1 s", "--", "sh", "-c", stubborn+gate)
	program, child := waitForFile(t, dir+"/pid"), waitForFile(t, dir+"/child")
	require.Equal(t, map[string]any{"outcome": "revoked"}, c.object("cancel", "q", fmt.Sprint(id)))
	waitUntilGone(t, program)
	waitUntilGone(t, child)
	p.stop()
	require.Equal(t, "cancelled", value[string](t, db, "select state from workq.get('q', $1)", id))
}

func TestCommandWorkKilledLeavesNoOrphansAndLosesNothing(t *testing.T) {
	t.Parallel()
	for name, signals := range map[string][]os.Signal{
		"killed":            {os.Kill},
		"interrupted twice": {os.Interrupt, os.Interrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, db := newCommand(t)
			execSQL(t, db, "select workq.create_queue('q')")
			id := value[int64](t, db, "select id from workq.enqueue('q')")
			dir := t.TempDir()
			p := c.with("DIR="+dir).start("work", "q", "--visibility", "1 s", "--", "sh", "-c", stubborn+gate)
			program, child := waitForFile(t, dir+"/pid"), waitForFile(t, dir+"/child")
			for i, signal := range signals {
				if i > 0 {
					waitFor(t, "the first signal to be heard", func() bool { return strings.Contains(p.stderr.String(), "workq: stopping") })
				}
				p.signal(signal)
			}
			require.Equal(t, -1, p.wait())
			waitUntilGone(t, program)
			waitUntilGone(t, child)
			waitFor(t, "the message to be received again", func() bool {
				return len(column[int64](t, db, "select id from workq.receive('q', visibility => '1 min')")) == 1
			})
			require.Equal(t, int32(2), value[int32](t, db, "select attempt from workq.get('q', $1)", id))
		})
	}
}

func TestCommandWorkDrains(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	execSQL(t, db, "select workq.enqueue('q', delay => '1 hour')")
	c.ok("work", "q", "--drain", "--", "cat")
	execSQL(t, db, "select workq.enqueue_many('q', array_fill('{}'::jsonb, array[200]))")
	c.ok("work", "q", "-c", "4", "--drain", "--", "cat")
	stats := c.list("stats", "q")[0]
	require.Equal(t, 0.0, stats["ready"])
	require.Equal(t, 0.0, stats["leased"])
	require.Equal(t, 1.0, stats["delayed"], "what waits for a time does not count")
	c.ok("queue", "pause", "q")
	execSQL(t, db, "select workq.enqueue('q')")
	c.ok("work", "q", "--drain", "--", "cat")
	require.Equal(t, 1.0, c.list("stats", "q")[0]["ready"], "a paused queue hands out nothing")
}

func TestCommandWorkRunsSoManyAtOnce(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	execSQL(t, db, "select workq.enqueue_many('q', array_fill('1'::jsonb, array[4]))")
	dir := t.TempDir()
	p := c.with("DIR="+dir).start("work", "q", "--concurrency", "3", "--", "sh", "-c",
		`touch "$DIR/$WORKQ_ID"; while [ ! -e "$DIR/go" ]; do sleep 0.02; done`)
	running := func() int {
		files, err := os.ReadDir(dir)
		require.NoError(t, err)
		return len(files)
	}
	waitFor(t, "three to run", func() bool { return running() == 3 })
	require.Equal(t, int64(1), value[int64](t, db, "select ready from workq.stats('q')"), "the fourth waits")
	openGate(t, dir)
	waitFor(t, "the fourth", func() bool { return running() == 5 })
	p.stop()
}
