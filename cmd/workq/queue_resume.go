package main

import "github.com/spf13/cobra"

func newQueueResume() *cobra.Command {
	return &cobra.Command{
		Use:     "resume QUEUE",
		Short:   "Hand out messages of a paused queue again",
		Example: `  workq queue resume emails`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, fn("resume_queue").arg("queue", "text", args[0]), view{one: true, columns: "queue, paused"})
		},
	}
}
