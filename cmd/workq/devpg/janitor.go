package devpg

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// janitor is a shell that outlives us. It reads a pipe that only we hold; when we are gone,
// however that happened, the read ends, and it shuts the server down and removes the folder.
type janitor struct {
	cmd  *exec.Cmd
	pipe io.Closer
}

// The process is only signalled while its command line still names our folder: a number in a
// stale postmaster.pid may belong to somebody else by now.
const janitorScript = `
dir=$1
ours() {
  [ -s "$dir/data/postmaster.pid" ] || return 1
  read -r pid < "$dir/data/postmaster.pid" || return 1
  if [ -r "/proc/$pid/cmdline" ]; then
    grep -qF "$dir/data" "/proc/$pid/cmdline"
  else
    ps -o command= -p "$pid" 2>/dev/null | grep -qF "$dir/data"
  fi
}
read -r _
n=0
while ours && [ "$n" -lt 100 ]; do
  if [ "$n" -lt 50 ]; then kill -QUIT "$pid"; else kill -KILL "$pid"; fi 2>/dev/null
  sleep 0.1
  n=$((n + 1))
done
n=0
while [ -e "$dir" ] && [ "$n" -lt 50 ]; do
  rm -rf "$dir" 2>/dev/null
  n=$((n + 1))
  [ -e "$dir" ] && sleep 0.1
done
`

func startJanitor(dir string) (*janitor, error) {
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "workq-devpg-janitor", dir)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the janitor of the cluster: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the janitor of the cluster: %w", err)
	}
	return &janitor{cmd: cmd, pipe: pipe}, nil
}

// finish lets the janitor do what is left and waits for its end.
func (j *janitor) finish() {
	_ = j.pipe.Close()
	_ = j.cmd.Wait()
}
