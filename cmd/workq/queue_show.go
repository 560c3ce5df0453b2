package main

import "github.com/spf13/cobra"

func newQueueShow() *cobra.Command {
	return &cobra.Command{
		Use:     "show QUEUE",
		Short:   "Show the settings of a queue",
		Example: `  workq queue show emails`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, fn("queues").arg("queue", "text", args[0]), view{one: true})
		},
	}
}
