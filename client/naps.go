package client

import (
	"math/rand/v2"
	"time"
)

// lookAgain is when a worker that fell asleep looks again, for senders whose transactions were
// open when it announced its sleep: they notified nobody.
var lookAgain = [...]time.Duration{
	10 * time.Millisecond, 50 * time.Millisecond, 250 * time.Millisecond, 1100 * time.Millisecond, 5 * time.Second,
}

const (
	spinMin = 5 * time.Millisecond
	spinMax = time.Second
)

// naps decides when a worker with free handlers looks at its queue. While receives come back full
// it looks whenever a handler is free. Else it announces its sleep (workq.idle) and looks once
// more in the same round trip; if nothing came it sleeps, until a notification, the due time that
// idle told, the next of lookAgain, or the poll interval, and each such look announces anew.
type naps struct {
	mode  napMode
	more  bool          // the receive was full and could not have been larger
	since time.Time     // when it fell asleep
	seen  time.Time     // the last look while asleep
	share float64       // of the poll interval, so that workers do not poll in step
	due   time.Time     // what idle told
	spin  time.Duration // how long to wait at least, where idle says again and again that something is due
}

type napMode int

const (
	drowsy napMode = iota // nothing was found, or a notification came: announce and look at once
	short                 // fewer were found than asked for: announce and look soon
	full                  // as many were found as asked for
	asleep
)

// next is when to look, if a handler is free. ended is when the last exchange did.
func (n *naps) next(ended time.Time, interval, poll time.Duration) time.Time {
	switch {
	case n.mode == drowsy, n.mode == full && n.more:
		return ended
	case n.mode != asleep:
		return ended.Add(interval)
	}
	at := n.seen.Add(time.Duration(float64(poll) * n.share))
	for _, d := range lookAgain {
		if t := n.since.Add(d); t.After(n.seen) {
			if t.Before(at) {
				at = t
			}
			break
		}
	}
	if n.due.Before(at) {
		at = n.due
	}
	return at
}

// announce tells whether a receive at now is to announce the sleep that may follow.
func (n *naps) announce(now, next time.Time) bool {
	return n.mode != full && !now.Before(next)
}

// looked notes that a receive found so many of those asked for. idle is nil if the sleep was not
// announced.
func (n *naps) looked(now time.Time, found, asked int, idle *Idleness) {
	if idle != nil {
		if idle.Wait >= spinMin || found > 0 {
			n.spin = 0
		} else {
			n.spin = min(max(2*n.spin, spinMin), spinMax)
		}
		n.due = now.Add(max(idle.Wait, n.spin))
	}
	switch {
	case found == asked:
		n.mode, n.more = full, asked == maxBatch
	case found > 0:
		n.mode = short
	case idle == nil:
		if n.mode != asleep {
			n.mode = drowsy
		}
	default:
		if n.mode != asleep {
			n.mode, n.since = asleep, now
		}
		n.seen, n.share = now, 0.9+0.1*rand.Float64()
	}
}

// woken notes a notification.
func (n *naps) woken() {
	if n.mode == asleep {
		n.mode = drowsy
	}
}
