package client

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// QueueSettings are the settings of a queue. A field that is nil is not sent: SQL's default holds
// at creation, and the setting stays as it is at alteration. new(v) makes a pointer to a value.
type QueueSettings struct {
	Visibility       *time.Duration  // how long a lease lasts
	VisibilityFactor *float64        // the nth attempt's lease is Visibility × factor^(n-1)
	MaxVisibility    *time.Duration  // no lease and no extension is longer
	MaxAttempts      *int            // deliveries before it is a dead letter
	RetryDelays      []time.Duration // the nth failure waits the nth, the last repeats
	RetryJitter      *float64        // share of the delay that is random
	TTL              *time.Duration  // unfinished this long after first visible: a dead letter
	Retention        *time.Duration  // finished messages and history are kept this long
	DeadRetention    *time.Duration  // dead letters are kept this long
	DeadLetterQueue  *string         // where dead letters go; they stay here if there is none
	History          *string         // all, failures or none
	Keyed            *string         // none, fair, limited or ordered
	KeyLimit         *int
	ClearDeadOnAck   *bool
	MaxInFlight      *int
	RateLimit        *int
	RatePeriod       *time.Duration
	LIFOAfter        *time.Duration
	MaxPayloadBytes  *int
	MaxDepth         *int64
	DedupeScope      *string // waiting, unfinished or window
	Notify           *bool
	Paused           *bool
}

func (s *QueueSettings) addTo(q *call) {
	opt(q, "visibility", s.Visibility)
	opt(q, "visibility_factor", s.VisibilityFactor)
	opt(q, "max_visibility", s.MaxVisibility)
	opt(q, "max_attempts", s.MaxAttempts)
	if s.RetryDelays != nil {
		q.arg("retry_delays", s.RetryDelays)
	}
	opt(q, "retry_jitter", s.RetryJitter)
	opt(q, "ttl", s.TTL)
	opt(q, "retention", s.Retention)
	opt(q, "dead_retention", s.DeadRetention)
	opt(q, "dead_letter_queue", s.DeadLetterQueue)
	opt(q, "history", s.History)
	opt(q, "keyed", s.Keyed)
	opt(q, "key_limit", s.KeyLimit)
	opt(q, "clear_dead_on_ack", s.ClearDeadOnAck)
	opt(q, "max_in_flight", s.MaxInFlight)
	opt(q, "rate_limit", s.RateLimit)
	opt(q, "rate_period", s.RatePeriod)
	opt(q, "lifo_after", s.LIFOAfter)
	opt(q, "max_payload_bytes", s.MaxPayloadBytes)
	opt(q, "max_depth", s.MaxDepth)
	opt(q, "dedupe_scope", s.DedupeScope)
	opt(q, "notify", s.Notify)
	opt(q, "paused", s.Paused)
}

// Queue is a queue and its settings. What is nil is null: no limit, no ttl, no dead-letter queue.
type Queue struct {
	Name             string
	CreatedAt        time.Time
	Visibility       time.Duration
	VisibilityFactor float64
	MaxVisibility    time.Duration
	MaxAttempts      *int
	RetryDelays      []time.Duration
	RetryJitter      float64
	TTL              *time.Duration
	Retention        time.Duration
	DeadRetention    time.Duration
	DeadLetterQueue  *string
	History          string
	MaxPayloadBytes  int
	MaxDepth         *int64
	Notify           bool
	Paused           bool
}

const queueColumns = "queue, created_at, visibility, visibility_factor, max_visibility, max_attempts, retry_delays, " +
	"retry_jitter, ttl, retention, dead_retention, dead_letter_queue, history, max_payload_bytes, max_depth, notify, paused"

func (c *Client) queue(ctx context.Context, q *call) (Queue, error) {
	return row(ctx, c.db, q, queueColumns, pgx.RowToStructByPos[Queue])
}

// CreateQueue creates a queue. If it exists with these settings nothing happens.
// Errors: [ErrQueueExists], [ErrInvalidArgument], [ErrNotSupported].
func (c *Client) CreateQueue(ctx context.Context, queue string, settings QueueSettings) (Queue, error) {
	q := fn("create_queue").arg("queue", queue)
	settings.addTo(q)
	return c.queue(ctx, q)
}

// AlterQueue changes settings of a queue; those named in unset, as SQL names them, are set to null.
// Errors: [ErrQueueNotFound], [ErrInvalidArgument], [ErrNotSupported].
func (c *Client) AlterQueue(ctx context.Context, queue string, settings QueueSettings, unset ...string) (Queue, error) {
	q := fn("alter_queue").arg("queue", queue)
	settings.addTo(q)
	if unset != nil {
		q.arg("clear", unset)
	}
	return c.queue(ctx, q)
}

