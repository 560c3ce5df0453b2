package tests

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tortureHistory is what was done to a queue, by those who did it, and what the database says of it.
type tortureHistory struct {
	enqueued    []int64        // acknowledged enqueues
	rolledBack  []int64        // enqueued by transactions that rolled back
	poison      map[int64]bool // kill whoever works on them
	maxAttempts int

	events   []tortureEvent   // of the workers
	attempts []tortureAttempt // workq.attempt
	dead     []int64          // workq.dead_letter
	stored   []int64          // workq.delivery
	effects  []int64          // rows that were written in one transaction with the ack
}

// tortureEvent is a line of a worker's history. It is written before what it announces and
// after what it reports, so that it outlives a SIGKILL.
type tortureEvent struct {
	Event   string // delivered; acking and acked (in a transaction), lost: a late ack was told so
	ID      int64
	Lease   int64
	Attempt int
	Until   time.Time `json:",omitzero"` // of delivered: the lease's first deadline
	Worker  string
}

// tortureAttempt is a finished attempt.
type tortureAttempt struct {
	ID, Lease         int64
	Attempt           int
	Outcome           string
	Started, Finished time.Time
}

// check gives what is wrong, by the names of the invariants: I1 nothing lost, I2 nothing
// unexpected, I4 fencing, I5 one ack, I6 attempts, I8 balance.
func (h *tortureHistory) check() (wrong []string) {
	say := func(format string, args ...any) {
		if len(wrong) < 20 {
			wrong = append(wrong, fmt.Sprintf(format, args...))
		}
	}
	type message struct {
		delivered       []tortureEvent
		attempts        []tortureAttempt
		acks, toldAcked int
		dead, stored    int
		effects         int
	}
	ms := make(map[int64]*message, len(h.enqueued))
	for _, id := range h.enqueued {
		ms[id] = new(message)
	}
	of := func(id int64, what string) *message {
		m := ms[id]
		if m == nil {
			say("I2: message %d is %s, but its enqueue was never acknowledged", id, what)
			m = new(message)
		}
		return m
	}
	for _, a := range h.attempts {
		m := of(a.ID, "in the history")
		m.attempts = append(m.attempts, a)
	}
	for _, id := range h.rolledBack {
		if ms[id] != nil {
			say("I2: message %d was rolled back and acknowledged", id)
		}
	}
	for _, id := range h.dead {
		of(id, "dead").dead++
	}
	for _, id := range h.stored {
		of(id, "stored").stored++
	}
	for _, id := range h.effects {
		of(id, "done").effects++
	}
	for _, e := range h.events {
		m := of(e.ID, e.Event)
		if e.Event == "delivered" {
			m.delivered = append(m.delivered, e)
		}
	}

	var acked, dead, stored int
	for id, m := range ms {
		slices.SortStableFunc(m.attempts, func(a, b tortureAttempt) int {
			return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.Attempt, b.Attempt))
		})
		until := map[int64]time.Time{} // the first deadline of a lease
		for _, e := range m.delivered {
			if !until[e.Lease].IsZero() {
				say("I4: message %d was delivered twice under lease %d", id, e.Lease)
			}
			until[e.Lease] = e.Until
		}
		leases := map[int64]int{} // how often each ended
		var deaths int
		var last tortureAttempt
		for i, a := range m.attempts {
			if leases[a.Lease]++; leases[a.Lease] > 1 {
				say("I4: lease %d of message %d ended twice", a.Lease, id)
			}
			if a.Attempt != i+1 {
				say("I6: attempt %d of message %d counts as its attempt %d", i+1, id, a.Attempt)
			}
			if i > 0 {
				if a.Lease <= last.Lease {
					say("I4: lease %d of message %d comes after lease %d", a.Lease, id, last.Lease)
				}
				if a.Started.Before(last.Finished) {
					say("I4: message %d was received under lease %d while lease %d was held", id, a.Lease, last.Lease)
				}
				if last.Outcome == "timeout" && a.Started.Before(until[last.Lease]) {
					say("I4: message %d was received under lease %d before lease %d had run out", id, a.Lease, last.Lease)
				}
				if last.Outcome == "acked" || last.Outcome == "dead" {
					say("I5: message %d was received under lease %d after it had ended as %s", id, a.Lease, last.Outcome)
				}
			}
			last = a
			switch a.Outcome {
			case "acked":
				m.acks++
			case "dead":
				deaths++
				if a.Attempt != h.maxAttempts {
					say("I6: message %d died on attempt %d of %d", id, a.Attempt, h.maxAttempts)
				}
			}
		}
		for lease := range until {
			if m.stored == 0 && leases[lease] == 0 {
				say("I4: lease %d of message %d was delivered, and the history knows nothing of it", lease, id)
			}
		}
		if len(m.attempts) > h.maxAttempts || len(m.delivered) > h.maxAttempts {
			say("I6: message %d was received %d times, delivered %d times; max_attempts is %d", id, len(m.attempts), len(m.delivered), h.maxAttempts)
		}
		if m.acks > 1 {
			say("I5: message %d was acked %d times", id, m.acks)
		}
		if m.dead != deaths || m.dead > 1 {
			say("I6: message %d has %d dead letters and died %d times", id, m.dead, deaths)
		}
		if ends := m.acks + m.dead + m.stored; ends != 1 {
			tag := "I8"
			if ends == 0 {
				tag = "I1"
			}
			say("%s: message %d: acked %d, dead %d, stored %d", tag, id, m.acks, m.dead, m.stored)
		}
		if h.poison[id] && m.dead != 1 {
			say("I6: message %d kills its workers, and is no dead letter", id)
		}
		if m.effects > 1 || m.effects == 1 && m.acks == 0 {
			say("I5: the effect of message %d happened %d times, acked %d", id, m.effects, m.acks)
		}
		acked, dead, stored = acked+m.acks, dead+m.dead, stored+m.stored
	}
	for _, e := range h.events {
		m := ms[e.ID]
		if m == nil {
			continue
		}
		switch e.Event {
		case "acked":
			if m.toldAcked++; m.toldAcked > 1 {
				say("I5: the acks of message %d succeeded %d times", e.ID, m.toldAcked)
			}
			if !slices.ContainsFunc(m.attempts, func(a tortureAttempt) bool { return a.Lease == e.Lease && a.Outcome == "acked" }) {
				say("I5: the ack of message %d under lease %d succeeded, and changed nothing", e.ID, e.Lease)
			}
			if m.effects == 0 {
				say("I5: the ack of message %d under lease %d committed, and its effect is not there", e.ID, e.Lease)
			}
		case "lost":
			if slices.ContainsFunc(m.attempts, func(a tortureAttempt) bool { return a.Attempt == e.Attempt && a.Outcome == "acked" }) {
				// An answer that was lost on the way is asked for again, and then told gone. Nobody cuts
				// connections here.
				say("I5: the ack of attempt %d of message %d was refused, and is in the history", e.Attempt, e.ID)
			}
		}
	}
	if len(h.enqueued) != acked+dead+stored {
		say("I8: enqueued %d, acked %d + dead %d + stored %d", len(h.enqueued), acked, dead, stored)
	}
	return wrong
}

