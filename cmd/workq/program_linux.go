package main

import "syscall"

// sysProcAttr puts a program into a process group of its own, away from the terminal's Ctrl-C, and has
// the kernel kill it when the thread that started it ends.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
