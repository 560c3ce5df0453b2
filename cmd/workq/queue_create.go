package main

import "github.com/spf13/cobra"

func newQueueCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create QUEUE",
		Short: "Create a queue",
		Long: `Creates a queue and shows its settings. A setting that is not given has the default of SQL. If the queue
exists with these settings nothing happens; with others it is an error.`,
		Example: `  workq queue create emails
  workq queue create reports --visibility '5 min' --max-attempts 3 --retry-delays '10 s,1 min,10 min'
  workq queue create orders --dead-letter-queue orders-dead --ttl 2d`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, fn("create_queue").arg("queue", "text", args[0]).flags(cmd.Flags()), view{one: true})
		},
	}
	settingFlags(cmd)
	return cmd
}
