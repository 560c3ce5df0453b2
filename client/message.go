package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Message is one delivery of a message, as [Client.Receive] returns it and a [Handler] gets it.
//
// The settling verbs use Queue, ID and Lease only, so a caller that kept just those may make a
// Message of them.
type Message struct {
	Queue string
	ID    int64
	// Lease is the token that the settling verbs name. Every receive has a greater one.
	Lease int64
	// Attempt counts deliveries, this one included.
	Attempt int
	// MaxAttempts is how many there are at most; nil for no limit.
	MaxAttempts *int
	// LeaseUntil is when others may receive the message, by the database's clock.
	LeaseUntil time.Time
	EnqueuedAt time.Time
	Priority   int
	// GroupKey, Kind and ContentType are "" where there is none.
	GroupKey string
	Kind     string
	// Headers is a JSON object, nil where there is none.
	Headers json.RawMessage
	// Payload is JSON, nil where there is none.
	Payload json.RawMessage
	// Body is nil where there is none.
	Body        []byte
	ContentType string

	// left is what the database said was left of the lease when it sent the row.
	left time.Duration
	task *task
}

// Decode unmarshals the payload into v.
func (m *Message) Decode(v any) error {
	if m.Payload == nil {
		return fmt.Errorf("workq: message %d has no payload", m.ID)
	}
	return json.Unmarshal(m.Payload, v)
}

// errNotInWorker is for methods that make sense within a handler only.
var errNotInWorker = errors.New("workq: the message was not received by a worker")

// SetResult sets the result with which the worker acks the message once the handler returns nil:
// any value that encoding/json can marshal. It returns an error if v cannot be marshalled, so a
// handler may end with "return m.SetResult(v)". Only within a worker's handler.
func (m *Message) SetResult(v any) error {
	if m.task == nil {
		return errNotInWorker
	}
	s, err := jsonText(v)
	if err != nil {
		return fmt.Errorf("workq: result: %w", err)
	}
	m.task.result = s
	return nil
}

// AckTx acks the message within the caller's transaction, so that the handler's own changes in
// it happen exactly once: they commit together with the ack or not at all. result may be nil.
// The worker acks no more, whatever the handler returns; if the transaction was rolled back,
// return an error and the message is failed as usual. Only within a worker's handler.
//
// Keep it the last statement: from here to the end of the transaction the delivery is locked and
// its lease is not extended, as nobody else can receive it.
//
// Errors: [ErrLeaseLost], and then the transaction must be rolled back.
func (m *Message) AckTx(ctx context.Context, tx pgx.Tx, result any) error {
	if m.task == nil {
		return errNotInWorker
	}
	m.task.ackedInTx.Store(true)
	_, err := m.task.client.With(tx).Ack(ctx, m, &AckOptions{Result: result, Strict: true})
	return err
}

// Report stores the progress of the message, any value that encoding/json can marshal, for
// [Client.Get] to show. Only within a worker's handler; elsewhere use [Client.Report].
func (m *Message) Report(ctx context.Context, status any) error {
	if m.task == nil {
		return errNotInWorker
	}
	out, err := m.task.client.Report(ctx, m, status)
	if err == nil && out.Lost() {
		err = ErrLeaseLost
	}
	return err
}

const receivedColumns = "id, lease, attempt, max_attempts, lease_until, enqueued_at, priority, " +
	"coalesce(group_key, ''), coalesce(kind, ''), headers, payload, body, coalesce(content_type, ''), " +
	"extract(epoch from lease_until - clock_timestamp())::float8"

func scanMessage(r pgx.CollectableRow) (*Message, error) {
	m := new(Message)
	var left float64
	err := r.Scan(&m.ID, &m.Lease, &m.Attempt, &m.MaxAttempts, &m.LeaseUntil, &m.EnqueuedAt, &m.Priority,
		&m.GroupKey, &m.Kind, &m.Headers, &m.Payload, &m.Body, &m.ContentType, &left)
	m.left = time.Duration(left * float64(time.Second))
	return m, err
}

// ReceiveOptions are the optional arguments of [Client.Receive]. A field that is not set is not
// sent.
type ReceiveOptions struct {
	// MaxMessages is how many to receive at most, up to 1000.
	MaxMessages int
	// Visibility is how long the leases last.
	Visibility time.Duration
	// Worker is a name for the history.
	Worker string
}

// Receive leases messages, in the order in which they should be worked on; none if nothing is
// ready. It does not wait: see [Client.Idle], or use a [Worker]. opts may be nil.
func (c *Client) Receive(ctx context.Context, queue string, opts *ReceiveOptions) ([]*Message, error) {
	q := fn("receive").arg("queue", queue)
	if opts != nil {
		q.int("max_messages", opts.MaxMessages).dur("visibility", opts.Visibility).str("worker", opts.Worker)
	}
	ms, err := rows(ctx, c.db, q, receivedColumns, scanMessage)
	for _, m := range ms {
		m.Queue = queue
	}
	return ms, err
}

// Idleness is the answer of [Client.Idle].
type Idleness struct {
	// Channel is what to LISTEN on.
	Channel string
	// NextDue is when to receive again if no notification came, by the database's clock.
	NextDue time.Time
	// Wait is how long it was until NextDue when the database answered; 0 if it was past.
	Wait time.Duration
}

// Idle announces that the caller is about to sleep: LISTEN on the channel, call Idle, receive
// once more, then wait for a notification or for NextDue. A [Worker] does all that.
func (c *Client) Idle(ctx context.Context, queue string) (Idleness, error) {
	return row(ctx, c.db, fn("idle").arg("queue", queue), idleColumns, scanIdle)
}

const idleColumns = "channel, next_due, greatest(extract(epoch from next_due - clock_timestamp()), 0)::float8"

func scanIdle(r pgx.CollectableRow) (Idleness, error) {
	var i Idleness
	var wait float64
	err := r.Scan(&i.Channel, &i.NextDue, &wait)
	i.Wait = time.Duration(wait * float64(time.Second))
	return i, err
}
