package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
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
	log     *slog.Logger
}

const (
	// The newest major version of the schema that this worker knows how to talk to.
	knownMajor = 0

	// How long after the end of the grace period handlers have to return, and how long a stopping
	// worker tries to store results.
	stopTimeout = 5 * time.Second

	// Maintenance, per worker, so that an idle worker makes fewer than 0.2 queries a second in all.
	sweepEvery    = 30 * time.Second
	maintainEvery = 5 * time.Minute
)

// NewWorker returns a worker of queue that runs h for each message. It does nothing until
// [Worker.Run], and uses the pool that c was made with.
func (c *Client) NewWorker(queue string, h Handler, opts WorkerOptions) *Worker {
	opts.Concurrency = cmp.Or(opts.Concurrency, 10)
	opts.GracePeriod = cmp.Or(opts.GracePeriod, 20*time.Second)
	opts.AckInterval = cmp.Or(opts.AckInterval, 5*time.Millisecond)
	opts.CallTimeout = cmp.Or(opts.CallTimeout, 30*time.Second)
	if opts.Name == "" {
		host, _ := os.Hostname()
		opts.Name = host + ":" + strconv.Itoa(os.Getpid())
	}
	for _, wrap := range slices.Backward(opts.Middleware) {
		h = wrap(h)
	}
	return &Worker{client: c, queue: queue, handler: h, opts: opts, log: cmp.Or(opts.Logger, c.log)}
}

// Run works until ctx is cancelled and has drained. It returns an error at once if it cannot
// begin: no connection, no such queue, no access, a schema too new for it. Later errors are
// logged, and it goes on. A Worker may be run several times at once.
//
// When ctx is cancelled the worker receives no more, releases what no handler has begun, waits up
// to GracePeriod for running handlers, then cancels their contexts and waits 5 s more, and settles
// their messages; the leases of those that still run are left to expire. It returns nil if all
// handlers returned and all messages were settled.
func (w *Worker) Run(ctx context.Context) error {
	if w.client.pool == nil {
		return errors.New("workq: a worker needs a client that was made with a pool")
	}
	if w.opts.Concurrency < 0 {
		return fmt.Errorf("workq: Concurrency is %d", w.opts.Concurrency)
	}
	c := w.client.With(w.client.pool)
	err := knows(ctx, c)
	var idle Idleness
	if err == nil {
		idle, err = c.Idle(ctx, w.queue)
	}
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	sub, unsubscribe := c.listener.subscribe(idle.Channel)
	defer unsubscribe()

	beside, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	r := &run{
		Worker: w,
		base:   context.WithoutCancel(ctx),
		leases: newLeases(w),
		sub:    sub,
		done:   make(chan settlement, w.opts.Concurrency),
	}
	wg.Go(func() { r.leases.run(beside) })
	if !w.opts.DisableMaintenance {
		wg.Go(func() { w.maintain(beside, c) })
	}
	return r.loop(ctx)
}

// knows is an error if the schema is too new.
func knows(ctx context.Context, c *Client) error {
	v, err := c.Version(ctx)
	if err != nil {
		return err
	}
	major, _, _ := strings.Cut(v, ".")
	if n, err := strconv.Atoi(major); err != nil || n > knownMajor {
		return fmt.Errorf("workq: the schema's version is %s, this worker knows up to %d: build it with a newer client", v, knownMajor)
	}
	return nil
}

// maintain does the housekeeping of all queues now and then. Any number of workers may do so; that
// they take turns is left to chance.
func (w *Worker) maintain(ctx context.Context, c *Client) {
	maintained := time.Now().Add(-rand.N(maintainEvery))
	for wait := rand.N(sweepEvery); ; wait = sweepEvery/2 + rand.N(sweepEvery) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		cctx, cancel := context.WithTimeout(ctx, w.opts.CallTimeout)
		_, err := c.Sweep(cctx, 0)
		if err == nil && time.Since(maintained) > maintainEvery {
			maintained = time.Now()
			_, err = c.Maintain(cctx)
		}
		cancel()
		if err != nil && ctx.Err() == nil {
			w.log.Warn("workq: maintenance failed", "error", err)
		}
	}
}

