package tests

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/cmd/workq/devpg"
)

// goSource is a folder of the Go distribution's source.
func goSource(t *testing.T, name string) string {
	t.Helper()
	root, err := exec.CommandContext(t.Context(), "go", "env", "GOROOT").Output()
	require.NoError(t, err)
	return filepath.Join(strings.TrimSpace(string(root)), "src", name)
}

// envWithout is our environment without the variables named, and with those given.
func envWithout(names []string, add ...string) []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		keep := true
		for _, n := range names {
			keep = keep && n != name
		}
		if keep {
			env = append(env, kv)
		}
	}
	return append(env, add...)
}

func TestDemo(t *testing.T) {
	t.Parallel()
	bin, err := buildCommand()
	require.NoError(t, err)

	// The main job on real input, as `make demo` runs it: its own server, fsync on.
	t.Run("the whole Go distribution", func(t *testing.T) {
		t.Parallel()
		opts, err := serverOptions()
		require.NoError(t, err)
		server, err := devpg.FindBinaries(opts)
		require.NoError(t, err)
		temp := t.TempDir()
		cmd := exec.CommandContext(t.Context(), bin, "demo")
		// A folder of its own for the server, short enough for a socket.
		parent, err := os.MkdirTemp("", "wqd")
		require.NoError(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(parent) })
		require.NoError(t, os.Chmod(parent, 0o755)) // the server is another user's when we are root
		cmd.Env = envWithout([]string{"DATABASE_URL", "TMPDIR"}, devpg.EnvBinDir+"="+server.Dir, "TMPDIR="+parent)
		cmd.Dir = temp
		var progress bytes.Buffer
		cmd.Stderr = &progress
		began := time.Now()
		out, err := cmd.Output()
		t.Logf("%s\n%s", progress.String(), out)
		require.NoError(t, err)
		t.Logf("took %s", time.Since(began))

		require.Contains(t, progress.String(), "PostgreSQL "+server.Version+" started for this demo (fsync on)")
		require.Regexp(t, `worker \d \(process \d+\) killed with SIGKILL when [\d,]+ were done; it held [1-9]\d* leases`, progress.String())
		require.Contains(t, progress.String(), "done 100 %", "there is progress to read without a terminal")
		require.NotContains(t, progress.String(), "\x1b", "and no escape sequences")
		require.Regexp(t, `\n  files +\d\d,\d{3}\n  results +\d\d,\d{3}\n  lost +0\n  wrong +0\n  redelivered +[1-9]\d* `, string(out))
		require.Regexp(t, `attempt 1  worker \d  timeout .*\n  attempt 2  worker \d  acked `, string(out))
		require.Contains(t, string(out), "Nothing lost, nothing wrong.")
		left, err := os.ReadDir(parent)
		require.NoError(t, err)
		require.Empty(t, left, "the server is gone")
	})

	// On a server that is somebody's: in a database of its own, which goes.
	t.Run("kept to look around", func(t *testing.T) {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), bin, "demo", "--keep", "--dir", goSource(t, "internal"))
		cmd.Env = envWithout(nil, "DATABASE_URL="+serverURL)
		said := new(lockedBuffer)
		cmd.Stdout, cmd.Stderr = said, said
		require.NoError(t, cmd.Start())
		ended := inBackground(func() (int, error) { return 0, cmd.Wait() })
		waitFor(t, "the end of the work", func() bool {
			return strings.Contains(said.String(), "psql '") || strings.Contains(said.String(), "workq:")
		})
		printed := said.String()

		// The SQL and the URL that it prints are good for what they are printed for.
		_, rest, found := strings.Cut(printed, "psql '")
		require.True(t, found, printed)
		url, _, _ := strings.Cut(rest, "'")
		_, rest, _ = strings.Cut(printed, "SQL to look around")
		script := strings.Join(regexp.MustCompile(`(?m)^  select .*;$`).FindAllString(rest, -1), "\n")
		require.Equal(t, 3, strings.Count(script, ";"))
		out, err := psql(t, url, script)
		require.NoError(t, err, out)
		for _, want := range []string{" files ", " timeout ", ` {"lines": `, "(2 rows)"} {
			require.Contains(t, out, want)
		}

		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		_, err = result(t, ended)
		require.NoError(t, err, said.String())
		require.Empty(t, demoDatabases(t, printed))
	})

	t.Run("as JSON", func(t *testing.T) {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), bin, "demo", "--json", "--workers", "2", "--dir", goSource(t, "internal"), "--database-url", serverURL)
		var progress bytes.Buffer
		cmd.Stderr = &progress
		out, err := cmd.Output()
		require.NoError(t, err, progress.String())
		var got struct {
			Files, Results, Lost, Wrong, Twice, Redelivered int

			Leases int `json:"leases_of_killed_worker"`
			OK     bool
		}
		require.NoError(t, json.Unmarshal(out, &got), string(out))
		require.True(t, got.OK)
		require.Greater(t, got.Files, 1000)
		require.Equal(t, got.Files, got.Results)
		require.Zero(t, got.Lost+got.Wrong+got.Twice)
		require.Positive(t, got.Leases)
		require.GreaterOrEqual(t, got.Redelivered, got.Leases)
		require.Empty(t, demoDatabases(t, progress.String()))
	})

	t.Run("interrupted half-way it leaves nothing behind", func(t *testing.T) {
		t.Parallel()
		cmd := exec.CommandContext(t.Context(), bin, "demo")
		cmd.Env = envWithout(nil, "DATABASE_URL="+serverURL)
		progress := new(lockedBuffer)
		cmd.Stdout, cmd.Stderr = progress, progress
		require.NoError(t, cmd.Start())
		ended := inBackground(func() (int, error) { return 0, cmd.Wait() })
		waitFor(t, "work to begin", func() bool { return strings.Contains(progress.String(), "enqueued 100 %") })
		require.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		_, err := result(t, ended)
		require.Error(t, err)
		require.Equal(t, 130, cmd.ProcessState.ExitCode(), progress.String())
		require.Empty(t, demoDatabases(t, progress.String()))
	})

	t.Run("wrong usage", func(t *testing.T) {
		t.Parallel()
		for _, tt := range []struct {
			args   []string
			status int
			want   string
		}{
			{[]string{"demo", "--workers", "1"}, 2, "choose 2 or more"},
			{[]string{"demo", "there"}, 2, "too many arguments"},
			{[]string{"demo", "--dir", filepath.Join(t.TempDir(), "none")}, 1, "no such file"},
			{[]string{"demo", "--dir", t.TempDir()}, 1, "no files below"},
		} {
			cmd := exec.CommandContext(t.Context(), bin, tt.args...)
			out, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Equal(t, tt.status, cmd.ProcessState.ExitCode(), string(out))
			require.Contains(t, string(out), tt.want)
		}
	})
}

// demoDatabases are the databases that the demo said it made and that are still there.
func demoDatabases(t *testing.T, progress string) []string {
	t.Helper()
	_, rest, found := strings.Cut(progress, "Database ")
	require.True(t, found, progress)
	name, _, _ := strings.Cut(rest, " ")
	require.Contains(t, name, "workq_demo_")
	return column[string](t, connect(t, serverURL), "select datname::text from pg_database where datname = $1", name)
}
