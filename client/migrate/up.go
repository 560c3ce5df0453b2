package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	tern "github.com/jackc/tern/v2/migrate"
)

// Options of Run. The zero value migrates to the newest version without a word.
type Options struct {
	// To is the version to stop at; a database that is there already, or beyond it, is left
	// as it is. Defaults to 0: the newest.
	To int32
	// OnStep is called before each migration. Defaults to nil: nothing is called.
	OnStep func(version int32, name string)
}

// Result of Run.
type Result struct {
	From int32 // the version found, 0 for a database without workq
	To   int32 // the version it has now
}

// Up brings the database at connString (a URL or key=value pairs; empty means the PG*
// environment variables) to the newest version. It opens a connection of its own and
// closes it. Any number of processes may call it at once: one migrates, the others wait
// and find nothing left to do. A database that is newer than the binary is refused with
// ErrNewer.
func Up(ctx context.Context, connString string) error {
	cfg, err := pgx.ParseConfig(connString)
	if err != nil {
		return fmt.Errorf("read the connection string: %w", err)
	}
	_, err = Run(ctx, cfg, Options{})
	return err
}

// Run is Up with options and a parsed configuration. Each migration is one transaction:
// after an error the database is at the version before the one that failed.
func Run(ctx context.Context, cfg *pgx.ConnConfig, opts Options) (Result, error) {
	conn, err := connect(ctx, cfg)
	if err != nil {
		return Result{}, err
	}
	defer closeConn(conn)

	// Looked at before anything is written, so that a refusal leaves no trace.
	from, _, err := currentVersion(ctx, conn)
	if err != nil {
		return Result{}, err
	}
	latest, err := Latest()
	if err != nil {
		return Result{}, err
	}
	if from > latest {
		return Result{From: from, To: from}, &NewerError{Database: from, Binary: latest}
	}
	to := opts.To
	if to == 0 {
		to = latest
	}
	if to < 0 || to > latest {
		return Result{From: from, To: from}, fmt.Errorf("schema version %d does not exist: choose 1 to %d", to, latest)
	}
	if from >= to {
		return Result{From: from, To: from}, nil
	}

	// A role's or database's timeouts must not end a migration that waits for another one.
	if _, err := conn.Exec(ctx, "set statement_timeout = 0; set lock_timeout = 0"); err != nil {
		return Result{}, fmt.Errorf("prepare the session: %w", err)
	}
	m, err := load(ctx, conn)
	if err != nil {
		return Result{}, explain(err)
	}
	m.OnStart = func(version int32, name, _, _ string) {
		// tern resets the session after each migration. Building takes as long as it takes, but
		// a lock_timeout that somebody chose keeps senders from queueing behind us.
		_, _ = conn.Exec(ctx, "set local statement_timeout = 0; reset lock_timeout")
		if opts.OnStep != nil {
			opts.OnStep(version, name)
		}
	}
	err = forward(ctx, m, to)
	if err != nil {
		return Result{From: from, To: from}, explain(err)
	}
	now, _, err := currentVersion(ctx, conn)
	if err != nil {
		return Result{From: from, To: from}, err
	}
	return Result{From: from, To: now}, nil
}

// forward migrates to the version, never down. tern decides the direction after it has
// waited for its lock, and would undo a process that migrated further in the meantime. As load
// leaves no way down, tern refuses instead, and there is nothing left to do.
func forward(ctx context.Context, m *tern.Migrator, to int32) error {
	err := m.MigrateTo(ctx, to)
	var irreversible tern.IrreversibleMigrationError
	if errors.As(err, &irreversible) {
		return nil
	}
	var bad tern.BadVersionError
	if errors.As(err, &bad) {
		if v, verr := m.GetCurrentVersion(ctx); verr == nil && v > int32(len(m.Migrations)) {
			return &NewerError{Database: v, Binary: int32(len(m.Migrations))}
		}
	}
	return err
}

// explain adds the way out to errors that have one.
func explain(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == "42501" {
		return fmt.Errorf("migrate: %w (the role that migrates needs CREATE on the database and on schema public: "+
			"grant them, or migrate as the owner of the database)", err)
	}
	return fmt.Errorf("migrate: %w", err)
}

func connect(ctx context.Context, cfg *pgx.ConnConfig) (*pgx.Conn, error) {
	cfg = cfg.Copy()
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "workq migrate"
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to migrate: %w", err)
	}
	return conn, nil
}

// closeConn closes without waiting on a context that may be over.
func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}
