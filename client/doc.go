// Package client is the Go client of workq, a work queue that lives inside PostgreSQL.
//
// All queue logic is SQL functions in the schema workq. This package wraps them in types and
// adds what SQL cannot do: a [Worker] that receives messages, runs a [Handler] for each, keeps
// their leases alive and settles them. No default and no rule is repeated here: an option that
// is not set is not sent, and the function's own default holds.
//
//	c := client.New(pool, client.Options{})
//	_, err := c.Enqueue(ctx, "emails", Email{To: "ada@example.com"}, nil)
//
//	w := c.NewWorker("emails", client.HandlerFunc(func(ctx context.Context, m *client.Message) error {
//		var e Email
//		if err := m.Decode(&e); err != nil {
//			return client.Permanent(err)
//		}
//		return send(ctx, e)
//	}), client.WorkerOptions{Concurrency: 20})
//	err = w.Run(ctx) // until ctx is cancelled, then drains
//
// # Transactions
//
// [Client.With] gives a client that speaks through a transaction, so that a message exists
// exactly when the transaction commits:
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		// … the business rows …
//		_, err := c.With(tx).Enqueue(ctx, "emails", email, nil)
//		return err
//	})
//
// # Delivery
//
// Delivery is at least once: a message whose worker died, or whose ack was lost on the way, is
// delivered again. The lease decides whose settling counts: every receive stamps a new lease
// number, and a call that names an older one changes nothing and is told [Stale] or [Gone].
// Effects in the same database are exactly once when the handler does them and
// [Message.AckTx] in one transaction.
//
// # Errors
//
// Errors that PostgreSQL raises for workq are [*Error]; errors.Is finds the sentinels
// ([ErrQueueNotFound], …) by SQLSTATE and errors.As finds the *pgconn.PgError.
//
// # Connections
//
// Calls use whatever execution mode and pooler the pool is configured for; no session state is
// kept, so PgBouncer in transaction mode works. A worker needs up to three connections of the
// pool now and then (fetching, extending leases, maintenance), beside those its handlers use,
// and one connection of its own for LISTEN that all workers of a Client share. Where that one
// cannot be had, workers poll.
package client
