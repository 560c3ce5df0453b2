package main

import "github.com/spf13/cobra"

func newQueueList() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the queues and their main settings",
		Example: `  workq queue list
  workq queue list --json | jq -r '.[].queue'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, fn("queues"), view{
				columns: "queue, nullif(paused, false) as paused, visibility, max_attempts, retry_delays, ttl, retention, dead_letter_queue, max_depth",
			})
		},
	}
}
