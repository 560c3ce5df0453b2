package client

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Outcome says what a settling verb did.
type Outcome string

const (
	Acked    Outcome = "acked"
	Retry    Outcome = "retry" // failed, will be delivered again
	Dead     Outcome = "dead"  // failed for good, a dead letter now
	Released Outcome = "released"
	Extended Outcome = "extended"
	Reported Outcome = "reported"
	// Cancelled: it was waiting. Revoked: a worker had it, whose next call is told [Gone].
	Cancelled Outcome = "cancelled"
	Revoked   Outcome = "revoked"
	// Stale: nothing changed, the message was received again since.
	Stale Outcome = "stale"
	// Gone: nothing changed, the message is finished, dead or cancelled.
	Gone Outcome = "gone"
)

// Lost is true if the lease was lost and nothing changed.
func (o Outcome) Lost() bool { return o == Stale || o == Gone }

// AckOptions are the optional arguments of [Client.Ack].
type AckOptions struct {
	// Result is any value that marshals to JSON, kept in the history.
	Result any
	// Strict makes a lost lease an error, [ErrLeaseLost], which undoes the transaction it is in.
	Strict bool
}

// Ack finishes the message. opts may be nil.
// The outcome is [Acked], [Stale] or [Gone]; the error is about the call itself.
func (c *Client) Ack(ctx context.Context, m *Message, opts *AckOptions) (Outcome, error) {
	q := settle("ack", m)
	if opts != nil {
		var err error
		if q, err = q.json("result", opts.Result); err != nil {
			return "", err
		}
		if opts.Strict {
			q.arg("strict", true)
		}
	}
	return value[Outcome](ctx, c.db, q)
}

// AckMany finishes messages of one queue in one call. results may be nil, else it has one element,
// which may be nil, for each message. Outcomes come in the order of messages.
func (c *Client) AckMany(ctx context.Context, queue string, messages []*Message, results []any) ([]Outcome, error) {
	texts, err := jsonTexts(results)
	if err != nil {
		return nil, err
	}
	return settleMany(ctx, c.db, ackMany(queue, messages, texts), len(messages))
}

// FailOptions are the optional arguments of [Client.Fail]. A field that is not set is not sent.
type FailOptions struct {
	// Error is why, for people.
	Error string
	// RetryIn is when to deliver again. Defaults to the queue's retry_delays.
	RetryIn *time.Duration
	// Permanent makes a dead letter of the message now, whatever attempts are left.
	Permanent bool
	// Details is any value that marshals to JSON, for instance a stack.
	Details any
}

// Fail ends this attempt: the message is retried later or becomes a dead letter. opts may be nil.
// The outcome is [Retry], [Dead], [Stale] or [Gone]; the error is about the call itself.
func (c *Client) Fail(ctx context.Context, m *Message, opts *FailOptions) (Outcome, error) {
	q := settle("fail", m)
	if opts != nil {
		q.str("error", opts.Error)
		opt(q, "retry_in", opts.RetryIn)
		if opts.Permanent {
			q.arg("permanent", true)
		}
		var err error
		if q, err = q.json("details", opts.Details); err != nil {
			return "", err
		}
	}
	return value[Outcome](ctx, c.db, q)
}

// FailMany fails messages of one queue in one call; opts is nil or has one element for each.
// Outcomes come in the order of messages.
func (c *Client) FailMany(ctx context.Context, queue string, messages []*Message, opts []FailOptions) ([]Outcome, error) {
	raw := make([]any, len(opts))
	for i := range opts {
		raw[i] = opts[i].Details
	}
	details, err := jsonTexts(raw)
	if err != nil {
		return nil, err
	}
	return settleMany(ctx, c.db, failMany(queue, messages, opts, details), len(messages))
}

// Extend pushes the lease's deadline out and returns the new one. A visibility of 0 is the
// queue's own. Errors: [ErrLeaseLost].
func (c *Client) Extend(ctx context.Context, m *Message, visibility time.Duration) (time.Time, error) {
	until, err := value[*time.Time](ctx, c.db, settle("extend", m).dur("visibility", visibility))
	if err != nil {
		return time.Time{}, err
	}
	if until == nil {
		return time.Time{}, ErrLeaseLost
	}
	return *until, nil
}

