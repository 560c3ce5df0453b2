package client

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Handler works on a message. When Handle returns nil the worker acks the message, with the
// result that [Message.SetResult] set; else it fails it, unless the error steers otherwise: see
// [RetryAfter], [Permanent] and [Release]. A panic is an error with a stack in its details.
//
// ctx carries the values of the context of [Worker.Run] but not its cancellation. It is cancelled
// when the lease is lost, then context.Cause(ctx) is [ErrLeaseLost], and when a stopping worker's
// grace period ends, then the cause is [ErrStopped]. Handle may be called concurrently.
type Handler interface {
	Handle(ctx context.Context, m *Message) error
}

// HandlerFunc makes a [Handler] of a function.
type HandlerFunc func(ctx context.Context, m *Message) error

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, m *Message) error { return f(ctx, m) }

// Middleware wraps a handler in another, for tracing, metrics, timeouts and the like.
type Middleware func(Handler) Handler

// steerError is an error that says how to settle.
type steerError struct {
	err       error
	retryIn   *time.Duration
	permanent bool
	release   bool
	delay     time.Duration
}

func (e *steerError) Error() string {
	switch {
	case e.err != nil:
		return e.err.Error()
	case e.release:
		return fmt.Sprintf("workq: released for %v", e.delay)
	case e.permanent:
		return "workq: failed for good"
	default:
		return fmt.Sprintf("workq: retry after %v", *e.retryIn)
	}
}

func (e *steerError) Unwrap() error { return e.err }

// RetryAfter makes the error of a handler whose message is to be retried after d instead of the
// queue's retry_delays. It wraps err, and may be wrapped itself. err may be nil.
func RetryAfter(d time.Duration, err error) error { return &steerError{err: err, retryIn: &d} }

// Permanent makes the error of a handler whose message cannot succeed: it becomes a dead letter
// now. It wraps err, and may be wrapped itself.
func Permanent(err error) error { return &steerError{err: err, permanent: true} }

// Release makes the error of a handler that hands its message back, to be delivered again after
// delay. The attempt does not count.
func Release(delay time.Duration) error { return &steerError{release: true, delay: delay} }

// Mux is a [Handler] that chooses another by the message's kind. The zero value is ready to use;
// register all kinds before the worker runs.
//
// A message of a kind that was not registered fails with an error that says so and is retried:
// a newer worker may know the kind.
type Mux struct {
	mu    sync.RWMutex
	kinds map[string]Handler
}

// HandleMessage registers h for messages of kind; "" is for messages without one. It panics if
// the kind has a handler already.
func (x *Mux) HandleMessage(kind string, h Handler) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if _, ok := x.kinds[kind]; ok {
		panic(fmt.Sprintf("workq: kind %q has a handler already", kind))
	}
	if x.kinds == nil {
		x.kinds = make(map[string]Handler)
	}
	x.kinds[kind] = h
}

// Handle calls the handler of the message's kind.
func (x *Mux) Handle(ctx context.Context, m *Message) error {
	x.mu.RLock()
	h := x.kinds[m.Kind]
	x.mu.RUnlock()
	if h == nil {
		return fmt.Errorf("workq: no handler for kind %q", m.Kind)
	}
	return h.Handle(ctx, m)
}

// HandleKind registers f for messages of kind, with their payload unmarshalled into a T. A payload
// that is not a T, or none, makes a dead letter at once, as no retry can mend it.
func HandleKind[T any](x *Mux, kind string, f func(ctx context.Context, m *Message, payload T) error) {
	x.HandleMessage(kind, HandlerFunc(func(ctx context.Context, m *Message) error {
		var v T
		if err := m.Decode(&v); err != nil {
			return Permanent(fmt.Errorf("workq: payload of kind %q is not a %T: %w", kind, v, err))
		}
		return f(ctx, m, v)
	}))
}
