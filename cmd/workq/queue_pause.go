package main

import "github.com/spf13/cobra"

func newQueuePause() *cobra.Command {
	return &cobra.Command{
		Use:     "pause QUEUE",
		Short:   "Stop handing out messages of a queue",
		Long:    `Stops handing out messages. Enqueueing goes on, and so does the work on messages that are out.`,
		Example: `  workq queue pause emails`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, fn("pause_queue").arg("queue", "text", args[0]), view{one: true, columns: "queue, paused"})
		},
	}
}
