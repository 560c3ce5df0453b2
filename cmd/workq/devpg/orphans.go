package devpg

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// children are the processes whose parent is pid, where there is a /proc; elsewhere none,
// and a killed server's backends are left to end by themselves.
func children(pid int) []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the only error is a bad pattern
	var found []int
	for _, path := range stats {
		body, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// pid (name) state ppid …, and the name may hold anything.
		_, rest, ok := strings.Cut(string(body[bytes.LastIndexByte(body, ')')+1:]), " ")
		fields := strings.Fields(rest)
		if !ok || len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
			found = append(found, child)
		}
	}
	return found
}

// killOrphans ends those backends that have not ended by themselves. Only a process that still
// works in our folder is meant: a number may have gone to somebody else.
func killOrphans(pids []int, dir string) {
	for _, pid := range pids {
		cwd, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "cwd"))
		if err == nil && strings.HasPrefix(cwd, dir+string(filepath.Separator)) {
			_ = signal(pid, syscall.SIGKILL)
		}
	}
}
