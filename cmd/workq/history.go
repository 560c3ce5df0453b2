package main

import "github.com/spf13/cobra"

func newHistory() *cobra.Command {
	return &cobra.Command{
		Use:   "history QUEUE ID",
		Short: "Show how each attempt at a message ended",
		Example: `  workq history emails 42
  workq history emails 42 --json | jq '.[-1].error'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, fn("history").arg("queue", "text", args[0]).arg("id", "bigint", args[1]), view{
				columns: "attempt, outcome, reason, started_at, finished_at, worker, error, result",
			})
		},
	}
}
