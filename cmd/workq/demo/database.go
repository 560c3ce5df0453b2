package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgworkq/workq/client/migrate"
	"github.com/pgworkq/workq/cmd/workq/devpg"
)

// database is a fresh one with workq in it.
type database struct {
	url   string
	what  string
	close func() error
}

// openDatabase makes a database of its own on the server at that connection string, or with "" on a
// throwaway server. What is in other databases is not touched.
func openDatabase(ctx context.Context, server string) (_ *database, err error) {
	if server != "" {
		name := "workq_demo_" + strings.ToLower(rand.Text()[:8])
		db := &database{what: "Database " + name + " made for this demo"}
		if db.url, err = onDatabase(server, name); err != nil {
			return nil, err
		}
		if err := execute(ctx, server, "create database "+name); err != nil {
			return nil, fmt.Errorf("make a database for the demo (unset DATABASE_URL for a throwaway server): %w", err)
		}
		db.close = func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			return execute(ctx, server, "drop database "+name+" with (force)")
		}
		return db.migrated(ctx)
	}

	// As in production: a commit is on the disk before anybody is told.
	cluster, err := devpg.Start(ctx, devpg.Options{Fsync: true})
	if err != nil {
		return nil, err
	}
	db := &database{
		url:   cluster.URL("workq"),
		what:  fmt.Sprintf("PostgreSQL %s started for this demo (fsync on)", cluster.Version()),
		close: cluster.Close,
	}
	if err := execute(ctx, cluster.URL("postgres"), "create database workq"); err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db.migrated(ctx)
}

func (db *database) migrated(ctx context.Context) (*database, error) {
	if err := migrate.Up(ctx, db.url); err != nil {
		return nil, errors.Join(err, db.close())
	}
	return db, nil
}

// onDatabase is the connection string with another database.
func onDatabase(conn, name string) (string, error) {
	if !strings.Contains(conn, "://") {
		return conn + " dbname=" + name, nil // the last one counts
	}
	u, err := url.Parse(conn)
	if err != nil {
		return "", errors.New("the connection string is no URL") // the error would show the password
	}
	q := u.Query()
	q.Del("dbname")
	u.Path, u.RawQuery = "/"+name, q.Encode()
	return u.String(), nil
}

func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, sql)
	return err
}
