package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandEnqueuesOneMessage(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	receipt := c.object("enqueue", "q", `{"to": "ada"}`, "--kind", "k", "--priority", "0", "--delay", "1h", "--header", "a=b=c", "--header", "d=",
		"--ttl", "2 days", "--max-attempts", "3")
	require.Equal(t, false, receipt["duplicate"])
	m := c.object("get", "q", fmt.Sprint(receipt["id"]))
	require.Equal(t, map[string]any{"to": "ada"}, m["payload"])
	require.Equal(t, map[string]any{"a": "b=c", "d": ""}, m["headers"])
	require.Equal(t, "delayed", m["state"])
	require.Equal(t, "k", m["kind"])
	require.Equal(t, 0.0, m["priority"])
	require.Equal(t, 3.0, m["max_attempts"])
	require.Equal(t, "2 days", value[string](t, db, "select (expires_at - visible_at)::text from workq.get('q', $1)", int64(receipt["id"].(float64))))

	at := c.object("enqueue", "q", "--run-at", "2090-01-31 12:00+00")
	require.Equal(t, "2090-01-31T12:00:00+00:00", at["visible_at"])
	require.Nil(t, c.object("get", "q", fmt.Sprint(at["id"]))["payload"], "neither payload nor body is fine")

	stdin := c.stdin("\n[1,\n 2]\n").object("enqueue", "q", "-")
	require.Equal(t, []any{1.0, 2.0}, c.object("get", "q", fmt.Sprint(stdin["id"]))["payload"])

	file := writeFile(t, "body", "\x00\xff'")
	body := c.object("enqueue", "q", "null", "--body", file, "--content-type", "a/b")
	m = c.object("get", "q", fmt.Sprint(body["id"]))
	require.Equal(t, `\x00ff27`, m["body"])
	require.Equal(t, "a/b", m["content_type"])
	empty := c.object("enqueue", "q", "--body", "-")
	require.Equal(t, `\x`, c.object("get", "q", fmt.Sprint(empty["id"]))["body"])

	require.Regexp(t, `^id +\d+\nduplicate +false\nvisible_at +\d{4}-`, c.ok("enqueue", "q", "1"))
	e := c.stdin("{").run("enqueue", "q", "-")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "workq: stdin: not a JSON value: ")
	e = c.run("enqueue", "q", "--body", "/no/such/file")
	require.Equal(t, 1, e.code)
	require.Equal(t, "workq: open /no/such/file: no such file or directory\n", e.stderr)
}

// numbered are lines 1 to n, each with its number.
func numbered(n int) []string {
	lines := make([]string, n)
	for i := range lines {
		lines[i] = fmt.Sprintf(`{"n": %d}`, i+1)
	}
	return lines
}

func TestCommandEnqueuesTenThousandLines(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	// As other systems write them: a byte order mark, empty lines, CR LF, no line end at the end.
	file := writeFile(t, "lines.jsonl", "\ufeff"+strings.Join(numbered(10_000), "\r\n\r\n"))
	require.Equal(t, map[string]any{"enqueued": 10_000.0}, c.object("enqueue", "q", "--lines", file, "--batch", "999", "--kind", "k",
		"--priority", "3", "--header", "h=1", "--delay", "1 hour", "--ttl", "2h", "--max-attempts", "2"))
	require.Equal(t, int64(10_000), value[int64](t, db, `select count(distinct payload -> 'n') from workq.peek('q', 10000, 'delayed')
		where kind = 'k' and priority = 3 and headers = '{"h": "1"}' and max_attempts = 2 and expires_at = visible_at + interval '2 hours'
			and visible_at between enqueued_at + interval '59 minutes' and enqueued_at + interval '61 minutes'`))
	require.Equal(t, int64(11), value[int64](t, db, "select count(distinct enqueued_at) from workq.peek('q', 10000)"), "batches of 999")
}

func TestCommandTellsAtWhichLineItStopped(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, line, says string }{
		{"not JSON", `{"n": `, "not a JSON value: unexpected end of JSON input"},
		{"two values", `1 2`, "not a JSON value: invalid character '2' after top-level value"},
		{"not UTF-8", "\"\xff\"", "not UTF-8"},
		{"what jsonb refuses", `"\u0000"`, "unsupported Unicode escape sequence (\\u0000 cannot be converted to text.)"},
		{"over the limit", `"` + strings.Repeat("x", 200) + `"`, "payload is over the limit of the queue (queue is 'q', message 1 has "},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c, db := newCommand(t)
			execSQL(t, db, "select workq.create_queue('q', max_payload_bytes => 100)")
			lines := numbered(3000)
			lines[1499] = test.line
			file := writeFile(t, "lines.jsonl", strings.Join(lines, "\n")+"\n")

			e := c.run("enqueue", "q", "--lines", file, "--atomic", "--json")
			require.Equal(t, 1, e.code)
			require.Contains(t, e.stderr, "workq: "+file+":1500: "+test.says)
			require.Contains(t, e.stderr, "workq: nothing was enqueued\n")
			require.Equal(t, "{\"enqueued\":0}\n", e.stdout)
			require.Zero(t, value[int64](t, db, "select count(*) from workq.peek('q', 10000)"))

			e = c.run("enqueue", "q", "--lines", file, "--json")
			require.Equal(t, 1, e.code)
			require.Contains(t, e.stderr, "workq: "+file+":1500: "+test.says)
			require.Contains(t, e.stderr, "workq: 1499 lines were enqueued, go on at line 1500: tail -n +1500\n")
			require.Equal(t, "{\"enqueued\":1499}\n", e.stdout)
			require.Equal(t, int64(1499), value[int64](t, db, "select max((payload ->> 'n')::int)::bigint from workq.peek('q', 10000)"))
			require.Equal(t, int64(1499), value[int64](t, db, "select count(*) from workq.peek('q', 10000)"))
		})
	}
}

func TestCommandEnqueuesLinesAllOrNothing(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	require.Equal(t, map[string]any{"enqueued": 0.0}, c.object("enqueue", "q", "--lines", "-"))
	in := strings.Join(numbered(2500), "\n")
	require.Equal(t, map[string]any{"enqueued": 2500.0}, c.stdin(in).object("enqueue", "q", "--lines", "-", "--atomic"))
	require.Equal(t, int64(2500), value[int64](t, db, "select count(*) from workq.peek('q', 10000)"))
	e := c.stdin("1").run("enqueue", "x", "--lines", "-")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "queue does not exist (queue is 'x')")
}

// What was committed before the interrupt is in, and the user is told how much that was.
func TestCommandEnqueueingLinesCanBeInterrupted(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	in, out, err := os.Pipe()
	require.NoError(t, err)
	defer out.Close()
	p := c.startOn(in, "enqueue", "q", "--lines", "-", "--batch", "10", "--json")
	_, err = out.WriteString(strings.Join(numbered(13), "\n") + "\n")
	require.NoError(t, err)
	waitFor(t, "the first batch", func() bool { return value[int64](t, db, "select count(*) from workq.peek('q', 100)") == 10 })
	p.signal(os.Interrupt) // it waits for more
	require.Equal(t, 130, p.wait(), p.stderr.String())
	require.Equal(t, `{"enqueued":10}`, p.line())
	require.Equal(t, "workq: interrupted\nworkq: 10 lines were enqueued, go on at line 11: tail -n +11\n", p.stderr.String())
	require.Equal(t, int64(10), value[int64](t, db, "select count(*) from workq.peek('q', 100)"))
}
