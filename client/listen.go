package client

import (
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

type listener struct{}

func newListener(*pgxpool.Pool, *pgx.ConnConfig, *slog.Logger) *listener { return &listener{} }