// Queues lists the queues by name.
func (c *Client) Queues(ctx context.Context) ([]Queue, error) {
	return rows(ctx, c.db, fn("queues"), queueColumns, pgx.RowToStructByPos[Queue])
}

// Queue returns one queue. Errors: [ErrQueueNotFound].
func (c *Client) Queue(ctx context.Context, queue string) (Queue, error) {
	return c.queue(ctx, fn("queues").arg("queue", queue))
}

// PauseQueue stops delivery from a queue until [Client.ResumeQueue]. Leases are not touched.
func (c *Client) PauseQueue(ctx context.Context, queue string) (Queue, error) {
	return c.queue(ctx, fn("pause_queue").arg("queue", queue))
}

// ResumeQueue ends [Client.PauseQueue].
func (c *Client) ResumeQueue(ctx context.Context, queue string) (Queue, error) {
	return c.queue(ctx, fn("resume_queue").arg("queue", queue))
}

// PurgeQueue removes all unfinished messages of a queue and returns how many.
func (c *Client) PurgeQueue(ctx context.Context, queue string) (int64, error) {
	return value[int64](ctx, c.db, fn("purge_queue").arg("queue", queue))
}

// DropQueue removes a queue. Errors: [ErrQueueNotEmpty] unless force is set.
func (c *Client) DropQueue(ctx context.Context, queue string, force bool) error {
	return c.exec(ctx, fn("drop_queue").arg("queue", queue).arg("force", force))
}

// Cancel ends an unfinished message, and takes the lease of one that is being worked on, so that
// its worker's next call is told. The outcome is [Cancelled], [Revoked] or [Gone].
func (c *Client) Cancel(ctx context.Context, queue string, id int64) (Outcome, error) {
	return value[Outcome](ctx, c.db, fn("cancel").arg("queue", queue).arg("id", id))
}

// RunNow makes a message that waits for its time visible; false if there was none.
func (c *Client) RunNow(ctx context.Context, queue string, id int64) (bool, error) {
	return value[bool](ctx, c.db, fn("run_now").arg("queue", queue).arg("id", id))
}

// RedriveOptions are the optional arguments of [Client.Redrive]. A field that is not set is not
// sent.
type RedriveOptions struct {
	ToQueue     string  // defaults to the queue they died in
	MaxMessages int     // the most that are moved
	Reason      string  // only dead letters with this reason
	IDs         []int64 // only these
	DryRun      bool    // count, change nothing
}

// Redrive delivers dead letters of queue anew and returns how many. opts may be nil.
func (c *Client) Redrive(ctx context.Context, queue string, opts *RedriveOptions) (int64, error) {
	q := fn("redrive").arg("queue", queue)
	if opts != nil {
		q.str("to_queue", opts.ToQueue).int("max_messages", opts.MaxMessages).str("reason", opts.Reason)
		if opts.IDs != nil {
			q.arg("ids", opts.IDs)
		}
		if opts.DryRun {
			q.arg("dry_run", true)
		}
	}
	return value[int64](ctx, c.db, q)
}

// Sweep moves expired and exhausted messages to the dead letters and forgets old dead letters, a
// bounded number of each. A maxRows of 0 is SQL's default. Workers do it unless told not to.
func (c *Client) Sweep(ctx context.Context, maxRows int) (SweepCounts, error) {
	return row(ctx, c.db, fn("sweep").int("max_rows", maxRows), "exhausted, expired, dead_removed", pgx.RowToStructByPos[SweepCounts])
}

// SweepCounts is what a [Client.Sweep] did.
type SweepCounts struct {
	Exhausted   int // leases that ran out on the last attempt
	Expired     int // messages past their ttl
	DeadRemoved int // dead letters past their retention
}

// Maintain makes partitions ahead of time and drops what retention allows. Workers do it unless
// told not to.
func (c *Client) Maintain(ctx context.Context) ([]Maintenance, error) {
	return rows(ctx, c.db, fn("maintain"), "action, target", pgx.RowToStructByPos[Maintenance])
}

// Maintenance is one thing that [Client.Maintain] did.
type Maintenance struct{ Action, Target string }

// Version is the version of the schema.
func (c *Client) Version(ctx context.Context) (string, error) {
	return value[string](ctx, c.db, fn("version"))
}
