package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newQueueDrop() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop QUEUE",
		Short: "Remove a queue",
		Long: `Removes a queue that is empty; with --force also its messages and dead letters.
With --force it asks on a terminal; elsewhere --yes is needed.`,
		Example: `  workq queue drop emails
  workq queue drop emails --force --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if force, _ := cmd.Flags().GetBool("force"); force {
				if err := confirm(cmd, fmt.Sprintf("Remove %s with all its messages and dead letters?", args[0])); err != nil {
					return err
				}
			}
			dropped := "$1::text as dropped" // the function returns nothing
			return show(cmd, fn("drop_queue").arg("queue", "text", args[0]).flags(cmd.Flags()),
				view{one: true, columns: dropped, json: dropped})
		},
	}
	sqlFlag(cmd.Flags(), "force", "boolean", "also throw away its messages and dead letters")
	yesFlag(cmd)
	return cmd
}
