package main

import "github.com/spf13/cobra"

func newMaintain() *cobra.Command {
	return &cobra.Command{
		Use:   "maintain",
		Short: "Make partitions ahead of time and drop old ones",
		Long: `Makes partitions ahead of time, drops those that are past every retention, and says what it did. Workers do
it now and then; it does no harm to do it as well.`,
		Example: `  workq maintain`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return show(cmd, fn("maintain"), view{})
		},
	}
}
