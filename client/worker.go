package client

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"
)

// ErrStopped is the cause with which a stopping worker cancels handlers whose grace period ended.
var ErrStopped = errors.New("workq: worker stopped")

// WorkerOptions configures a [Worker]. The zero value of every field works.
type WorkerOptions struct {
	// Concurrency is how many handlers run at once. Messages are only received for handlers that
	// are free. Defaults to 10.
	Concurrency int

	// Visibility is how long leases last; they are extended while handlers run, so this is how
	// soon others get the messages of a worker that died. Defaults to the queue's visibility.
	Visibility time.Duration

	// PollInterval is the longest time between two looks at an empty queue.
	// Defaults to 30 s while the worker listens for notifications, and to 1 s while it cannot.
	PollInterval time.Duration

	// GracePeriod is how long running handlers may go on when Run's context is cancelled.
	// Then their contexts are cancelled. Defaults to 20 s.
	GracePeriod time.Duration

	// AckInterval is the least time between two settling round trips of a busy worker, in which
	// finished messages gather. An idle worker settles at once. Defaults to 5 ms.
	AckInterval time.Duration

	// CallTimeout bounds each call of the worker to the database. Defaults to 30 s.
	CallTimeout time.Duration

	// DisableMaintenance leaves calling workq.sweep() and workq.maintain() to others, such as
	// pg_cron. Defaults to false: the workers do it, each now and then.
	DisableMaintenance bool

	// Middleware wraps the handler, the first one outermost. Defaults to none.
	Middleware []Middleware

	// Name is the worker's name in the history. Defaults to host name and process id.
	Name string

	// Logger receives failures, panics and lost leases. Defaults to the client's logger.
	Logger *slog.Logger
}

// Worker receives messages of one queue and runs a handler for each. Make one with
// [Client.NewWorker].
type Worker struct {
	client  *Client
	queue   string
	handler Handler
	opts    WorkerOptions
}

// NewWorker returns a worker of queue that runs h for each message. It does nothing until
// [Worker.Run].
func (c *Client) NewWorker(queue string, h Handler, opts WorkerOptions) *Worker {
	return &Worker{client: c, queue: queue, handler: h, opts: opts}
}

// Run works until ctx is cancelled and has drained. It returns an error at once if it cannot
// begin: no connection, no such queue, a schema it does not know. Later errors are logged, and
// it goes on.
//
// When ctx is cancelled the worker receives no more, releases what no handler has begun, waits up
// to GracePeriod for running handlers, and settles their messages. It returns nil if all handlers
// returned.
func (w *Worker) Run(ctx context.Context) error { return errors.New("not built yet") }

type task struct {
	client    *Client
	result    *string
	ackedInTx atomic.Bool
}
