package main

import (
	"context"
	"time"

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

// waitUntilEmpty returns when there is nothing to do, or with an error that the worker will meet as well.
func waitUntilEmpty(ctx context.Context, pool *pgxpool.Pool, queue, worker string) error {
	for {
		var empty bool
		if err := pool.QueryRow(ctx, emptySQL, queue, worker).Scan(&empty); err != nil || empty {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