// plainTorture is a history in which nothing is wrong: message 1 acked at once, 2 after a timeout, 3
// dead after three attempts, 4 stored, 5 rolled back.
func plainTorture() *tortureHistory {
	at := func(s int) time.Time { return time.Date(2025, 1, 1, 0, 0, s, 0, time.UTC) }
	h := &tortureHistory{
		enqueued: []int64{1, 2, 3, 4}, rolledBack: []int64{5}, poison: map[int64]bool{3: true}, maxAttempts: 3,
		attempts: []tortureAttempt{
			{1, 100, 1, "acked", at(0), at(1)},
			{2, 100, 1, "timeout", at(0), at(5)}, {2, 110, 2, "acked", at(5), at(6)},
			{3, 101, 1, "timeout", at(0), at(5)}, {3, 111, 2, "retry", at(5), at(6)}, {3, 121, 3, "dead", at(7), at(12)},
		},
		dead: []int64{3}, stored: []int64{4}, effects: []int64{2},
	}
	for _, a := range h.attempts {
		h.events = append(h.events, tortureEvent{Event: "delivered", ID: a.ID, Lease: a.Lease, Attempt: a.Attempt, Until: a.Started.Add(5 * time.Second)})
	}
	h.events = append(h.events,
		tortureEvent{Event: "acking", ID: 2, Lease: 110, Attempt: 2}, tortureEvent{Event: "acked", ID: 2, Lease: 110, Attempt: 2},
		tortureEvent{Event: "lost", ID: 2, Attempt: 1})
	return h
}