// run is one Worker.Run. All but the handlers' goroutines is done by loop.
type run struct {
	*Worker
	base   context.Context // of the handlers: Run's without its cancellation
	leases *leases
	sub    *subscription

	running int
	done    chan settlement // from handlers; never full, so they never wait
	pending []settlement    // not stored yet

	// The rhythm of the exchanges with the database.
	naps     naps
	ended    time.Time // the last exchange
	failures int       // exchanges that failed in a row
	retryAt  time.Time // not before, after a failure
	settled  bool      // an exchange has succeeded
}

func (r *run) loop(ctx context.Context) error {
	var stopAt time.Time // when to give up; zero while not stopping
	var grace <-chan time.Time
	cancelled := ctx.Done()
	for {
		r.collect()
		if ctx.Err() != nil && stopAt.IsZero() {
			cancelled = nil
			grace = time.After(r.opts.GracePeriod)
			stopAt = time.Now().Add(r.opts.GracePeriod + stopTimeout)
		}
		if !stopAt.IsZero() {
			if r.running == 0 && len(r.pending) == 0 {
				return nil
			}
			if time.Now().After(stopAt) {
				return fmt.Errorf("workq: stopped with %d handlers running and %d messages not settled", r.running, len(r.pending))
			}
		}
		at, ok := r.nextExchange(!stopAt.IsZero())
		if ok && !at.After(time.Now()) {
			var never *Error // no access, a visibility out of range
			if err := r.exchange(ctx); errors.As(err, &never) && !r.settled {
				return err
			}
			continue
		}
		if !stopAt.IsZero() && (!ok || at.After(stopAt)) {
			at, ok = stopAt, true
		}
		var due <-chan time.Time
		if ok {
			due = time.After(time.Until(at))
		}
		select {
		case s := <-r.done:
			r.finished(s)
		case <-due:
		case <-r.sub.wake:
			r.naps.woken()
		case <-cancelled:
		case <-grace:
			r.leases.stop(ErrStopped)
		}
	}
}

// collect takes what handlers have finished, without waiting.
func (r *run) collect() {
	for {
		select {
		case s := <-r.done:
			r.finished(s)
		default:
			return
		}
	}
}

func (r *run) finished(s settlement) {
	r.running--
	if s.verb != "" {
		r.pending = append(r.pending, s)
	}
}

// free is how many messages can be received in an exchange, which also stores what is pending.
func (r *run) free() int { return min(r.opts.Concurrency-r.running, maxBatch) }

// nextExchange is when to talk to the database next; not ok: when something happens.
func (r *run) nextExchange(stopping bool) (at time.Time, ok bool) {
	if n := len(r.pending); n > 0 {
		at, ok = r.ended.Add(r.opts.AckInterval), true
		switch {
		case stopping:
			// A receive that found something may have kept notifications quiet for 10 ms. What is
			// released after that wakes the other workers.
			at = r.ended.Add(20 * time.Millisecond)
		case r.running == 0 || n >= (r.opts.Concurrency+1)/2:
			at = time.Now()
		}
	}
	if !stopping && r.free() > 0 {
		look := r.naps.next(r.ended, r.opts.AckInterval, r.pollInterval())
		if !ok || look.Before(at) {
			at, ok = look, true
		}
	}
	if ok && at.Before(r.retryAt) {
		at = r.retryAt
	}
	return at, ok
}

func (r *run) pollInterval() time.Duration {
	switch {
	case r.opts.PollInterval > 0:
		return r.opts.PollInterval
	case r.sub.listening.Load():
		return 30 * time.Second
	default:
		return time.Second
	}
}

