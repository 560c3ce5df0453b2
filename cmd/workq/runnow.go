package main

import "github.com/spf13/cobra"

func newRunNow() *cobra.Command {
	return &cobra.Command{
		Use:     "run-now QUEUE ID",
		Short:   "End the wait of a delayed or retrying message",
		Long:    `Makes a message receivable now; run_now is false if it was not waiting for a time.`,
		Example: `  workq run-now emails 42`,
		RunE: func(cmd *cobra.Command, args []string) error {
			now := "result as run_now"
			return show(cmd, fn("run_now").arg("queue", "text", args[0]).arg("id", "bigint", args[1]),
				view{one: true, columns: now, json: now})
		},
	}
}
