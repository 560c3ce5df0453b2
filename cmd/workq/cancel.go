package main

import "github.com/spf13/cobra"

func newCancel() *cobra.Command {
	return &cobra.Command{
		Use:   "cancel QUEUE ID",
		Short: "End an unfinished message",
		Long: `Ends a message and says how: cancelled, it was waiting; revoked, a worker has it and will be told; gone, there
was nothing to cancel.`,
		Example: `  workq cancel emails 42`,
		RunE: func(cmd *cobra.Command, args []string) error {
			outcome := "result as outcome"
			return show(cmd, fn("cancel").arg("queue", "text", args[0]).arg("id", "bigint", args[1]),
				view{one: true, columns: outcome, json: outcome})
		},
	}
}
