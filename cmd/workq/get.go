package main

import "github.com/spf13/cobra"

func newGet() *cobra.Command {
	return &cobra.Command{
		Use:   "get QUEUE ID",
		Short: "Show a message",
		Long: `Shows a message, finished or not, as long as it is stored. In JSON, body is hexadecimal text that begins
with \x, as PostgreSQL writes bytea.`,
		Example: `  workq get emails 42
  workq get emails 42 --json | jq .result`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd, fn("get").arg("queue", "text", args[0]).arg("id", "bigint", args[1]), view{
				one: true,
				columns: "id, queue, state, attempt, max_attempts, lease, visible_at, received_at, enqueued_at, expires_at, finished_at, " +
					"priority, worker, status, result, reason, error, kind, headers, payload, octet_length(body) as body_bytes, content_type",
			})
		},
	}
}
