package devpg

import "syscall"

// sysProcAttr runs a server program as its owner, away from the terminal's Ctrl-C, and asks the
// kernel to shut it down at once when the thread that started it dies.
func sysProcAttr(who owner) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: who.credential(), Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
