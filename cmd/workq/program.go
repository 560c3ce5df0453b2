package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/pgworkq/workq/client"
)

// Exit statuses of a program, from sysexits.h.
const (
	exitDataErr  = 65
	exitTempFail = 75
)

// killAfter is how long a program has between SIGTERM and SIGKILL. The client waits for its handlers
// 5 s after the grace period.
const killAfter = 2 * time.Second

// program is a handler that runs a program for each message.
type program struct {
	path    string
	args    []string // with the name it is called by
	janitor *janitor
	stderr  io.Writer
}

// Handle runs the program, in a process group of its own.
func (p *program) Handle(ctx context.Context, m *client.Message) error {
	// The kernel ends a child when the thread that started it ends, not the process (Pdeathsig).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	var out head
	var errs tail
	cmd := exec.CommandContext(ctx, p.path)
	cmd.Args = p.args
	cmd.Env = append(cleanEnv(os.Environ()), messageEnv(m)...)
	cmd.Stdin = bytes.NewReader(input(m))
	cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(p.stderr, &errs)
	cmd.SysProcAttr = sysProcAttr()
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	if err := cmd.Start(); err != nil {
		return err
	}
	group := cmd.Process.Pid
	p.janitor.begin(group)
	err := cmd.Wait()
	if ctx.Err() != nil {
		_ = syscall.Kill(-group, syscall.SIGKILL) // what is left of the group; mostly there is nothing
	}
	p.janitor.end(group)
	if cmd.ProcessState == nil {
		return err
	}
	return settle(m, cmd.ProcessState, &out, &errs)
}

// input is what the program finds on stdin.
func input(m *client.Message) []byte {
	if m.Body != nil {
		return m.Body
	}
	return m.Payload
}

// settle makes of the program's end what the worker does with the message.
func settle(m *client.Message, state *os.ProcessState, out *head, errs *tail) error {
	switch state.ExitCode() {
	case 0:
		return m.SetResult(out.result())
	case exitTempFail:
		return orState(errs.lastLine(), state)
	case exitDataErr:
		return client.Permanent(orState(errs.text(), state))
	case -1: // a signal
		if text := errs.text(); text != "" {
			return errors.New(state.String() + ": " + text)
		}
		return errors.New(state.String())
	default:
		return orState(errs.text(), state)
	}
}

// orState is an error of the text, or of how the program ended where there is none.
func orState(text string, state *os.ProcessState) error {
	if text == "" {
		text = state.String()
	}
	return errors.New(text)
}
