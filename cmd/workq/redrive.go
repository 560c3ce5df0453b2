package main

import "github.com/spf13/cobra"

func newRedrive() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "redrive QUEUE",
		Short: "Put dead letters back to work",
		Long:  `Puts dead letters back to work, the oldest first, as if they were new, and says how many.`,
		Example: `  workq redrive emails --dry-run
  workq redrive emails --reason attempts_exhausted -n 100
  workq redrive emails --ids 42,43 --to-queue emails-slow`,
		RunE: func(cmd *cobra.Command, args []string) error {
			redriven := "result as redriven"
			if dry, _ := cmd.Flags().GetBool("dry-run"); dry {
				redriven = "result as would_redrive"
			}
			return show(cmd, fn("redrive").arg("queue", "text", args[0]).flags(cmd.Flags()),
				view{one: true, columns: redriven, json: redriven})
		},
	}
	sqlFlag(cmd.Flags(), "to-queue", "text", "into this queue instead of the one they died in")
	sqlFlag(cmd.Flags(), "max-messages", "int", "the most that are moved")
	reasonFlag(cmd)
	sqlFlag(cmd.Flags(), "ids", "bigint[]", "only these messages")
	sqlFlag(cmd.Flags(), "dry-run", "boolean", "only count")
	completeFlag(cmd, "to-queue")
	return cmd
}
