package migrate

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// State is what Status found.
type State struct {
	Version int32    // the schema version of the database, 0 when workq is not installed
	Latest  int32    // the newest version that this binary holds
	Pending []string // names of the migrations still to run, in order
}

// UpToDate says that there is nothing to run.
func (s State) UpToDate() bool { return s.Version == s.Latest }

// Newer says that the database was migrated by a newer workq.
func (s State) Newer() bool { return s.Version > s.Latest }

// Status looks at the database at connString and changes nothing. The role needs SELECT on
// public.workq_schema_version, which its owner has.
func Status(ctx context.Context, connString string) (State, error) {
	cfg, err := pgx.ParseConfig(connString)
	if err != nil {
		return State{}, fmt.Errorf("read the connection string: %w", err)
	}
	conn, err := connect(ctx, cfg)
	if err != nil {
		return State{}, err
	}
	defer closeConn(conn)
	version, _, err := currentVersion(ctx, conn)
	if err != nil {
		return State{}, err
	}
	m, err := load(ctx, nil)
	if err != nil {
		return State{}, err
	}
	s := State{Version: version, Latest: int32(len(m.Migrations))}
	for _, step := range m.Migrations {
		if step.Sequence > version {
			s.Pending = append(s.Pending, step.Name)
		}
	}
	return s, nil
}

// currentVersion reads the version table without creating it. A table without a row counts
// as version 0, as it does for tern.
func currentVersion(ctx context.Context, conn *pgx.Conn) (version int32, exists bool, err error) {
	err = conn.QueryRow(ctx, "select to_regclass($1) is not null", VersionTable).Scan(&exists)
	if err != nil {
		return 0, false, fmt.Errorf("look for %s: %w", VersionTable, err)
	}
	if !exists {
		return 0, false, nil
	}
	err = conn.QueryRow(ctx, "select coalesce(max(version), 0) from "+VersionTable).Scan(&version)
	if err != nil {
		return 0, true, fmt.Errorf("read %s: %w", VersionTable, err)
	}
	return version, true, nil
}
