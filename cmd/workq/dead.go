package main

import "github.com/spf13/cobra"

func newDead() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "dead QUEUE",
		Aliases: []string{"dead-letters"},
		Short:   "Show the dead letters of a queue",
		Long:    `Shows messages that were given up on, the latest first. redrive puts them back to work.`,
		Example: `  workq dead emails
  workq dead emails --reason permanent -n 20
  workq dead emails --json | jq -r '.[].error' | sort | uniq -c`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, fn("dead_letters").arg("queue", "text", args[0]).flags(cmd.Flags()), view{
				columns: "id, died_at, reason, attempt, error, kind, payload, octet_length(body) as body_bytes",
			})
		},
	}
	sqlFlag(cmd.Flags(), "max-messages", "int", "the most that are shown")
	reasonFlag(cmd)
	sqlFlag(cmd.Flags(), "kind", "text", "only those of this kind")
	return cmd
}

func reasonFlag(cmd *cobra.Command) {
	sqlFlag(cmd.Flags(), "reason", "text", "only those that died of it: attempts_exhausted, permanent or expired")
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.FixedCompletions(
		[]string{"attempts_exhausted", "permanent", "expired"}, cobra.ShellCompDirectiveNoFileComp))
}
