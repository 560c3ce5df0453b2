//go:build !linux

package main

import "syscall"

// sysProcAttr puts a program into a process group of its own, away from the terminal's Ctrl-C.
func sysProcAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
