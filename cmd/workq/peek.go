package main

import "github.com/spf13/cobra"

func newPeek() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "peek QUEUE",
		Short: "Show messages without receiving them",
		Long:  `Shows unfinished messages in the order in which they will be received. Nothing is leased.`,
		Example: `  workq peek emails
  workq peek emails --state retrying -n 50
  workq peek emails --json | jq '.[].payload'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, fn("peek").arg("queue", "text", args[0]).flags(cmd.Flags()), view{
				columns: "id, state, priority, attempt, visible_at, worker, kind, payload, octet_length(body) as body_bytes",
			})
		},
	}
	sqlFlag(cmd.Flags(), "max-messages", "int", "the most that are shown")
	sqlFlag(cmd.Flags(), "state", "text", "only these: ready, leased, retrying, delayed or dead")
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(
		[]string{"ready", "leased", "retrying", "delayed", "dead"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}
