package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pgworkq/workq/client/migrate"
)

func newMigrate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Install workq in the database, or bring it up to date",
		Long: `Installs workq in the database or brings it up to date. There is no way down. Any number may run at once.

The role needs CREATE on the database and on the schema public, and need not be a superuser. Use a direct
connection, not a pooler in transaction mode.`,
		Example: `  workq migrate
  workq migrate --status
  workq migrate --print-sql | psql -X "$DATABASE_URL"     # without this command on the server's side
  workq migrate --print-sql --from 2 > upgrade.sql`,
		RunE: runMigrate,
	}
	cmd.Flags().Bool("status", false, "only show the schema version and what is still to run")
	cmd.Flags().Bool("print-sql", false, "print the migrations as a script for psql, without a connection")
	cmd.Flags().Int32("from", 0, "print those after this schema `version`")
	cmd.MarkFlagsMutuallyExclusive("status", "print-sql")
	return cmd
}

type migrationState struct {
	Version int32    `json:"version"`
	Latest  int32    `json:"latest"`
	Pending []string `json:"pending"`
}

type migrated struct {
	From int32 `json:"from"`
	To   int32 `json:"to"`
}

func runMigrate(cmd *cobra.Command, _ []string) error {
	status, _ := cmd.Flags().GetBool("status")
	printSQL, _ := cmd.Flags().GetBool("print-sql")
	from, _ := cmd.Flags().GetInt32("from")
	switch {
	case printSQL:
		return migrate.WriteSQL(cmd.OutOrStdout(), from)
	case cmd.Flags().Changed("from"):
		return usage("--from goes with --print-sql: a migration begins where the database is")
	case status:
		s, err := migrationStatus(cmd)
		if err != nil {
			return err
		}
		return showRecord(cmd, migrationState{s.Version, s.Latest, append([]string{}, s.Pending...)})
	}
	cfg, err := connConfig(cmd)
	if err != nil {
		return err
	}
	result, err := migrate.Run(cmd.Context(), cfg, migrate.Options{OnStep: func(_ int32, name string) {
		fmt.Fprintf(cmd.ErrOrStderr(), "workq: %s\n", name)
	}})
	if err != nil {
		return err
	}
	return showRecord(cmd, migrated{result.From, result.To})
}

func migrationStatus(cmd *cobra.Command) (migrate.State, error) {
	ctx, cancel := context.WithTimeout(cmd.Context(), connectTimeout)
	defer cancel()
	return migrate.Status(ctx, databaseURL(cmd))
}
