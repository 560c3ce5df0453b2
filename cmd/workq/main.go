// Command workq is for people: it installs workq in a database, manages queues, enqueues, works on
// messages with any program, and shows what is there. `workq --help` lists what it can do.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	// The first signal asks for a clean end, the second one ends at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	cmd, err := newRoot().ExecuteContextC(ctx)
	os.Exit(report(os.Stderr, cmd, err))
}
