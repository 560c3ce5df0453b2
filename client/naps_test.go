package client

import (
	"testing"
	"time"
)

// sleepThrough runs a worker's rhythm on a clock of its own for as long as told, on a queue in which
// nothing is found. wait is what idle tells; a look takes a millisecond. It returns the times of
// the looks since the beginning.
func sleepThrough(n *naps, from time.Time, long, poll time.Duration, wait func() time.Duration) (looks []time.Duration) {
	now := from
	for {
		at := n.next(now, 5*time.Millisecond, poll)
		if at.Before(now) {
			at = now
		}
		if at.Sub(from) > long {
			return looks
		}
		looks = append(looks, at.Sub(from))
		now = at.Add(time.Millisecond)
		var idle *Idleness
		if n.announce(at, at) {
			idle = &Idleness{Wait: wait()}
		}
		n.looked(now, 0, 10, idle)
	}
}

func minute() time.Duration { return time.Minute }

func TestNapsLookAgainWhileOldSendersMayCommit(t *testing.T) {
	var n naps
	looks := sleepThrough(&n, time.Now(), 20*time.Second, 30*time.Second, minute)
	if len(looks) != 1+len(lookAgain) {
		t.Fatalf("looks at %v", looks)
	}
	for i, d := range lookAgain {
		if off := looks[i+1] - looks[0] - d; off < 0 || off > 5*time.Millisecond {
			t.Errorf("look %d at %v, expected %v after %v", i+1, looks[i+1], d, looks[0])
		}
	}
}

// Each look is two calls (idle and receive); with sweep and maintain an idle worker stays below 0.2
// a second.
func TestNapsAreQuietInTheLongRun(t *testing.T) {
	var n naps
	from := time.Now()
	sleepThrough(&n, from, time.Minute, 30*time.Second, minute)
	long := 10 * time.Minute
	looks := sleepThrough(&n, from.Add(time.Minute), long, 30*time.Second, minute)
	upkeep := 1/sweepEvery.Seconds() + 1/maintainEvery.Seconds()
	if rate := 2*float64(len(looks))/long.Seconds() + upkeep; rate >= 0.15 {
		t.Errorf("%.3f calls a second: %v", rate, looks)
	}
	for i := 1; i < len(looks); i++ {
		if d := looks[i] - looks[i-1]; d < 27*time.Second || d > 31*time.Second {
			t.Errorf("%v between two looks", d)
		}
	}
}

func TestNapsFollowTheDueTime(t *testing.T) {
	var n naps
	looks := sleepThrough(&n, time.Now(), 70*time.Second, time.Hour, func() time.Duration { return 20 * time.Second })
	if got := looks[len(looks)-1] - looks[len(looks)-2]; got < 20*time.Second || got > 21*time.Second {
		t.Errorf("looks at %v", looks)
	}
}

// idle says "now" again and again when a row is ready but locked by somebody else.
func TestNapsDoNotSpinOnARowThatIsAlwaysDue(t *testing.T) {
	var n naps
	looks := sleepThrough(&n, time.Now(), time.Minute, 30*time.Second, func() time.Duration { return 0 })
	if len(looks) > 75 {
		t.Errorf("%d looks in a minute", len(looks))
	}
	if looks[1]-looks[0] > 10*time.Millisecond {
		t.Errorf("the second look only at %v", looks[1])
	}
}

func TestNapsBeginAnewAfterANotification(t *testing.T) {
	var n naps
	from := time.Now()
	sleepThrough(&n, from, time.Minute, time.Hour, minute)
	n.woken()
	looks := sleepThrough(&n, from.Add(time.Minute), 3*time.Second, time.Hour, minute)
	if len(looks) != 5 || looks[0] > time.Millisecond {
		t.Errorf("looks at %v", looks)
	}
}

func TestNapsDoNotAnnounceWhileReceivesAreFull(t *testing.T) {
	var n naps
	now := time.Now()
	n.looked(now, 10, 10, nil)
	if n.announce(now.Add(time.Second), n.next(now, 0, time.Second)) {
		t.Error("announced")
	}
	if at := n.next(now, 5*time.Millisecond, time.Second); !at.Equal(now.Add(5 * time.Millisecond)) {
		t.Errorf("next look after %v", at.Sub(now))
	}
	n.looked(now, maxBatch, maxBatch, nil)
	if at := n.next(now, 5*time.Millisecond, time.Second); !at.Equal(now) {
		t.Errorf("next look after %v, and there is more", at.Sub(now))
	}
	n.looked(now, 0, 10, nil)
	if !n.announce(now, n.next(now, 5*time.Millisecond, time.Second)) {
		t.Error("an empty receive is to be followed by an announcement at once")
	}
}
