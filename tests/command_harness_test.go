package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// buildCommand builds the command once, to where `make clean` removes it.
var buildCommand = sync.OnceValues(func() (string, error) {
	dir, err := filepath.Abs("../.cache/test")
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// Renamed into place: another run of the tests may be using the one that is there.
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out, err := exec.Command("go", "build", "-o", tmp+"/workq", "../cmd/workq").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return dir + "/workq", os.Rename(tmp+"/workq", dir+"/workq")
})

// command is the workq command with a database.
type command struct {
	t   *testing.T
	env []string
	in  string // for stdin
}

// newCommand gives the command, and a connection to its database, in which workq is installed.
func newCommand(t *testing.T) (command, execer) {
	t.Helper()
	url := newDBURL(t)
	return commandAt(t, url), connect(t, url)
}

func commandAt(t *testing.T, url string) command {
	t.Helper()
	_, err := buildCommand()
	require.NoError(t, err)
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "PG") && !strings.HasPrefix(kv, "DATABASE_URL=") {
			env = append(env, kv)
		}
	}
	return command{t: t, env: append(env, "DATABASE_URL="+url)}
}

func (c command) with(env ...string) command {
	c.env = append(c.env[:len(c.env):len(c.env)], env...)
	return c
}

func (c command) stdin(s string) command { c.in = s; return c }

func (c command) exec(args ...string) *exec.Cmd {
	path, _ := buildCommand() // commandAt looked at the error
	cmd := exec.CommandContext(c.t.Context(), path, args...)
	cmd.Env = c.env
	cmd.WaitDelay = patience
	return cmd
}

// ended is what a command left behind.
type ended struct {
	stdout, stderr string
	code           int
}

// run runs the command to its end.
func (c command) run(args ...string) ended {
	c.t.Helper()
	cmd := c.exec(args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.in), &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(c.t, err)
	}
	return ended{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

// ok runs the command, which must succeed, and gives its stdout.
func (c command) ok(args ...string) string {
	c.t.Helper()
	e := c.run(args...)
	require.Zero(c.t, e.code, "workq %q\n%s", args, e.stderr)
	return e.stdout
}

// object runs the command with --json and reads the object that it prints.
func (c command) object(args ...string) map[string]any {
	c.t.Helper()
	return decode[map[string]any](c.t, c.ok(append([]string{"--json"}, args...)...))
}

// list runs the command with --json and reads the array that it prints.
func (c command) list(args ...string) []map[string]any {
	c.t.Helper()
	return decode[[]map[string]any](c.t, c.ok(append([]string{"--json"}, args...)...))
}

// decode reads the one JSON value there is.
func decode[T any](t *testing.T, s string) T {
	t.Helper()
	var v T
	require.NoError(t, json.Unmarshal([]byte(s), &v), s)
	return v
}

// process is a command that runs.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout *bufio.Reader
	stderr *lockedBuffer
	done   <-chan outcome[struct{}]
}

// start starts the command and ends it, at the latest, with the test.
func (c command) start(args ...string) *process {
	c.t.Helper()
	return c.startOn(strings.NewReader(c.in), args...)
}

// startOn is start with another stdin.
func (c command) startOn(in io.Reader, args ...string) *process {
	c.t.Helper()
	cmd := c.exec(args...)
	r, w, err := os.Pipe()
	require.NoError(c.t, err)
	p := &process{t: c.t, cmd: cmd, stdout: bufio.NewReader(r), stderr: new(lockedBuffer)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, w, p.stderr
	require.NoError(c.t, cmd.Start())
	require.NoError(c.t, w.Close())
	p.done = inBackground(func() (struct{}, error) { return struct{}{}, cmd.Wait() })
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = r.Close()
	})
	return p
}

func (p *process) signal(s os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(s))
}

// wait waits for the end and gives the exit status, -1 after a signal.
func (p *process) wait() int {
	p.t.Helper()
	_, err := result(p.t, p.done)
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(p.t, err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop asks for a clean end and waits for it.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	require.Zero(p.t, p.wait(), p.stderr.String())
}

// line reads a line of stdout.
func (p *process) line() string {
	p.t.Helper()
	s, err := result(p.t, inBackground(func() (string, error) { return p.stdout.ReadString('\n') }))
	require.NoError(p.t, err, p.stderr.String())
	return strings.TrimSpace(s)
}

// lockedBuffer may be read while somebody writes.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// waitForFile waits until a file is there and has content, and gives it.
func waitForFile(t *testing.T, path string) string {
	t.Helper()
	var body []byte
	waitFor(t, path, func() bool {
		body, _ = os.ReadFile(path)
		return len(body) > 0 && body[len(body)-1] == '\n'
	})
	return strings.TrimSpace(string(body))
}

func writeFile(t *testing.T, name, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(body), 0o644))
	return path
}

// waitUntilGone waits until no such process runs. One that nobody has waited for yet does not run.
func waitUntilGone(t *testing.T, pid string) {
	t.Helper()
	waitFor(t, "process "+pid+" to end", func() bool {
		out, _ := exec.Command("ps", "-o", "stat=", "-p", pid).Output() // fails where there is none
		state := strings.TrimSpace(string(out))
		return state == "" || strings.HasPrefix(state, "Z")
	})
}
