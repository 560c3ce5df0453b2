package main

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"
)

// completeArgs completes the name of a queue where the usage line has one, from the database.
func completeArgs(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	names := strings.Fields(cmd.Use)[1:]
	if len(args) < len(names) && strings.Trim(names[len(args)], "[]") == "QUEUE" {
		return queueNames(cmd)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// completeFlag completes a flag whose value is the name of a queue.
func completeFlag(cmd *cobra.Command, flag string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return queueNames(cmd)
	}) // fails for a flag that is not there
}

// queueNames is quick and says nothing of errors: somebody waits for a tab.
func queueNames(cmd *cobra.Command) ([]string, cobra.ShellCompDirective) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	cfg, err := connConfig(cmd)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer conn.Close(ctx)
	rows, _ := conn.Query(ctx, "select queue from workq.queues()")
	names, _ := pgx.CollectRows(rows, pgx.RowTo[string])
	return names, cobra.ShellCompDirectiveNoFileComp
}
