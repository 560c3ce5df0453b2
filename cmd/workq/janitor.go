package main

import (
	"fmt"
	"io"
	"os/exec"
	"sync"
	"syscall"
)

// janitor is a shell that outlives us. It is told which process groups run, over a pipe that only we hold;
// when we are gone, killed -9 even, the pipe ends, and it kills them, with their children.
type janitor struct {
	cmd  *exec.Cmd
	mu   sync.Mutex
	pipe io.WriteCloser
}

const janitorScript = `
trap '' INT TERM HUP
groups=' '
while read -r what group; do
  case $what in
  begin) groups="$groups$group " ;;
  end) groups="${groups%%" $group "*} ${groups#*" $group "}" ;;
  esac
done
for group in $groups; do kill -s KILL -- "-$group"; done 2>/dev/null
`

func startJanitor() (*janitor, error) {
	cmd := exec.Command("/bin/sh", "-c", janitorScript, "workq-janitor")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the janitor: %w", err)
	}
	return &janitor{cmd: cmd, pipe: pipe}, nil
}

func (j *janitor) begin(group int) { j.tell("begin", group) }
func (j *janitor) end(group int)   { j.tell("end", group) }

// tell does not fail the message when the janitor is gone: it is the second line of defence.
func (j *janitor) tell(what string, group int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, _ = fmt.Fprintf(j.pipe, "%s %d\n", what, group)
}

func (j *janitor) stop() {
	_ = j.pipe.Close()
	_ = j.cmd.Wait()
}
