package devpg

import (
	"bufio"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// readChild waits for the line "@ PID DIR" of a child process.
func readChild(t *testing.T, r io.Reader) (pid int, dir string) {
	t.Helper()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if n, _ := fmt.Sscanf(lines.Text(), "@ %d %s", &pid, &dir); n == 2 {
			return pid, dir
		}
	}
	require.Fail(t, "the child ended without a word", lines.Err())
	return 0, ""
}
