package client

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// task is a message whose handler runs.
type task struct {
	client *Client
	m      *Message
	cancel context.CancelCauseFunc

	result    *string     // set by the handler
	ackedInTx atomic.Bool // the handler's transaction settles
	lost      atomic.Bool // the database said so: nothing to settle

	// Of leases, under its mutex. deadline is on this process's monotonic clock and never later
	// than the true one: it counts from before the call was sent that set it.
	visibility time.Duration
	deadline   time.Time
	extendAt   time.Time
	timer      *time.Timer
}

// leases extends the leases of the running handlers, all that are due in one call, at a third of
// their time, and cancels a handler whose lease is lost. It works beside the fetching, so that
// neither waits for the other.
type leases struct {
	w *Worker

	mu      sync.Mutex
	running map[*task]struct{}
	next    time.Time // when run wakes; zero for never
	wake    chan struct{}
	// extending is true while a call is under way: another one that locks several of the same
	// rows, in more than one statement, could deadlock with it.
	extending atomic.Bool
}

func newLeases(w *Worker) *leases {
	return &leases{w: w, running: map[*task]struct{}{}, wake: make(chan struct{}, 1)}
}

// add begins to look after t, received by a call that was sent at sent.
func (l *leases) add(t *task, sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Without a visibility of our own, the lease is renewed for as long as it was given.
	t.visibility = cmp.Or(l.w.opts.Visibility, max(t.m.left, time.Millisecond))
	t.deadline = sent.Add(t.m.left)
	t.timer = time.AfterFunc(time.Until(t.deadline), func() { l.expired(t) })
	l.running[t] = struct{}{}
	l.extendAt(t, sent.Add(t.m.left/3))
}

func (l *leases) extendAt(t *task, at time.Time) {
	t.extendAt = at
	if l.next.IsZero() || at.Before(l.next) {
		l.next = at
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

func (l *leases) remove(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	t.timer.Stop()
	delete(l.running, t)
}

// stop cancels all running handlers.
func (l *leases) stop(cause error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for t := range l.running {
		t.cancel(cause)
	}
}

// expired is called when the lease ran out by our clock: others may have the message by now.
func (l *leases) expired(t *task) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.running[t]; ok && !t.ackedInTx.Load() && !time.Now().Before(t.deadline) {
		t.cancel(ErrLeaseLost)
	}
}

func (l *leases) run(ctx context.Context) {
	for {
		l.mu.Lock()
		var due <-chan time.Time
		if !l.next.IsZero() {
			due = time.After(time.Until(l.next))
		}
		l.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-l.wake:
		case <-due:
			l.extend(ctx)
		}
	}
}

// extend extends what is due, and what will be soon.
func (l *leases) extend(ctx context.Context) {
	l.extending.Store(true)
	defer l.extending.Store(false)
	now := time.Now()
	var ts []*task
	shortest := time.Hour
	l.mu.Lock()
	l.next = time.Time{}
	for t := range l.running {
		if t.ackedInTx.Load() || t.lost.Load() {
			continue
		}
		if now.Before(t.extendAt.Add(-t.visibility / 6)) {
			l.extendAt(t, t.extendAt)
			continue
		}
		ts = append(ts, t)
		shortest = min(shortest, t.visibility)
	}
	l.mu.Unlock()
	for len(ts) > 0 && ctx.Err() == nil {
		n := min(len(ts), maxBatch)
		l.extendBatch(ctx, ts[:n], shortest)
		ts = ts[n:]
	}
}

func (l *leases) extendBatch(ctx context.Context, ts []*task, shortest time.Duration) {
	ms, byID := make([]*Message, len(ts)), make(map[*Message]*task, len(ts))
	for i, t := range ts {
		ms[i], byID[t.m] = t.m, t
	}
	// Time for three tries before the lease ends.
	ctx, cancel := context.WithTimeout(ctx, max(shortest/5, 500*time.Millisecond))
	defer cancel()
	sent := time.Now()
	outcomes, err := settleMany(ctx, l.w.client.pool, extendMany(l.w.queue, ms, func(m *Message) time.Duration {
		return byID[m].visibility
	}), len(ms))

	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && ctx.Err() != context.Canceled {
		l.w.log.Warn("workq: leases not extended, trying again", "queue", l.w.queue, "leases", len(ts), "error", err)
	}
	for i, t := range ts {
		if _, ok := l.running[t]; !ok || t.ackedInTx.Load() {
			continue // it ended meanwhile
		}
		switch {
		case err != nil:
			l.extendAt(t, time.Now().Add(min(t.visibility/10, time.Second)))
		case outcomes[i].Lost():
			l.w.log.Warn("workq: lease lost, cancelling the handler", "queue", l.w.queue, "id", t.m.ID, "attempt", t.m.Attempt)
			t.lost.Store(true)
			t.cancel(ErrLeaseLost)
		default:
			t.deadline = sent.Add(t.visibility)
			t.timer.Reset(time.Until(t.deadline))
			l.extendAt(t, sent.Add(t.visibility/3))
		}
	}
}
