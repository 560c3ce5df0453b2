package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func newStats() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats [QUEUE]",
		Short: "Count what is in the queues",
		Long: `Counts the messages of a queue, or of all, by state, and shows rates over the last minute. Counts are exact to
100,000, then estimated.`,
		Example: `  workq stats
  workq stats emails --watch
  workq stats --json | jq '.[] | select(.dead > 0)'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := fn("stats")
			if len(args) == 1 {
				c.arg("queue", "text", args[0])
			}
			v := view{columns: "queue, ready, delayed, leased, retrying, dead, date_trunc('milliseconds', oldest_ready) as oldest_ready, " +
				"round(enqueued_per_second::numeric, 1) as \"enqueued/s\", round(acked_per_second::numeric, 1) as \"acked/s\", " +
				"round(failed_per_second::numeric, 1) as \"failed/s\", nullif(paused, false) as paused, nullif(estimated, false) as estimated"}
			every, _ := cmd.Flags().GetDuration("watch")
			if every <= 0 {
				return show(cmd, c, v)
			}
			return watch(cmd, c, v, every)
		},
	}
	cmd.Flags().Duration("watch", 0, "again and again until interrupted; in JSON one array after the other")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return cmd
}

// watch shows until interrupted, each time in the place of the last where there is a terminal.
func watch(cmd *cobra.Command, c *call, v view, every time.Duration) error {
	clear := ""
	if asJSON, _ := cmd.Flags().GetBool("json"); !asJSON && term.IsTerminal(int(os.Stdout.Fd())) {
		clear = "\x1b[H\x1b[2J"
	}
	err := connect(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		for {
			fmt.Fprint(cmd.OutOrStdout(), clear)
			if err := showOn(ctx, cmd, conn, c, v); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(every):
			}
		}
	})
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
