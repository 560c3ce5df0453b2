package main

import (
	"cmp"
	"context"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// databaseURL may be "": then the PG* variables hold.
func databaseURL(cmd *cobra.Command) string {
	url, _ := cmd.Flags().GetString("database-url")
	return cmp.Or(url, os.Getenv("DATABASE_URL"))
}

// connectTimeout holds where the user says nothing: pgx would wait forever.
const connectTimeout = 10 * time.Second

func withDefaults(cfg *pgx.ConnConfig) *pgx.ConnConfig {
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "workq"
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectTimeout
	}
	return cfg
}

func connConfig(cmd *cobra.Command) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig(databaseURL(cmd))
	if err != nil {
		return nil, err
	}
	if cfg.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		// For the one call that most commands make: a round trip less, and any pooler will do.
		cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return withDefaults(cfg), nil
}

// connect runs f with a connection.
func connect(cmd *cobra.Command, f func(ctx context.Context, conn *pgx.Conn) error) error {
	cfg, err := connConfig(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(ctx)
	}()
	return f(ctx, conn)
}

// newPool gives a pool that has connected once.
func newPool(cmd *cobra.Command) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(databaseURL(cmd))
	if err != nil {
		return nil, err
	}
	withDefaults(cfg.ConnConfig)
	pool, err := pgxpool.NewWithConfig(cmd.Context(), cfg)
	if err != nil {
		return nil, err
	}
	if err := pool.Ping(cmd.Context()); err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}