// exchange stores what is pending and receives for the handlers that are free, in one round trip
// and one commit. Handlers start only if that ended without an error: rows arrive before the
// commit. After an error it settles first, without receiving.
func (r *run) exchange(ctx context.Context) error {
	// A receive whose answer nobody reads would cost its messages an attempt, so a call that is
	// under way when the worker is stopped is given time to end.
	cctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.opts.CallTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, cancel) })()

	var ask int
	if ctx.Err() == nil && (r.failures == 0 || len(r.pending) == 0) {
		ask = r.free()
	}
	sent := time.Now()
	x := &exchange{queue: r.queue, settle: r.batch()}
	if ask > 0 {
		next := r.naps.next(r.ended, r.opts.AckInterval, r.pollInterval())
		x.receive(ask, r.opts.Visibility, r.opts.Name, r.naps.announce(sent, next))
	}
	err := x.send(cctx, r.client.pool)
	r.ended = time.Now()
	if err != nil {
		r.failures++
		r.retryAt = r.ended.Add(backoff(r.failures - 1))
		r.log.Warn("workq: round trip failed, trying again", "queue", r.queue, "settling", len(x.settle), "error", err)
		if pg := (*pgconn.PgError)(nil); errors.As(err, &pg) && len(x.settle) > 0 && ask == 0 {
			// PostgreSQL was asked for nothing else and said no: one of them may be to blame.
			again := settleEach(cctx, r.client.pool, r.queue, x.settle, r.stored, r.gaveUp)
			r.unpend(x.settle)
			r.pending = append(r.pending, again...)
		}
		return err
	}
	r.failures, r.retryAt, r.settled = 0, time.Time{}, true
	for i, s := range x.settle {
		r.stored(s, x.outcomes[i])
	}
	r.unpend(x.settle)
	if ask == 0 {
		return nil
	}
	r.naps.looked(r.ended, len(x.messages), ask, x.idle)
	for _, m := range x.messages {
		m.Queue = r.queue
		t := &task{client: r.client, m: m}
		m.task = t
		if ctx.Err() != nil {
			r.pending = append(r.pending, settlement{t: t, verb: "release"})
			continue
		}
		r.start(t, sent)
	}
	return nil
}

// batch is what to settle in the next exchange. Verbs lock in the order of ids, but several of them
// in a transaction do not: none beside an extend_many that may still hold some of the same rows.
func (r *run) batch() []settlement {
	ss := slices.Clone(r.pending)
	slices.SortFunc(ss, func(a, b settlement) int { return cmp.Compare(a.t.m.ID, b.t.m.ID) })
	if r.leases.extending.Load() {
		ss = slices.DeleteFunc(ss, func(s settlement) bool { return s.verb != r.pending[0].verb })
	}
	return ss
}

// unpend removes ss from what is pending.
func (r *run) unpend(ss []settlement) {
	gone := make(map[*task]bool, len(ss))
	for _, s := range ss {
		gone[s.t] = true
	}
	r.pending = slices.DeleteFunc(r.pending, func(s settlement) bool { return gone[s.t] })
}

// stored says what is worth saying about a message that was settled.
func (r *run) stored(s settlement, o Outcome) {
	m := s.t.m
	switch {
	case o.Lost() && !s.t.ackedInTx.Load():
		r.log.Warn("workq: lease lost, nothing settled", "queue", r.queue, "id", m.ID, "attempt", m.Attempt, "verb", s.verb, "outcome", o)
	case s.verb == "fail" && !o.Lost():
		r.log.Warn("workq: message failed", "queue", r.queue, "id", m.ID, "kind", m.Kind, "attempt", m.Attempt, "outcome", o, "error", s.fail.Error)
	}
}

// gaveUp says that a message stays unsettled: it will be delivered again.
func (r *run) gaveUp(s settlement, err error) {
	r.log.Error("workq: message not settled", "queue", r.queue, "id", s.t.m.ID, "attempt", s.t.m.Attempt, "verb", s.verb, "error", err)
}

// start runs the handler for t, received by a call that was sent at sent.
func (r *run) start(t *task, sent time.Time) {
	ctx, cancel := context.WithCancelCause(r.base)
	t.cancel = cancel
	r.leases.add(t, sent)
	r.running++
	go func() {
		err, stack := errExited, []byte(nil)
		defer func() { // also for runtime.Goexit
			stopped := errors.Is(context.Cause(ctx), ErrStopped)
			r.leases.remove(t)
			cancel(nil)
			r.done <- after(t, err, stack, stopped)
		}()
		stack, err = handle(ctx, r.handler, t.m)
		if stack != nil {
			r.log.Error("workq: handler panicked", "queue", r.queue, "id", t.m.ID, "kind", t.m.Kind, "error", err, "stack", string(stack))
		}
	}()
}

// handle calls h and turns a panic into an error.
func handle(ctx context.Context, h Handler, m *Message) (stack []byte, err error) {
	defer func() {
		if p := recover(); p != nil {
			stack = debug.Stack()
			if e, ok := p.(error); ok {
				err = fmt.Errorf("panic: %w", e)
			} else {
				err = fmt.Errorf("panic: %v", p)
			}
		}
	}()
	return nil, h.Handle(ctx, m)
}
