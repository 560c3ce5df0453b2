package devpg

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// searchDirs are where `make setup` puts the servers of other majors.
func searchDirs() []string {
	dirs, _ := filepath.Glob("../../../.cache/postgresql/*/bin")
	return dirs
}

func options(t *testing.T) Options {
	t.Helper()
	opts := Options{SearchDirs: searchDirs()}
	if pg := os.Getenv("PG"); pg != "" {
		major, err := strconv.Atoi(pg)
		require.NoError(t, err)
		opts.Major = major
	}
	return opts
}

// query runs statements and gives the one value of the last.
func query(t *testing.T, url string, sql ...string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(context.Background())
	for _, s := range sql[:len(sql)-1] {
		_, err := conn.Exec(t.Context(), s)
		require.NoError(t, err)
	}
	var out string
	require.NoError(t, conn.QueryRow(t.Context(), sql[len(sql)-1]).Scan(&out))
	return out
}

// alive says whether the process exists and is no zombie.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	body, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(body), ") Z ")
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 20*time.Second, 20*time.Millisecond, what)
}

func TestStartsAndLeavesNothing(t *testing.T) {
	opts := options(t)
	opts.TCP = true
	opts.Settings = map[string]string{"application_name": "it's devpg"}
	pg, err := Start(t.Context(), opts)
	require.NoError(t, err)
	pid := pg.PID()

	require.Equal(t, "it's devpg", query(t, pg.SocketURL("postgres"), "select setting from pg_file_settings where name = 'application_name'"))
	require.Equal(t, pg.Version(), query(t, pg.TCPURL("postgres"), "select split_part(current_setting('server_version'), ' ', 1)"))
	require.Equal(t, "off", query(t, pg.URL("template1"), "show fsync"))

	require.NoError(t, pg.Close())
	require.NoError(t, pg.Close(), "a second close does nothing")
	require.False(t, alive(pid))
	require.NoFileExists(t, pg.Dir())
	require.ErrorContains(t, pg.Start(t.Context()), "closed")
}

func TestDataOutliveEveryKindOfStop(t *testing.T) {
	opts := options(t)
	opts.Fsync = true
	pg, err := Start(t.Context(), opts)
	require.NoError(t, err)
	defer pg.Close()
	query(t, pg.URL("postgres"), "create table kept as select generate_series(1, 100)", "select 'made'")
	require.Equal(t, "on", query(t, pg.URL("postgres"), "show fsync"))

	require.NoError(t, pg.Stop(Fast))
	require.False(t, pg.Running())
	require.NoError(t, pg.Stop(Fast), "stopping twice does nothing")
	require.NoError(t, pg.Start(t.Context()))
	require.NoError(t, pg.Restart(t.Context(), Immediate))

	pid := pg.PID()
	require.NoError(t, pg.Kill())
	require.False(t, alive(pid))
	pg.Set("work_mem", "8MB")
	require.NoError(t, pg.Start(t.Context()))
	require.Equal(t, "100", query(t, pg.URL("postgres"), "select count(*)::text from kept"))
	require.Equal(t, "8MB", query(t, pg.URL("postgres"), "show work_mem"))
}

func TestAServerThatCannotStartSaysWhyAndLeavesNothing(t *testing.T) {
	opts := options(t)
	opts.Parent = t.TempDir()
	require.NoError(t, os.Chmod(opts.Parent, 0o755))
	if len(opts.Parent) > 60 {
		opts.Parent = ""
	}
	opts.Settings = map[string]string{"shared_buffers": "nonsense"}
	_, err := Start(t.Context(), opts)
	require.ErrorContains(t, err, "shared_buffers")
	if opts.Parent != "" {
		left, err := os.ReadDir(opts.Parent)
		require.NoError(t, err)
		require.Empty(t, left)
	}
}

func TestNoServerNamesTheWayOut(t *testing.T) {
	_, err := FindBinaries(Options{Major: 99})
	require.ErrorIs(t, err, ErrNoServer)
	require.ErrorContains(t, err, "make setup PG=99")
	_, err = Start(t.Context(), Options{BinDir: t.TempDir()})
	require.ErrorIs(t, err, ErrNoServer)
}

// A process that is killed cannot clean up. The server and the folder must go all the same.
func TestAKilledProcessLeavesNothing(t *testing.T) {
	if os.Getenv("DEVPG_TEST_CHILD") != "" {
		pg, err := Start(context.Background(), options(t))
		require.NoError(t, err)
		_, err = os.Stdout.WriteString("\n@ " + strconv.Itoa(pg.PID()) + " " + pg.Dir() + "\n")
		require.NoError(t, err)
		select {}
	}
	child := exec.Command(os.Args[0], "-test.run=^TestAKilledProcessLeavesNothing$")
	child.Env = append(os.Environ(), "DEVPG_TEST_CHILD=1")
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	pid, dir := readChild(t, out)
	require.True(t, alive(pid))
	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	eventually(t, "the server ends", func() bool { return !alive(pid) })
	eventually(t, "the folder goes", func() bool {
		_, err := os.Stat(dir)
		return errors.Is(err, os.ErrNotExist)
	})
}
