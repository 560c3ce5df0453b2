package tests

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal gives both ends of one: what people see and type, and what a program has.
func terminal(t *testing.T) (people, program *os.File) {
	t.Helper()
	people, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = people.Close() })
	fd := int(people.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	t.Cleanup(func() { _ = program.Close() })
	require.NoError(t, unix.IoctlSetWinsize(int(program.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	return people, program
}

// onTerminal runs the command on a terminal, where somebody types.
func (c command) onTerminal(types string, args ...string) (screen string, code int) {
	c.t.Helper()
	people, program := terminal(c.t)
	cmd := c.exec(args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	seen := new(lockedBuffer)
	go func() { _, _ = people.WriteTo(seen) }()
	require.NoError(c.t, cmd.Start())
	_, err := people.WriteString(types)
	require.NoError(c.t, err)
	_, err = result(c.t, inBackground(func() (struct{}, error) { return struct{}{}, cmd.Wait() }))
	if err != nil {
		require.ErrorContains(c.t, err, "exit status")
	}
	// What was written may still be under way.
	_, err = program.WriteString("\x04THE END")
	require.NoError(c.t, err)
	waitFor(c.t, "the end of the output", func() bool { return strings.Contains(seen.String(), "\x04THE END") })
	return strings.ReplaceAll(seen.String(), "\r\n", "\n"), cmd.ProcessState.ExitCode()
}

func TestCommandAsksBeforeItThrowsAway(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	execSQL(t, db, "select workq.enqueue('q')")
	for _, answer := range []string{"\n", "n\n", "no\n", "what\n"} {
		screen, code := c.onTerminal(answer, "queue", "purge", "q")
		require.Contains(t, screen, "Throw away all unfinished messages of q? [y/N] ")
		require.Contains(t, screen, "workq: nothing was changed\n")
		require.Equal(t, 1, code)
	}
	require.Equal(t, int64(1), value[int64](t, db, "select ready from workq.stats('q')"))
	screen, code := c.onTerminal("y\n", "queue", "purge", "q")
	require.Contains(t, screen, "purged")
	require.Zero(t, code)
	require.Zero(t, value[int64](t, db, "select ready from workq.stats('q')"))

	execSQL(t, db, "select workq.enqueue('q')")
	screen, code = c.onTerminal("Yes\n", "queue", "drop", "q", "--force")
	require.Contains(t, screen, "Remove q with all its messages and dead letters? [y/N] ")
	require.Zero(t, code)
}

func TestCommandShowsProgressOnATerminal(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	file := writeFile(t, "lines.jsonl", strings.Join(numbered(5000), "\n"))
	screen, code := c.onTerminal("", "enqueue", "q", "--lines", file, "--batch", "100")
	require.Zero(t, code, screen)
	require.Contains(t, screen, "5000 enqueued")
	require.Regexp(t, `100\.00%|done!`, screen) // a bar that is quick is not drawn full
	require.Regexp(t, `enqueued\S*  5000\n`, screen)
}

func TestCommandKeepsTablesWithinTheTerminal(t *testing.T) {
	t.Parallel()
	c, db := newCommand(t)
	execSQL(t, db, "select workq.create_queue('q')")
	execSQL(t, db, "select workq.enqueue('q', to_jsonb(repeat('long ', 100)))")
	screen, code := c.onTerminal("", "peek", "q")
	require.Zero(t, code)
	for _, line := range strings.Split(screen, "\n") {
		require.LessOrEqual(t, len([]rune(line)), 81, line)
	}
}