// ExtendMany extends the leases of messages of one queue in one call. A visibility of 0 is the
// queue's own. Outcomes, in the order of messages, are [Extended], [Stale] or [Gone].
func (c *Client) ExtendMany(ctx context.Context, queue string, messages []*Message, visibility time.Duration) ([]Outcome, error) {
	return settleMany(ctx, c.db, extendMany(queue, messages, func(*Message) time.Duration { return visibility }), len(messages))
}

// Release hands the message back as if it had not been received, to be delivered after delay;
// the attempt does not count. The outcome is [Released], [Stale] or [Gone].
func (c *Client) Release(ctx context.Context, m *Message, delay time.Duration) (Outcome, error) {
	return value[Outcome](ctx, c.db, settle("release", m).dur("delay", delay))
}

// ReleaseMany releases messages of one queue in one call. Outcomes come in the order of messages.
func (c *Client) ReleaseMany(ctx context.Context, queue string, messages []*Message, delay time.Duration) ([]Outcome, error) {
	return settleMany(ctx, c.db, releaseMany(queue, messages, func(int) time.Duration { return delay }), len(messages))
}

// Report stores the progress of a message, any value that marshals to JSON, for [Client.Get] to
// show. The outcome is [Reported], [Stale] or [Gone].
func (c *Client) Report(ctx context.Context, m *Message, status any) (Outcome, error) {
	q, err := settle("report", m).json("status", status)
	if err != nil {
		return "", err
	}
	return value[Outcome](ctx, c.db, q)
}

func settle(verb string, m *Message) *call {
	return fn(verb).arg("queue", m.Queue).arg("id", m.ID).arg("lease", m.Lease)
}

func many(verb, queue string, ms []*Message) *call {
	ids, leases := make([]int64, len(ms)), make([]int64, len(ms))
	for i, m := range ms {
		ids[i], leases[i] = m.ID, m.Lease
	}
	return fn(verb).arg("queue", queue).arg("ids", ids).arg("leases", leases)
}

func ackMany(queue string, ms []*Message, results []*string) *call {
	q := many("ack_many", queue, ms)
	array(q, "results::text[]::jsonb[]", results)
	return q
}

func failMany(queue string, ms []*Message, opts []FailOptions, details []*string) *call {
	q := many("fail_many", queue, ms)
	array(q, "errors", column(opts, func(o *FailOptions) *string { return nonzero(o.Error) }))
	array(q, "retry_ins", column(opts, func(o *FailOptions) *time.Duration { return o.RetryIn }))
	array(q, "permanents", column(opts, func(o *FailOptions) *bool { return nonzero(o.Permanent) }))
	array(q, "details::text[]::jsonb[]", details)
	return q
}

func extendMany(queue string, ms []*Message, visibility func(*Message) time.Duration) *call {
	q := many("extend_many", queue, ms)
	array(q, "visibilities", column(ms, func(m **Message) *time.Duration { return nonzero(visibility(*m)) }))
	return q
}

func releaseMany(queue string, ms []*Message, delay func(int) time.Duration) *call {
	q := many("release_many", queue, ms)
	i := -1
	array(q, "delays", column(ms, func(**Message) *time.Duration { i++; return nonzero(delay(i)) }))
	return q
}

// maxBatch is how many messages a worker receives or settles in one call.
const maxBatch = 1000

// settleMany runs a *_many verb over n messages and returns its outcomes in their order.
func settleMany(ctx context.Context, db Querier, q *call, n int) ([]Outcome, error) {
	r, err := db.Query(ctx, q.sql(settledColumns), q.args...)
	if err != nil {
		return nil, wrap(err)
	}
	out, err := collectSettled(r, n)
	return out, wrap(err)
}

const settledColumns = "ord, outcome"

func collectSettled(r pgx.Rows, n int) ([]Outcome, error) {
	out := make([]Outcome, n)
	var ord int
	var o Outcome
	_, err := pgx.ForEachRow(r, []any{&ord, &o}, func() error {
		if ord < 1 || ord > n {
			return fmt.Errorf("workq: outcome %d of %d", ord, n)
		}
		out[ord-1] = o
		return nil
	})
	return out, err
}
