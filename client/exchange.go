package client

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// settlement is how a task is to be settled. verb is ack, fail or release, or "" for nothing.
type settlement struct {
	t    *task
	verb string

	fail    FailOptions
	details *string
	delay   time.Duration
}

// exchange is one round trip of a worker: what is to be settled, then a receive. pgx sends the
// batch as one pipeline (or one simple query) that ends in one sync, which makes it one
// transaction with one commit.
type exchange struct {
	queue    string
	settle   []settlement
	outcomes []Outcome // of settle, in its order
	idle     *Idleness
	messages []*Message

	batch pgx.Batch
	recv  func()
}

func (x *exchange) receive(ask int, visibility time.Duration, worker string, announce bool) {
	x.recv = func() {
		if announce {
			q := fn("idle").arg("queue", x.queue)
			queue(x, q, idleColumns, func(rows pgx.Rows) error {
				idle, err := pgx.CollectExactlyOneRow(rows, scanIdle)
				x.idle = &idle
				return err
			})
		}
		q := fn("receive").arg("queue", x.queue).arg("max_messages", ask).dur("visibility", visibility).arg("worker", worker)
		queue(x, q, receivedColumns, func(rows pgx.Rows) (err error) {
			x.messages, err = pgx.CollectRows(rows, scanMessage)
			return err
		})
	}
}

func queue(x *exchange, q *call, columns string, read func(pgx.Rows) error) {
	x.batch.Queue(q.sql(columns), q.args...).Query(read)
}

// send settles and receives. What x holds is only true if it returns nil.
func (x *exchange) send(ctx context.Context, pool *pgxpool.Pool) error {
	x.outcomes = make([]Outcome, len(x.settle))
	for _, verb := range []string{"ack", "fail", "release"} {
		var at []int // in x.settle
		for i, s := range x.settle {
			if s.verb == verb {
				at = append(at, i)
			}
		}
		for part := range slices.Chunk(at, maxBatch) {
			x.queueSettle(verb, part)
		}
	}
	if x.recv != nil {
		x.recv()
	}
	return wrap(pool.SendBatch(ctx, &x.batch).Close())
}

func (x *exchange) queueSettle(verb string, at []int) {
	n := len(at)
	ms, texts, fails, delays := make([]*Message, n), []*string(nil), make([]FailOptions, n), make([]time.Duration, n)
	for i, j := range at {
		s := x.settle[j]
		ms[i], fails[i], delays[i] = s.t.m, s.fail, s.delay
		text := s.t.result
		if verb == "fail" {
			text = s.details
		}
		if text != nil {
			if texts == nil {
				texts = make([]*string, n)
			}
			texts[i] = text
		}
	}
	var q *call
	switch verb {
	case "ack":
		q = ackMany(x.queue, ms, texts)
	case "fail":
		q = failMany(x.queue, ms, fails, texts)
	default:
		q = releaseMany(x.queue, ms, func(i int) time.Duration { return delays[i] })
	}
	queue(x, q, settledColumns, func(rows pgx.Rows) error {
		outcomes, err := collectSettled(rows, n)
		for i, j := range at {
			x.outcomes[j] = outcomes[i]
		}
		return err
	})
}

// refused tells whether PostgreSQL will never take these values: a result that jsonb cannot hold
// (\u0000), for instance. Such a message must not keep the others from being settled.
func refused(err error) bool {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || len(pg.Code) < 2 {
		return false
	}
	class := pg.Code[:2]
	return class == "22" || class == "54" || class == "0A"
}

// settleEach settles one by one after a batch was refused, and returns what is to be tried again.
func settleEach(ctx context.Context, pool *pgxpool.Pool, queue string, ss []settlement, stored func(settlement, Outcome), gaveUp func(settlement, error)) (again []settlement) {
	for i, s := range ss {
		var pg *pgconn.PgError
		for try := 0; ; try++ {
			x := &exchange{queue: queue, settle: []settlement{s}}
			err := x.send(ctx, pool)
			if err == nil {
				stored(s, x.outcomes[0])
				break
			}
			if !errors.As(err, &pg) {
				return append(again, ss[i:]...) // no connection
			}
			if errors.Is(err, ErrQueueNotFound) || refused(err) && try > 0 {
				gaveUp(s, err)
				break
			}
			if !refused(err) {
				if time.Now().Before(s.t.deadline) {
					again = append(again, s)
				} else {
					gaveUp(s, err)
				}
				break
			}
			s = settlement{t: s.t, verb: "fail", fail: FailOptions{Error: "workq: not stored: " + s.verb + ": " + pg.Message}}
		}
	}
	return again
}

// clean makes text that PostgreSQL can hold of any: no NUL, valid UTF-8.
func clean(s string) string {
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", "\uFFFD"), "\uFFFD")
}

// after gives the settlement of a handler that returned err.
func after(t *task, err error, stack []byte, stopped bool) settlement {
	s := settlement{t: t, verb: "fail"}
	var steer *steerError
	switch {
	case t.lost.Load():
		s.verb = ""
		return s
	case err == nil && t.ackedInTx.Load():
		s.verb = ""
		return s
	case err == nil:
		s.verb = "ack"
		return s
	case errors.As(err, &steer) && steer.release:
		s.verb, s.delay = "release", steer.delay
		return s
	case steer != nil:
		s.fail.RetryIn, s.fail.Permanent = steer.retryIn, steer.permanent
	case stopped:
		s.verb = "release"
		return s
	}
	s.fail.Error = clean(err.Error())
	if stack != nil {
		s.details, _ = jsonText(map[string]string{"stack": clean(string(stack))})
	}
	return s
}

// errExited is the error of a handler that called runtime.Goexit.
var errExited = errors.New("workq: the handler ended its goroutine")
