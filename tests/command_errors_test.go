package tests

import (
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommandWrongUsage(t *testing.T) {
	t.Parallel()
	c, _ := newCommand(t)
	c.ok("queue", "create", "q")
	for _, test := range []struct {
		args string // with | between arguments
		says string
		try  string
	}{
		{"nonsense", `unknown command "nonsense" for "workq"`, "workq"},
		{"stat", `Did you mean this? stats`, "workq"},
		{"--nonsense", `unknown flag: --nonsense`, "workq"},
		{"queue", `say what to do: alter, create, drop, list, pause, purge, resume, show`, "workq queue"},
		{"queue|nonsense", `unknown command "nonsense" for "workq queue"`, "workq queue"},
		{"queue|shwo", `did you mean "show"?`, "workq queue"},
		{"queue|create", `QUEUE is missing`, "workq queue create"},
		{"queue|create|q|r", `too many arguments: "r"`, "workq queue create"},
		{"queue|create|q|--max-attempts|many", `invalid argument "many" for "--max-attempts"`, "workq queue create"},
		{"queue|create|q|--ttl|soon", `--ttl: invalid input syntax for type interval: "soon"`, "workq queue create"},
		{"queue|create|q|--retry-delays|1 s,soon", `--retry-delays: invalid input syntax for type interval: "soon"`, "workq queue create"},
		{"queue|create|q|--ttl", `flag needs an argument: --ttl`, "workq queue create"},
		{"enqueue", `QUEUE is missing`, "workq enqueue"},
		{"enqueue|q|hello", `the payload is not JSON`, "workq enqueue"},
		{"enqueue|q|1|2", `too many arguments: "2"`, "workq enqueue"},
		{"enqueue|q|1|--priority|99999999999", `--priority: value "99999999999" is out of range for type integer`, "workq enqueue"},
		{"enqueue|q|1|--run-at|never ever", `--run-at: invalid input syntax for type timestamp with time zone: "never ever"`, "workq enqueue"},
		{"enqueue|q|1|--header|x", `--header is "x": write name=value`, "workq enqueue"},
		{"enqueue|q|1|--delay|1 s|--run-at|now", `if any flags in the group [delay run-at] are set none of the others can be`, "workq enqueue"},
		{"enqueue|q|--lines|f|--body|g", `if any flags in the group [lines body] are set none of the others can be`, "workq enqueue"},
		{"enqueue|q|1|--lines|-", `--lines takes the place of the payload`, "workq enqueue"},
		{"enqueue|q|1|--atomic", `--batch and --atomic go with --lines`, "workq enqueue"},
		{"enqueue|q|--lines|-|--batch|0", `--batch is 0: 1 or more`, "workq enqueue"},
		{"enqueue|q|-|--body|-", `stdin is the payload or the body, not both`, "workq enqueue"},
		{"work", `QUEUE is missing`, "workq work"},
		{"work|q", `COMMAND is missing: workq work q -- COMMAND`, "workq work"},
		{"work|q|cat", `write -- between QUEUE and COMMAND: workq work q -- cat`, "workq work"},
		{"work|q|--concurrency|0|--|cat", `--concurrency is 0: 1 or more`, "workq work"},
		{"work|q|--|no-such-program", `exec: "no-such-program": executable file not found in $PATH`, "workq work"},
		{"work|q|--visibility|long|--|cat", `--visibility: invalid input syntax for type interval: "long"`, "workq work"},
		{"get|q", `ID is missing`, "workq get"},
		{"get|q|one", `ID: invalid input syntax for type bigint: "one"`, "workq get"},
		{"redrive|q|--ids|1,two", `--ids: invalid input syntax for type bigint: "two"`, "workq redrive"},
		{"migrate|--from|1", `--from goes with --print-sql`, "workq migrate"},
		{"migrate|--status|--print-sql", `[status print-sql]`, "workq migrate"},
		{"sweep|now", `too many arguments: "now"`, "workq sweep"},
	} {
		e := c.run(strings.Split(test.args, "|")...)
		require.Equal(t, 2, e.code, "%s\n%s", test.args, e.stderr)
		lines := strings.Split(strings.TrimSuffix(e.stderr, "\n"), "\n")
		require.Len(t, lines, 2, "%s\n%s", test.args, e.stderr)
		require.True(t, strings.HasPrefix(lines[0], "workq: "), lines[0])
		require.Contains(t, lines[0], test.says, test.args)
		require.Equal(t, "Try '"+test.try+" --help'", lines[1], test.args)
		require.Empty(t, e.stdout, test.args)
	}
}

func TestCommandTellsWhatPostgreSQLSays(t *testing.T) {
	t.Parallel()
	c, _ := newCommand(t)
	c.ok("queue", "create", "q", "--max-payload-bytes", "20")
	for _, test := range []struct{ args, says string }{
		{"enqueue|x|1", "workq: queue does not exist (queue is 'x')\nhint: create it with workq.create_queue(...), or see workq.queues() for those there are\n"},
		{"queue|create|Q", "workq: argument out of range (queue is 'Q')\nhint: 1 to 47 of a-z"},
		{"queue|create|q|--max-attempts|3", "workq: queue exists with other settings (queue is 'q', different: max_attempts)\nhint: workq.alter_queue"},
		{"queue|alter|q|--clear|visibility", "workq: argument out of range (clear is 'visibility')\nhint: max_attempts, ttl"},
		{"enqueue|q|1|--priority|11", "workq: argument out of range (priority is '11')\nhint: 0 (first) to 10 (last)\n"},
		{"enqueue|q|\"long enough to be too long\"", "workq: payload is over the limit of the queue (queue is 'q'"},
		{"get|q|1", "workq: message not found (queue is 'q', id is 1)\nhint: "},
		{"peek|q|--state|odd", "workq: argument out of range (state is 'odd')\nhint: ready, leased"},
		{"work|x|--|cat", "workq: queue does not exist (queue is 'x')\nhint: "},
		{"stats|x", "workq: queue does not exist (queue is 'x')\nhint: "},
	} {
		e := c.run(strings.Split(test.args, "|")...)
		require.Equal(t, 1, e.code, "%s\n%s", test.args, e.stderr)
		require.Contains(t, e.stderr, test.says, test.args)
		require.Empty(t, e.stdout, test.args)
	}
}

func TestCommandWithoutWorkqSaysHowToInstallIt(t *testing.T) {
	t.Parallel()
	c := commandAt(t, emptyDBURL(t))
	for _, args := range [][]string{{"stats"}, {"enqueue", "q", "1"}, {"work", "q", "--", "cat"}, {"queue", "create", "q"}} {
		e := c.run(args...)
		require.Equal(t, 1, e.code)
		require.Contains(t, e.stderr, "run workq migrate\n", args)
	}
}

func TestCommandWithoutAConnection(t *testing.T) {
	t.Parallel()
	c := commandAt(t, "postgres://somebody:secret@127.0.0.1:1/somewhere")
	for _, args := range [][]string{{"stats"}, {"migrate"}, {"migrate", "--status"}, {"work", "q", "--", "cat"}} {
		e := c.run(args...)
		require.Equal(t, 1, e.code)
		require.Equal(t, "workq: cannot connect to PostgreSQL at 127.0.0.1:1 as user somebody, database somewhere: connection refused\n"+
			"hint: set DATABASE_URL or --database-url (or PGHOST, PGUSER and so on), or start a throwaway server with workq dev\n", e.stderr, args)
	}
	for url, says := range map[string]string{
		"postgres:///nowhere?host=/no/such/folder&user=me": "workq: cannot connect to PostgreSQL at /no/such/folder/.s.PGSQL.5432 as user me, database nowhere: no such file or directory\nhint: ",
		"host=x port=nonsense":                             "invalid port",
	} {
		e := c.run("stats", "--database-url", url)
		require.Equal(t, 1, e.code)
		require.Contains(t, e.stderr, says)
	}
}

func TestCommandDoesNotWaitForASilentServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	c := commandAt(t, "postgres://me@"+listener.Addr().String()+"/db?connect_timeout=1")
	e := c.run("stats")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "database db: no answer in time\nhint: ")
}

func TestCommandFindsTheDatabase(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('here')")
	url := strings.TrimPrefix(c.env[len(c.env)-1], "DATABASE_URL=")
	elsewhere := "postgres://nobody@127.0.0.1:1/none"
	require.Len(t, c.with("DATABASE_URL="+elsewhere).list("stats", "--database-url", url), 1, "the flag wins")

	cfg := connect(t, url).Config()
	pg := c.with("DATABASE_URL=", "PGHOST="+cfg.Host, "PGPORT="+value[string](t, db, "show port"), "PGUSER="+cfg.User,
		"PGPASSWORD="+cfg.Password, "PGDATABASE="+cfg.Database, "PGSSLMODE=prefer")
	require.Equal(t, "here", pg.list("stats")[0]["queue"])
	require.Equal(t, 0.0, pg.object("migrate")["to"].(float64)-pg.object("migrate")["from"].(float64))
}
