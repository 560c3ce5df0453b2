package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// emptySQL is true when a queue hands out nothing, and the worker $2 has nothing of it. In this order: a
// message that the worker receives in between was ready before.
const emptySQL = `
select case
  when q.paused then true
  when exists (select from workq.peek($1, 1, 'ready')) then false
  else true
end and not exists (select from workq.peek($1, 10000, 'leased') l where l.worker = $2)
from workq.queues($1) q`

// waitUntilEmpty returns when there is nothing to do, ctx is over, or PostgreSQL says no: the queue is gone,
// say. A lost connection it outlives, as the worker does.
func waitUntilEmpty(ctx context.Context, pool *pgxpool.Pool, queue, worker string) error {
	for {
		var empty bool
		err := pool.QueryRow(ctx, emptySQL, queue, worker).Scan(&empty)
		if ctx.Err() != nil {
			return nil
		}
		var pg *pgconn.PgError
		if empty || errors.As(err, &pg) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}
