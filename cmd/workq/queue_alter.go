package main

import "github.com/spf13/cobra"

func newQueueAlter() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "alter QUEUE",
		Short: "Change settings of a queue",
		Long:  `Changes the settings that are given, leaves the others as they are, and shows all.`,
		Example: `  workq queue alter emails --visibility '2 min'
  workq queue alter emails --clear max_attempts,ttl     # no limit any more`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, fn("alter_queue").arg("queue", "text", args[0]).flags(cmd.Flags()), view{one: true})
		},
	}
	settingFlags(cmd)
	sqlFlag(cmd.Flags(), "clear", "text[]", "settings to set to null: max_attempts, ttl, dead_letter_queue, max_depth")
	return cmd
}
