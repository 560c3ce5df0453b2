package client

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Receipt says what became of an enqueue.
type Receipt struct {
	// ID of the message; of the earlier one if this one was a duplicate.
	ID int64
	// Duplicate is true if a message with the same dedupe key existed and nothing was added.
	Duplicate bool
	// VisibleAt is the time from which the message can be received, by the database's clock.
	VisibleAt time.Time
}

// EnqueueOptions are the optional arguments of [Client.Enqueue]. A field that is not set is not
// sent.
type EnqueueOptions struct {
	// Body is binary content, beside or instead of the payload. An empty slice that is not nil is
	// an empty body.
	Body []byte
	// ContentType of Body, as in MIME.
	ContentType string
	// Kind names the type of the payload; a [Mux] chooses the handler by it.
	Kind string
	// Headers is any value that marshals to a JSON object.
	Headers any
	// Priority is 0 (first) to 10 (last).
	Priority *int
	// Delay until the message can be received. Excludes RunAt.
	Delay time.Duration
	// RunAt is the time from which the message can be received. Excludes Delay.
	RunAt time.Time
	// GroupKey joins messages that share a limit, an order or a turn.
	GroupKey string
	// DedupeKey makes messages with the same key the same message.
	DedupeKey string
	// DedupeFor is how long DedupeKey holds, where the queue's scope is a window.
	DedupeFor time.Duration
	// TTL is how long after it first became visible the message is given up on.
	TTL time.Duration
	// MaxAttempts is how many deliveries there are at most.
	MaxAttempts int
}

// Enqueue adds a message to queue. payload is nil, a json.RawMessage that is passed as it is, or
// any value that encoding/json can marshal (a []byte becomes a base64 string: for bytes, use
// EnqueueOptions.Body). opts may be nil. The message exists once the transaction that c speaks
// through commits; at once on a pool.
//
// Errors: [ErrQueueNotFound], [ErrPayloadTooLarge], [ErrQueueFull], [ErrNoAccess],
// [ErrInvalidArgument], [ErrNotSupported].
func (c *Client) Enqueue(ctx context.Context, queue string, payload any, opts *EnqueueOptions) (Receipt, error) {
	q, err := fn("enqueue").arg("queue", queue).json("payload", payload)
	if err != nil {
		return Receipt{}, err
	}
	if o := opts; o != nil {
		if o.Body != nil {
			q.arg("body", o.Body)
		}
		q.str("content_type", o.ContentType).str("kind", o.Kind)
		if q, err = q.json("headers", o.Headers); err != nil {
			return Receipt{}, err
		}
		opt(q, "priority", o.Priority)
		q.dur("delay", o.Delay).time("run_at", o.RunAt)
		q.str("group_key", o.GroupKey).str("dedupe_key", o.DedupeKey).dur("dedupe_for", o.DedupeFor)
		q.dur("ttl", o.TTL).int("max_attempts", o.MaxAttempts)
	}
	return row(ctx, c.db, q, "id, duplicate, visible_at", pgx.RowToStructByPos[Receipt])
}

// NewMessage is one message of [Client.EnqueueMany]. Its fields are those of [EnqueueOptions].
type NewMessage struct {
	Payload     any
	Body        []byte
	ContentType string
	Kind        string
	Headers     any
	Priority    *int
	RunAt       time.Time
	GroupKey    string
	DedupeKey   string
}

// EnqueueManyOptions are the arguments that all messages of a [Client.EnqueueMany] share. A field
// that is not set is not sent.
type EnqueueManyOptions struct {
	DedupeFor   time.Duration
	TTL         time.Duration
	MaxAttempts int
}

// EnqueueMany adds messages to queue in one call: all or none. Receipts come in the order of
// messages. opts may be nil. Errors as for [Client.Enqueue].
func (c *Client) EnqueueMany(ctx context.Context, queue string, messages []NewMessage, opts *EnqueueManyOptions) ([]Receipt, error) {
	if len(messages) == 0 {
		return nil, nil
	}
	payloads, headers := make([]any, len(messages)), make([]any, len(messages))
	bodies, anyBody := make([][]byte, len(messages)), false
	for i, m := range messages {
		payloads[i], headers[i], bodies[i] = m.Payload, m.Headers, m.Body
		anyBody = anyBody || m.Body != nil
	}
	texts, err := jsonTexts(payloads)
	if err != nil {
		return nil, err
	}
	if texts == nil {
		texts = make([]*string, len(messages)) // says how many there are
	}
	q := fn("enqueue_many").arg("queue", queue).arg("payloads::text[]::jsonb[]", texts)
	if anyBody {
		q.arg("bodies", bodies)
	}
	if texts, err = jsonTexts(headers); err != nil {
		return nil, err
	}
	array(q, "headers::text[]::jsonb[]", texts)
	array(q, "content_types", column(messages, func(m *NewMessage) *string { return nonzero(m.ContentType) }))
	array(q, "kinds", column(messages, func(m *NewMessage) *string { return nonzero(m.Kind) }))
	array(q, "priorities", column(messages, func(m *NewMessage) *int { return m.Priority }))
	array(q, "run_ats", column(messages, func(m *NewMessage) *time.Time { return nonzero(m.RunAt) }))
	array(q, "group_keys", column(messages, func(m *NewMessage) *string { return nonzero(m.GroupKey) }))
	array(q, "dedupe_keys", column(messages, func(m *NewMessage) *string { return nonzero(m.DedupeKey) }))
	if opts != nil {
		q.dur("dedupe_for", opts.DedupeFor).dur("ttl", opts.TTL).int("max_attempts", opts.MaxAttempts)
	}
	return rows(ctx, c.db, q, "id, duplicate, visible_at", pgx.RowToStructByPos[Receipt])
}

// array adds vs unless it is nil.
func array[T any](q *call, name string, vs []*T) {
	if vs != nil {
		q.arg(name, vs)
	}
}
