package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// MessageInfo is a message as [Client.Get] and [Client.Peek] show it. Pointers are nil, and strings
// empty, where there is nothing to say.
type MessageInfo struct {
	ID          int64
	Queue       string
	State       string
	Attempt     *int
	MaxAttempts *int
	Lease       *int64
	VisibleAt   *time.Time
	ReceivedAt  *time.Time
	EnqueuedAt  *time.Time
	ExpiresAt   *time.Time
	FinishedAt  *time.Time
	Priority    *int
	Worker      string
	Status      json.RawMessage // what the worker reported
	Result      json.RawMessage
	Reason      string
	Error       string
	Kind        string
	Headers     json.RawMessage
	Payload     json.RawMessage
	Body        []byte
	ContentType string
}

const messageColumns = "id, queue, state, attempt, max_attempts, lease, visible_at, received_at, enqueued_at, expires_at, " +
	"finished_at, priority, coalesce(worker, ''), status, result, coalesce(reason, ''), coalesce(error, ''), " +
	"coalesce(kind, ''), headers, payload, body, coalesce(content_type, '')"

// Get returns a message, finished or not, as long as it is stored.
func (c *Client) Get(ctx context.Context, queue string, id int64) (MessageInfo, error) {
	return row(ctx, c.db, fn("get").arg("queue", queue).arg("id", id), messageColumns, pgx.RowToStructByPos[MessageInfo])
}

// PeekOptions are the optional arguments of [Client.Peek]. A field that is not set is not sent.
type PeekOptions struct {
	MaxMessages int
	State       string // only messages in this state
}

// Peek shows unfinished messages without receiving them. opts may be nil.
func (c *Client) Peek(ctx context.Context, queue string, opts *PeekOptions) ([]MessageInfo, error) {
	q := fn("peek").arg("queue", queue)
	if opts != nil {
		q.int("max_messages", opts.MaxMessages).str("state", opts.State)
	}
	return rows(ctx, c.db, q, messageColumns, pgx.RowToStructByPos[MessageInfo])
}

// Attempt is one finished attempt.
type Attempt struct {
	ID         int64
	Attempt    int
	Lease      *int64
	StartedAt  *time.Time
	FinishedAt time.Time
	Outcome    string
	Reason     string
	Worker     string
	Error      string
	Details    json.RawMessage
	Result     json.RawMessage
}

// History returns the finished attempts of a message.
func (c *Client) History(ctx context.Context, queue string, id int64) ([]Attempt, error) {
	return rows(ctx, c.db, fn("history").arg("queue", queue).arg("id", id),
		"id, attempt, lease, started_at, finished_at, outcome, coalesce(reason, ''), coalesce(worker, ''), "+
			"coalesce(error, ''), details, result", pgx.RowToStructByPos[Attempt])
}

// DeadLetter is a message that was given up on.
type DeadLetter struct {
	ID          int64
	DiedAt      time.Time
	Reason      string // attempts_exhausted, permanent or expired
	Attempt     int
	MaxAttempts *int
	Priority    int
	Error       string
	Details     json.RawMessage
	EnqueuedAt  time.Time
	Kind        string
	Headers     json.RawMessage
	Payload     json.RawMessage
	Body        []byte
	ContentType string
}

// DeadLetterOptions are the optional arguments of [Client.DeadLetters]. A field that is not set is
// not sent.
type DeadLetterOptions struct {
	MaxMessages int
	Reason      string // only those with this reason
}

// DeadLetters shows dead letters of a queue. opts may be nil.
func (c *Client) DeadLetters(ctx context.Context, queue string, opts *DeadLetterOptions) ([]DeadLetter, error) {
	q := fn("dead_letters").arg("queue", queue)
	if opts != nil {
		q.int("max_messages", opts.MaxMessages).str("reason", opts.Reason)
	}
	return rows(ctx, c.db, q,
		"id, died_at, reason, attempt, max_attempts, priority, coalesce(error, ''), details, enqueued_at, "+
			"coalesce(kind, ''), headers, payload, body, coalesce(content_type, '')", pgx.RowToStructByPos[DeadLetter])
}

// QueueStats are the counts of a queue.
type QueueStats struct {
	Queue    string
	Ready    int64
	Delayed  int64
	Leased   int64
	Retrying int64
	Dead     int64
	// OldestReady is the age of the oldest message that is ready, nil if none is.
	OldestReady       *time.Duration
	EnqueuedPerSecond *float64
	AckedPerSecond    *float64
	FailedPerSecond   *float64
	Paused            bool
	// Estimated is true where a count is too large to be exact.
	Estimated bool
}

// Stats returns the counts of a queue, or of all if queue is "".
func (c *Client) Stats(ctx context.Context, queue string) ([]QueueStats, error) {
	return rows(ctx, c.db, fn("stats").str("queue", queue),
		"queue, ready, delayed, leased, retrying, dead, oldest_ready, enqueued_per_second, acked_per_second, "+
			"failed_per_second, paused, estimated", pgx.RowToStructByPos[QueueStats])
}
