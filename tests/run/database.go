package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgworkq/workq/client/migrate"
	"github.com/pgworkq/workq/cmd/workq/devpg"
)

// database is a fresh one with workq in it, owned by an ordinary role, seen by a superuser.
type database struct {
	conn    *pgx.Conn // the superuser's, on this database
	version string    // the server's
	close   func()    // removes everything again
}

// openDatabase makes the database on the server at $DATABASE_URL, or on one of its own.
func openDatabase(ctx context.Context, cfg config) (_ *database, err error) {
	var undo []func()
	closeAll := func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()

	url := os.Getenv("DATABASE_URL")
	if url == "" {
		dirs, err := filepath.Glob(".cache/postgresql/*/bin")
		if err != nil {
			return nil, err
		}
		server, err := devpg.Start(ctx, devpg.Options{Major: cfg.major, SearchDirs: dirs})
		if err != nil {
			return nil, err
		}
		undo = append(undo, func() {
			if err := server.Close(); err != nil {
				fmt.Fprintln(os.Stderr, "run:", err)
			}
		})
		url = server.URL("postgres")
	}
	super, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read DATABASE_URL: %w", err)
	}
	first, err := pgx.ConnectConfig(ctx, super)
	if err != nil {
		return nil, fmt.Errorf("connect as superuser: %w", err)
	}
	undo = append(undo, func() { closeConn(first) })

	name, password := "workq_run_"+randomHex(4), randomHex(16)
	quoted := pgx.Identifier{name}.Sanitize()
	undo = append(undo, func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		for _, sql := range []string{"drop database if exists " + quoted + " with (force)", "drop role if exists " + quoted} {
			if _, err := first.Exec(ctx, sql); err != nil {
				fmt.Fprintln(os.Stderr, "run:", err)
			}
		}
	})
	for _, sql := range []string{
		"create role " + quoted + " login nosuperuser password '" + password + "'",
		"create database " + quoted + " owner " + quoted,
	} {
		if _, err := first.Exec(ctx, sql); err != nil {
			return nil, fmt.Errorf("make the database: %w", err)
		}
	}
	owner := super.Copy()
	owner.User, owner.Password, owner.Database = name, password, name
	if _, err := migrate.Run(ctx, owner, migrate.Options{}); err != nil {
		return nil, err
	}
	inside := super.Copy()
	inside.Database = name
	conn, err := pgx.ConnectConfig(ctx, inside)
	if err != nil {
		return nil, fmt.Errorf("connect as superuser: %w", err)
	}
	undo = append(undo, func() { closeConn(conn) })
	version, _, _ := strings.Cut(conn.PgConn().ParameterStatus("server_version"), " ")
	return &database{conn: conn, version: version, close: closeAll}, nil
}

// env is the environment in which psql and its friends find the database.
func (db *database) env() []string {
	cfg := db.conn.Config()
	mode := "disable"
	if cfg.TLSConfig != nil {
		mode = "require"
	}
	return append(os.Environ(),
		"PGHOST="+cfg.Host, "PGPORT="+strconv.Itoa(int(cfg.Port)), "PGUSER="+cfg.User,
		"PGPASSWORD="+cfg.Password, "PGDATABASE="+cfg.Database, "PGSSLMODE="+mode)
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}
