package main

import "github.com/spf13/cobra"

func newSweep() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sweep",
		Short: "Make dead letters of what nobody will receive any more",
		Long: `Makes dead letters of messages whose attempts are used up or whose ttl has passed, removes dead letters past
their retention, and says how many. Workers do it now and then; it does no harm to do it as well.`,
		Example: `  workq sweep`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, fn("sweep").flags(cmd.Flags()), view{one: true})
		},
	}
	sqlFlag(cmd.Flags(), "max-rows", "int", "the most of each kind")
	return cmd
}
