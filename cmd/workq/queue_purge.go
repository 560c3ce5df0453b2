package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newQueuePurge() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge QUEUE",
		Short: "Throw away all unfinished messages of a queue",
		Long: `Removes all unfinished messages, also those that are being worked on, and says how many. Dead letters stay.
Asks on a terminal; elsewhere --yes is needed.`,
		Example: `  workq queue purge emails
  workq queue purge emails --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := confirm(cmd, fmt.Sprintf("Throw away all unfinished messages of %s?", args[0])); err != nil {
				return err
			}
			purged := "result as purged"
			return show(cmd, fn("purge_queue").arg("queue", "text", args[0]), view{one: true, columns: purged, json: purged})
		},
	}
	yesFlag(cmd)
	return cmd
}
