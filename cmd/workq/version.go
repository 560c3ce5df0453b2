package main

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/pgworkq/workq/client/migrate"
)

// version is set at link time for a release: -ldflags '-X main.version=1.2.3'.
var version = ""

type versions struct {
	Command   string  `json:"command"`
	Latest    int32   `json:"latest"`    // the schema version that this command installs
	Schema    *int32  `json:"schema"`    // that of the database
	Functions *string `json:"functions"` // what workq.version() says
	Server    *string `json:"server"`    // of PostgreSQL
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the versions of the command and of what is installed",
		Long: `Shows the version of this command and the schema version that it installs; and, where there is a database, its
schema version, what workq.version() says, and the version of PostgreSQL.`,
		Example: `  workq version`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Command: commandVersion()}
			var err error
			if v.Latest, err = migrate.Latest(); err != nil {
				return err
			}
			if err := v.ask(cmd); err != nil {
				msg, _ := explain(err)
				fmt.Fprintf(cmd.ErrOrStderr(), "workq: %s\n", oneLine(msg))
			}
			return showRecord(cmd, v)
		},
	}
}

// ask fills in what the database knows.
func (v *versions) ask(cmd *cobra.Command) error {
	state, err := migrationStatus(cmd)
	if err != nil {
		return err
	}
	v.Schema = &state.Version
	return connect(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		v.Server = new(conn.PgConn().ParameterStatus("server_version"))
		if state.Version == 0 {
			return nil
		}
		return conn.QueryRow(ctx, "select workq.version()").Scan(&v.Functions)
	})
}

func commandVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
