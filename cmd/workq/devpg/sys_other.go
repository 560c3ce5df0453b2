//go:build !linux

package devpg

import "syscall"

// sysProcAttr runs a server program as its owner, away from the terminal's Ctrl-C. Where the kernel
// does not tell children of a parent's death, the janitor ends the server.
func sysProcAttr(who owner) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: who.credential(), Setpgid: true}
}
