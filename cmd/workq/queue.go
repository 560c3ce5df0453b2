package main

import "github.com/spf13/cobra"

func newQueue() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "queue",
		Aliases: []string{"queues"},
		Short:   "Create, change, list, pause, empty and remove queues",
	}
	cmd.AddCommand(newQueueCreate(), newQueueAlter(), newQueueList(), newQueueShow(),
		newQueuePause(), newQueueResume(), newQueuePurge(), newQueueDrop())
	return cmd
}
