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
	cmd, err := newRoot().ExecuteContextC(untilSignal())
	os.Exit(report(os.Stderr, cmd, err))
}

// untilSignal is a context that the first SIGINT or SIGTERM ends. From then on, another one ends the
// process at once.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		signal.Stop(signals)
		cancel()
	}()
	return ctx
}
