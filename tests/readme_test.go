package tests

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client"
)

// readme is the text of README.md.
func readme(t *testing.T) string {
	t.Helper()
	body, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	return string(body)
}

// codeBlocks are those of the language, in order.
func codeBlocks(text, language string) []string {
	var blocks []string
	for _, m := range regexp.MustCompile("(?ms)^```"+language+"\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, m[1])
	}
	return blocks
}

// section is the text below the heading, up to the next one of its level.
func section(t *testing.T, text, heading string) string {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n## "+heading+"\n")
	require.True(t, found, heading)
	body, _, _ := strings.Cut(rest, "\n## ")
	return body
}

// tableRows are the cells of the first table in the text, without its head.
func tableRows(text string) [][]string {
	var rows [][]string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			if rows != nil {
				break
			}
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows[min(2, len(rows)):]
}

// promises are the values that the comments behind statements promise: `…;  -- stale: refused` is stale.
func promises(sql string) []string {
	var words []string
	for _, m := range regexp.MustCompile(`(?m);[ ]+-- (\w+)`).FindAllStringSubmatch(sql, -1) {
		if m[1] != "raises" && m[1] != "app" {
			words = append(words, m[1])
		}
	}
	return words
}

// psqlRows runs the script as a user would who follows the README, and gives the rows that it printed.
func psqlRows(t *testing.T, url, script string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url)
	cmd.Stdin = strings.NewReader(script)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "%s\n%s%s", script, out, stderr.String())
	require.Empty(t, stderr.String(), script)
	return strings.Split(strings.TrimRight(string(out), "\n"), "\n")
}

func TestReadmeSQLDoesWhatItSays(t *testing.T) {
	t.Parallel()
	text := readme(t)
	admin := connect(t, serverURL)
	role := fmt.Sprintf("workq_readme_%d", os.Getpid())
	t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "drop role if exists "+role) })
	url := newDBURL(t)
	execSQL(t, admin, "create role "+role+" login password 'workq_readme'")

	blocks := slices.DeleteFunc(codeBlocks(text, "sql"), func(b string) bool { return strings.Contains(b, "cron.schedule") })
	want := [][]string{
		{"emails|00:00:30|5", "1", "", "stale", "acked", "1|timeout|", `2|acked|{"sent": true}`},
		{""}, // the grants
		{"2", "acked", "100"},
		{"3", "dead", "permanent|no such address", "1"},
	}
	require.Len(t, blocks, len(want))
	for i, block := range blocks {
		got := psqlRows(t, url, strings.ReplaceAll(block, "to app;", "to "+role+";"))
		require.Equal(t, want[i], got, block)
		rest := got
		for _, word := range promises(block) {
			at := slices.Index(rest, word)
			require.GreaterOrEqual(t, at, 0, "the comment promises %q: %s", word, block)
			rest = rest[at+1:]
		}
	}
	require.Equal(t, []string{"stale", "acked"}, promises(blocks[0]))

	// The grants are enough for an application and its worker, and for nothing else.
	cfg, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	cfg.User, cfg.Password = role, "workq_readme"
	app, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	c := client.New(nil, client.Options{}).With(app)
	for {
		ms, err := c.Receive(t.Context(), "emails", nil)
		require.NoError(t, err)
		if len(ms) == 0 {
			break
		}
		out, err := c.Ack(t.Context(), ms[0], nil)
		require.NoError(t, err)
		require.Equal(t, client.Acked, out)
	}
	_, err = c.Idle(t.Context(), "emails")
	require.NoError(t, err)
	_, err = c.Enqueue(t.Context(), "emails", "one more", nil)
	require.NoError(t, err)
	_, err = c.Version(t.Context())
	require.NoError(t, err)
	for _, forbidden := range []string{"select workq.purge_queue('emails')", "select * from workq.message"} {
		_, err = app.Exec(t.Context(), forbidden)
		require.Equal(t, "42501", sqlstate(err), forbidden)
	}
	require.NoError(t, app.Close(t.Context()))
	// Without privileges left in the database the role can go.
	execSQL(t, connect(t, superuserURL(t, url)), "drop owned by "+role)
}

func TestReadmeGoRuns(t *testing.T) {
	t.Parallel()
	blocks := codeBlocks(readme(t), "go")
	require.Len(t, blocks, 1)
	require.Equal(t, gofmt(t, blocks[0]), blocks[0], "gofmt")

	// Built from here, so that the imports are those of this module.
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(blocks[0]), 0o600))
	bin := filepath.Join(dir, "readme")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", bin, filepath.Join(dir, "main.go")).CombinedOutput()
	require.NoError(t, err, string(out))

	url := newDBURL(t)
	pool := newPool(t, url)
	c := client.New(pool, client.Options{})
	_, err = c.CreateQueue(t.Context(), "emails", client.QueueSettings{})
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), bin)
	cmd.Env = envWithout(nil, "DATABASE_URL="+url)
	said := new(lockedBuffer)
	cmd.Stdout, cmd.Stderr = said, said
	require.NoError(t, cmd.Start())
	ended := inBackground(func() (int, error) { return 0, cmd.Wait() })
	waitFor(t, "the message to be acked", func() bool {
		return value[int](t, pool, "select count(*) from workq.attempt where outcome = 'acked'") == 1
	})
	require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
	_, err = result(t, ended)
	require.NoError(t, err, said.String())
	require.Equal(t, "attempt 1: {\"to\": \"ada@example.com\"}\n", said.String())
	require.Equal(t, `"sent"`, value[string](t, pool, "select result::text from workq.attempt"))
}

func gofmt(t *testing.T, source string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "gofmt")
	cmd.Stdin = strings.NewReader(source)
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}

