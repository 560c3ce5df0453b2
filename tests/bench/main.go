// Command bench measures workq on a throwaway PostgreSQL, or on the one that --database names.
//
//	go run . drain     a backlog of 200,000 drained through the functions and by the bare statements
//	go run . snapshot  a steady load while an old snapshot is held
//
// What is compared is measured in one run, interleaved, and reported as medians and ratios.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var target target
	root := &cobra.Command{
		Use:           "bench",
		Short:         "Measure workq",
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { // all of them, in their default sizes
			for _, name := range []string{"drain", "snapshot"} {
				scenario, _, err := cmd.Find([]string{name})
				if err != nil {
					return err
				}
				if err := scenario.RunE(scenario, nil); err != nil {
					return err
				}
			}
			return nil
		},
	}
	root.PersistentFlags().StringVar(&target.url, "database", "", "a database to measure in, by its owner; defaults to a throwaway cluster")
	root.PersistentFlags().IntVar(&target.major, "pg", 0, "major version of the throwaway cluster; defaults to the newest found")
	root.PersistentFlags().StringVar(&target.binDir, "bin-dir", "", "folder of the server binaries")
	root.AddCommand(newDrain(&target), newSnapshot(&target))
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}
