package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

func TestCallLeavesOutWhatIsNotSet(t *testing.T) {
	q := fn("enqueue").arg("queue", "q").str("kind", "").int("max_attempts", 0).dur("ttl", time.Second).time("run_at", time.Time{})
	opt(q, "priority", new(0))
	opt[int](q, "nothing", nil)
	q, err := q.json("payload", map[string]int{"a": 1})
	if err != nil {
		t.Fatal(err)
	}
	if q, err = q.json("headers", nil); err != nil {
		t.Fatal(err)
	}
	want := "select id from workq.enqueue(queue => $1, ttl => $2, priority => $3, payload => $4::jsonb)"
	if got := q.sql("id"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := fmt.Sprint(q.args); got != `[q 1s 0 {"a":1}]` {
		t.Errorf("got %s", got)
	}
}

func TestErrorsKeepTheirOrigin(t *testing.T) {
	for code, kind := range sentinels {
		pg := &pgconn.PgError{Code: code, Message: "the message", Detail: "the detail", Hint: "the hint"}
		err := wrap(fmt.Errorf("pgx says: %w", pg))
		var back *pgconn.PgError
		if !errors.Is(err, kind) || !errors.As(err, &back) || back != pg {
			t.Errorf("%s: %v", code, err)
		}
		for _, part := range []string{"the message", "the detail", "the hint", code} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
	}
	other := &pgconn.PgError{Code: "40001", Message: "serialize"}
	if err := wrap(other); err != error(other) {
		t.Errorf("got %v", err)
	}
	if err := wrap(nil); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestSteeringErrorsSurviveWrapping(t *testing.T) {
	boom := errors.New("boom")
	for name, tt := range map[string]struct {
		err  error
		want settlement
	}{
		"nil":         {nil, settlement{verb: "ack"}},
		"plain":       {boom, settlement{verb: "fail", fail: FailOptions{Error: "boom"}}},
		"permanent":   {fmt.Errorf("x: %w", Permanent(boom)), settlement{verb: "fail", fail: FailOptions{Error: "x: boom", Permanent: true}}},
		"retry after": {errors.Join(boom, RetryAfter(time.Minute, nil)), settlement{verb: "fail", fail: FailOptions{Error: "boom\nworkq: retry after 1m0s", RetryIn: new(time.Minute)}}},
		"release":     {fmt.Errorf("x: %w", Release(time.Minute)), settlement{verb: "release", delay: time.Minute}},
		"no text":     {errors.New("a\x00b\xff"), settlement{verb: "fail", fail: FailOptions{Error: "a\uFFFDb\uFFFD"}}},
	} {
		task := &task{}
		got := after(task, tt.err, nil, false)
		tt.want.t = task
		if fmt.Sprintf("%+v", deref(got)) != fmt.Sprintf("%+v", deref(tt.want)) {
			t.Errorf("%s: got %+v, want %+v", name, got, tt.want)
		}
		if tt.err != nil && strings.Contains(tt.err.Error(), "boom") && !errors.Is(tt.err, boom) {
			t.Errorf("%s: the cause is lost", name)
		}
	}
	if got := after(&task{}, boom, nil, true); got.verb != "release" {
		t.Errorf("an error after the worker was stopped: %s", got.verb)
	}
}

// deref makes settlements comparable as text.
func deref(s settlement) []any {
	var retry time.Duration
	if s.fail.RetryIn != nil {
		retry = *s.fail.RetryIn
	}
	return []any{s.verb, s.fail.Error, s.fail.Permanent, retry, s.delay}
}

func TestMuxPanicsOnASecondHandlerOfAKind(t *testing.T) {
	var x Mux
	h := HandlerFunc(func(context.Context, *Message) error { return nil })
	x.HandleMessage("a", h)
	defer func() {
		if recover() == nil {
			t.Error("did not panic")
		}
	}()
	x.HandleMessage("a", h)
}

func TestHandlerMethodsNeedAWorker(t *testing.T) {
	m := &Message{}
	if m.SetResult(1) == nil || m.AckTx(t.Context(), nil, nil) == nil || m.Report(t.Context(), 1) == nil {
		t.Error("no error")
	}
}

func TestBackoffGrowsToItsCap(t *testing.T) {
	for failures := range 100 {
		want := 5 * time.Second
		if failures < 7 {
			want = 50 * time.Millisecond << failures
		}
		if d := backoff(failures); d < want/2 || d > want {
			t.Errorf("backoff(%d) = %v", failures, d)
		}
	}
}