// The lines under "Install", with psql in place of a file.
func TestReadmeInstallLinesInstall(t *testing.T) {
	t.Parallel()
	bin, err := buildCommand()
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^bin/workq [^#\n]*`).FindAllString(section(t, readme(t), "Install"), -1)
	require.Len(t, lines, 2)
	for _, line := range lines {
		url := emptyDBURL(t)
		script := strings.Replace(line, "bin/workq", bin, 1)
		cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", script)
		cmd.Env = envWithout(nil, "DATABASE_URL="+url)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		require.NotEmpty(t, value[string](t, connect(t, url), "select workq.version()"), line)
	}
}

func TestReadmeTablesAreTrue(t *testing.T) {
	t.Parallel()
	text := readme(t)
	db := newDB(t)

	// Each function with its arguments, in order; `…` stands for the rest.
	listed := map[string]string{}
	for _, row := range tableRows(section(t, text, "Functions")) {
		for _, m := range regexp.MustCompile("`(\\w+)\\(([^)]*)\\)`").FindAllStringSubmatch(row[0], -1) {
			listed[m[1]] = m[2]
		}
	}
	installed := map[string]string{}
	rows, err := db.Query(t.Context(), `
		select p.proname::text, coalesce((
			select string_agg(a.name, ', ' order by a.ord)
			from unnest(p.proargnames) with ordinality a (name, ord)
			where coalesce(p.proargmodes[a.ord], 'i') = 'i'), '')
		from pg_proc p
		where p.pronamespace = 'workq'::regnamespace and p.proname not like '\_%'`)
	require.NoError(t, err)
	var name, args string
	_, err = pgx.ForEachRow(rows, []any{&name, &args}, func() error {
		if want, ok := listed[name]; ok && strings.HasSuffix(want, ", …") {
			require.True(t, strings.HasPrefix(args, strings.TrimSuffix(want, "…")), name)
			args = want
		}
		installed[name] = args
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, installed, listed)

	// Each setting, in order, and what is not built yet: together the arguments of create_queue.
	var settings []string
	for _, row := range tableRows(section(t, text, "Settings")) {
		settings = append(settings, strings.Trim(row[0], "`"))
	}
	require.Equal(t, column[string](t, db, `
		select attname::text from pg_attribute
		where attrelid = 'workq.queue_info'::regclass and attnum > 2 order by attnum`), settings)
	_, later, found := strings.Cut(section(t, text, "Settings"), "Not yet, and raising `0A000`:")
	require.True(t, found)
	notYet := columnOfCode(later)
	for _, setting := range notYet {
		execNotBuilt(t, db, setting)
	}
	arguments := column[string](t, db, `
		select unnest(p.proargnames[2:]) from pg_proc p where p.oid = 'workq.create_queue'::regproc`)
	require.ElementsMatch(t, arguments, append(settings, notYet...))

	// Each error has its sentinel.
	for _, row := range tableRows(section(t, text, "Errors")) {
		require.Contains(t, sentinelsByName, strings.Trim(row[2], "`"), row[0])
	}
	require.Len(t, tableRows(section(t, text, "Errors")), len(sentinelsByName))
}

var sentinelsByName = map[string]error{
	"ErrQueueNotFound": client.ErrQueueNotFound, "ErrLeaseLost": client.ErrLeaseLost,
	"ErrMessageNotFound": client.ErrMessageNotFound, "ErrPayloadTooLarge": client.ErrPayloadTooLarge,
	"ErrQueueFull": client.ErrQueueFull, "ErrNoAccess": client.ErrNoAccess, "ErrQueueNotEmpty": client.ErrQueueNotEmpty,
	"ErrQueueExists": client.ErrQueueExists, "ErrInvalidArgument": client.ErrInvalidArgument,
	"ErrNotSupported": client.ErrNotSupported,
}

// columnOfCode are the words between backquotes.
func columnOfCode(text string) []string {
	var words []string
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(text, -1) {
		words = append(words, m[1])
	}
	return words
}

// execNotBuilt gives the setting a value that fits its type, and expects to be told that it is not built.
func execNotBuilt(t *testing.T, db execer, setting string) {
	t.Helper()
	typ := value[string](t, db, `
		select format_type(p.proargtypes[array_position(p.proargnames, $1) - 1], null)
		from pg_proc p where p.oid = 'workq.create_queue'::regproc`, setting)
	example := map[string]string{"text": "fair", "integer": "1", "boolean": "true", "interval": "1 s"}[typ]
	_, err := db.Exec(t.Context(), fmt.Sprintf("select workq.create_queue('q', %s => '%s')", setting, example))
	require.Equal(t, "0A000", sqlstate(err), setting)
}

func TestReadmeNamesCommandsThatExist(t *testing.T) {
	t.Parallel()
	text := readme(t)
	makefile, err := os.ReadFile("../Makefile")
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("(?m)(?:^|`|^ *)make ([a-z]+)").FindAllStringSubmatch(text, -1) {
		require.Regexp(t, `(?m)^`+m[1]+`:`, string(makefile), "make "+m[1])
	}
	bin, err := buildCommand()
	require.NoError(t, err)
	for _, m := range regexp.MustCompile("`workq ([a-z|]+)(?: ([a-z|]+))?").FindAllStringSubmatch(text, -1) {
		for _, sub := range strings.Split(m[1], "|") {
			for _, verb := range strings.Split(m[2], "|") {
				args := append(strings.Fields(sub+" "+verb), "--help")
				out, err := exec.CommandContext(t.Context(), bin, args...).CombinedOutput()
				require.NoError(t, err, "workq %s %s: %s", sub, verb, out)
				require.Contains(t, string(out), strings.TrimSpace("workq "+strings.TrimSpace(sub+" "+verb)), m[0])
			}
		}
	}
}