func TestTortureCheckerIsContent(t *testing.T) {
	t.Parallel()
	require.Empty(t, plainTorture().check())
}

func TestTortureCheckerCatches(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		want  string
		plant func(h *tortureHistory)
	}{
		"a lost message":                   {"I1", func(h *tortureHistory) { h.stored = nil }},
		"a lost message that was received": {"I1", func(h *tortureHistory) { h.attempts[0].Outcome = "timeout" }},
		"a rolled back message": {"I2", func(h *tortureHistory) {
			h.events = append(h.events, tortureEvent{Event: "delivered", ID: 5, Lease: 7})
		}},
		"a rolled back message, stored": {"I2", func(h *tortureHistory) { h.stored = append(h.stored, 5) }},
		"overlapping leases":            {"I4", func(h *tortureHistory) { h.attempts[2].Started = h.attempts[2].Started.Add(-time.Second) }},
		"a lease that was cut short": {"I4", func(h *tortureHistory) {
			h.attempts[1].Finished = h.attempts[1].Finished.Add(-2 * time.Second)
			h.attempts[2].Started = h.attempts[1].Finished
		}},
		"a lease number used again": {"I4", func(h *tortureHistory) { h.attempts[2].Lease, h.events[2].Lease = 100, 100 }},
		"a lease number that shrinks": {"I4", func(h *tortureHistory) {
			h.attempts[2].Lease, h.events[2].Lease, h.events[7].Lease = 90, 90, 90
		}},
		"delivered twice under a lease": {"I4", func(h *tortureHistory) { h.events = append(h.events, h.events[0]) }},
		"delivered, and nothing known": {"I4", func(h *tortureHistory) {
			h.events = append(h.events, tortureEvent{Event: "delivered", ID: 1, Lease: 500})
		}},
		"a double ack": {"I5", func(h *tortureHistory) {
			a := h.attempts[2]
			a.Lease, a.Attempt, a.Started = 130, 3, a.Finished
			h.attempts = append(h.attempts, a)
		}},
		"an ack that was told twice":          {"I5", func(h *tortureHistory) { h.events = append(h.events, h.events[7]) }},
		"a stale ack that was told it worked": {"I5", func(h *tortureHistory) { h.events[7].Lease = 100 }},
		"an ack that was refused and counts":  {"I5", func(h *tortureHistory) { h.events[8].Attempt = 2 }},
		"an effect without its ack":           {"I5", func(h *tortureHistory) { h.effects = append(h.effects, 4) }},
		"an effect twice":                     {"I5", func(h *tortureHistory) { h.effects = append(h.effects, 2) }},
		"an ack without its effect":           {"I5", func(h *tortureHistory) { h.effects = nil }},
		"worked on after the ack": {"I5", func(h *tortureHistory) {
			h.attempts = append(h.attempts, tortureAttempt{1, 140, 2, "timeout", h.attempts[0].Finished, h.attempts[2].Finished})
		}},
		"one attempt too many": {"I6", func(h *tortureHistory) { h.maxAttempts = 2 }},
		"one attempt too few":  {"I6", func(h *tortureHistory) { h.maxAttempts = 4 }},
		"a crash that was not counted": {"I6", func(h *tortureHistory) {
			h.attempts[2].Attempt = 1
		}},
		"two dead letters":      {"I6", func(h *tortureHistory) { h.dead = append(h.dead, 3) }},
		"no dead letter":        {"I6", func(h *tortureHistory) { h.dead = nil }},
		"poison that was acked": {"I6", func(h *tortureHistory) { h.attempts[5].Outcome, h.dead = "acked", nil }},
		"acked and stored":      {"I8", func(h *tortureHistory) { h.stored = append(h.stored, 1) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := plainTorture()
			tt.plant(h)
			wrong := h.check()
			require.NotEmpty(t, wrong)
			require.True(t, slices.ContainsFunc(wrong, func(w string) bool { return w[:2] == tt.want }), "want %s: %q", tt.want, wrong)
		})
	}
}
