package tests

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client/migrate"
	"github.com/pgworkq/workq/cmd/workq/devpg"
)

func TestCommandMigrates(t *testing.T) {
	t.Parallel()
	c := commandAt(t, emptyDBURL(t))
	latest, err := migrate.Latest()
	require.NoError(t, err)
	status := c.object("migrate", "--status")
	require.Equal(t, 0.0, status["version"])
	require.Equal(t, float64(latest), status["latest"])
	require.Len(t, status["pending"], int(latest))

	e := c.run("migrate", "--json")
	require.Zero(t, e.code, e.stderr)
	require.Equal(t, map[string]any{"from": 0.0, "to": float64(latest)}, decode[map[string]any](t, e.stdout))
	require.Equal(t, int(latest), strings.Count(e.stderr, "\n"), "each migration is named as it runs")

	require.Equal(t, fmt.Sprintf("from  %[1]d\nto    %[1]d\n", latest), c.ok("migrate"), "a second time does nothing")
	status = c.object("migrate", "--status")
	require.Equal(t, status["latest"], status["version"])
	require.Equal(t, []any{}, status["pending"])
}

func TestCommandPrintsSQLThatPsqlInstalls(t *testing.T) {
	t.Parallel()
	url := emptyDBURL(t)
	c := commandAt(t, url)
	script := c.with("DATABASE_URL=postgres://nobody@127.0.0.1:1/none").ok("migrate", "--print-sql")
	psql := func(script string) string {
		cmd := exec.CommandContext(t.Context(), "psql", "-X", "-q", url)
		cmd.Stdin = strings.NewReader(script)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		_ = cmd.Run()
		return out.String()
	}
	require.Empty(t, psql(script))
	status := c.object("migrate", "--status")
	require.Equal(t, status["latest"], status["version"])
	require.Contains(t, psql(script), "workq is at schema version", "a second time it refuses")
	require.Contains(t, c.ok("migrate", "--print-sql", "--from", fmt.Sprint(status["latest"])), "Nothing to do")
	c.ok("queue", "create", "q")

	e := c.run("migrate", "--print-sql", "--from", "1000")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "workq: cannot print migrations from version 1000: choose 0 to")
}

// devCommand is the command where it finds the same server binaries as the tests.
func devCommand(t *testing.T) command {
	t.Helper()
	opts, err := serverOptions()
	require.NoError(t, err)
	bin, err := devpg.FindBinaries(opts)
	require.NoError(t, err)
	return commandAt(t, "postgres://nobody@127.0.0.1:1/none").with(devpg.EnvBinDir + "=" + bin.Dir)
}

func TestCommandDevRunsAThrowawayServer(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	for _, args := range [][]string{{"dev", "--json"}, {"dev", "--json", "--port", port}} {
		p := devCommand(t).start(args...)
		server := decode[map[string]string](t, p.line())
		if len(args) > 2 {
			require.Contains(t, server["url"], "@127.0.0.1:"+port+"/")
		}
		c := commandAt(t, server["url"])
		c.ok("queue", "create", "emails")
		c.ok("enqueue", "emails", "1")
		waitFor(t, "the lines to try", func() bool { return strings.Contains(p.stderr.String(), "Interrupt (Ctrl-C)") })
		require.Contains(t, p.stderr.String(), "psql '"+server["url"]+"'")
		require.Contains(t, p.stderr.String(), "workq.enqueue('emails'")

		db := connect(t, server["url"])
		dir := value[string](t, db, "show data_directory")
		body, err := os.ReadFile(filepath.Join(dir, "postmaster.pid"))
		require.NoError(t, err)
		pid, _, _ := strings.Cut(string(body), "\n")
		p.stop()
		waitUntilGone(t, pid)
		require.NoDirExists(t, dir)
		require.NoDirExists(t, filepath.Dir(dir))
	}
}

func TestCommandDevPrintsItsURLFirst(t *testing.T) {
	t.Parallel()
	p := devCommand(t).start("dev")
	require.Regexp(t, `^url +postgres://postgres:[0-9a-f]+@127\.0\.0\.1:\d+/postgres\?sslmode=disable$`, p.line())
	p.signal(os.Interrupt)
	require.Zero(t, p.wait(), p.stderr.String())
}

func TestCommandDevSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	e := devCommand(t).with(devpg.EnvBinDir + "=" + t.TempDir()).run("dev")
	require.Equal(t, 1, e.code)
	require.Contains(t, e.stderr, "workq: no PostgreSQL server binaries")
	require.Equal(t, 1, strings.Count(e.stderr, "\n"))
}
