package tests

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgworkq/workq/client"
)

// newClient gives a client on a fresh database with a queue named q.
func newClient(t *testing.T, settings client.QueueSettings) (*client.Client, *pgxpool.Pool) {
	t.Helper()
	pool := newDB(t)
	c := client.New(pool, client.Options{})
	_, err := c.CreateQueue(t.Context(), "q", settings)
	require.NoError(t, err)
	return c, pool
}

func enqueue(t *testing.T, c *client.Client, payload any, opts *client.EnqueueOptions) int64 {
	t.Helper()
	r, err := c.Enqueue(t.Context(), "q", payload, opts)
	require.NoError(t, err)
	return r.ID
}

// receiveOne receives one message, which must be there.
func receiveOne(t *testing.T, c *client.Client) *client.Message {
	t.Helper()
	ms, err := c.Receive(t.Context(), "q", nil)
	require.NoError(t, err)
	require.Len(t, ms, 1)
	return ms[0]
}

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func inExecMode(t *testing.T, dbURL string, mode pgx.QueryExecMode) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dbURL)
	require.NoError(t, err)
	cfg.ConnConfig.DefaultQueryExecMode = mode
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// []byte JSON becomes bytea under the simple protocol unless somebody took care.
func TestClientPassesEveryArgumentInEveryExecMode(t *testing.T) {
	t.Parallel()
	dbURL := newDBURL(t)
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			ctx := t.Context()
			c := client.New(inExecMode(t, dbURL, mode), client.Options{})
			info, err := c.CreateQueue(ctx, "q", client.QueueSettings{
				Visibility: new(40 * time.Second), VisibilityFactor: new(1.5), MaxAttempts: new(3),
				RetryDelays: []time.Duration{time.Second, 90 * time.Second}, RetryJitter: new(0.25), MaxDepth: new(int64(1000)),
				History: new("all"), Notify: new(false),
			})
			require.NoError(t, err)
			require.Equal(t, 40*time.Second, info.Visibility)
			require.Equal(t, []time.Duration{time.Second, 90 * time.Second}, info.RetryDelays)
			require.Equal(t, 3, *info.MaxAttempts)
			require.False(t, info.Notify)
			info, err = c.AlterQueue(ctx, "q", client.QueueSettings{Visibility: new(50 * time.Second)}, "max_depth")
			require.NoError(t, err)
			require.Equal(t, 50*time.Second, info.Visibility)
			require.Nil(t, info.MaxDepth)

			payload := map[string]any{"it's": `"quoted" \ and {braces}, 日本`, "n": []any{1.5, nil, true}}
			headers := json.RawMessage(`{"trace": "a\"b'c"}`)
			body := []byte("\x00\xff\\x41'")
			r, err := c.Enqueue(ctx, "q", payload, &client.EnqueueOptions{
				Body: body, ContentType: "application/octet-stream", Kind: "k'1", Headers: headers, Priority: new(0),
				Delay: time.Millisecond, TTL: time.Hour, MaxAttempts: 7,
			})
			require.NoError(t, err)
			require.False(t, r.Duplicate)
			late, err := c.Enqueue(ctx, "q", nil, &client.EnqueueOptions{RunAt: time.Now().Add(time.Hour)})
			require.NoError(t, err)
			require.WithinDuration(t, time.Now().Add(time.Hour), late.VisibleAt, time.Minute)

			rs, err := c.EnqueueMany(ctx, "q", []client.NewMessage{
				{Payload: json.RawMessage(`{"raw": [1, {"x": "},{\"\\"}]}`), Headers: headers},
				{},
				{Payload: "text", Body: body, ContentType: "a/b", Kind: "k2", Priority: new(9), RunAt: time.Now().Add(-time.Minute)},
				{Payload: []string{}, Body: []byte{}},
			}, &client.EnqueueManyOptions{TTL: time.Hour, MaxAttempts: 4})
			require.NoError(t, err)
			require.Len(t, rs, 4)

			var ms []*client.Message
			waitFor(t, "all to be receivable", func() bool {
				got, err := c.Receive(ctx, "q", &client.ReceiveOptions{MaxMessages: 10, Visibility: time.Minute, Worker: "w'1"})
				require.NoError(t, err)
				ms = append(ms, got...)
				return len(ms) == 5
			})
			byID := map[int64]*client.Message{}
			for _, m := range ms {
				byID[m.ID] = m
			}
			one := byID[r.ID]
			require.Equal(t, "q", one.Queue)
			require.Equal(t, 1, one.Attempt)
			require.Equal(t, 7, *one.MaxAttempts)
			require.Equal(t, 0, one.Priority)
			require.Equal(t, "k'1", one.Kind)
			require.JSONEq(t, string(headers), string(one.Headers))
			require.Equal(t, body, one.Body)
			require.Equal(t, "application/octet-stream", one.ContentType)
			require.WithinDuration(t, time.Now().Add(time.Minute), one.LeaseUntil, 30*time.Second)
			var back map[string]any
			require.NoError(t, one.Decode(&back))
			require.Equal(t, payload, back)
			require.JSONEq(t, `{"raw": [1, {"x": "},{\"\\"}]}`, string(byID[rs[0].ID].Payload))
			require.Nil(t, byID[rs[1].ID].Payload)
			require.Nil(t, byID[rs[1].ID].Headers)
			require.Nil(t, byID[rs[1].ID].Body)
			require.Equal(t, 4, *byID[rs[1].ID].MaxAttempts)
			require.JSONEq(t, `"text"`, string(byID[rs[2].ID].Payload))
			require.Equal(t, 9, byID[rs[2].ID].Priority)
			require.JSONEq(t, `[]`, string(byID[rs[3].ID].Payload))
			require.Equal(t, []byte{}, byID[rs[3].ID].Body)

			status, err := c.Report(ctx, one, map[string]int{"percent": 50})
			require.NoError(t, err)
			require.Equal(t, client.Reported, status)
			until, err := c.Extend(ctx, one, 2*time.Minute)
			require.NoError(t, err)
			require.True(t, until.After(one.LeaseUntil))
			batch := []*client.Message{byID[rs[0].ID], byID[rs[1].ID]}
			outcomes, err := c.ExtendMany(ctx, "q", batch, time.Minute)
			require.NoError(t, err)
			require.Equal(t, []client.Outcome{client.Extended, client.Extended}, outcomes)
			got, err := c.Ack(ctx, one, &client.AckOptions{Result: payload, Strict: true})
			require.NoError(t, err)
			require.Equal(t, client.Acked, got)
			outcomes, err = c.AckMany(ctx, "q", batch, []any{map[string]string{"a": `'"`}, nil})
			require.NoError(t, err)
			require.Equal(t, []client.Outcome{client.Acked, client.Acked}, outcomes)
			outcomes, err = c.FailMany(ctx, "q", []*client.Message{byID[rs[2].ID], byID[rs[3].ID], one},
				[]client.FailOptions{{Error: "e'1", Permanent: true, Details: map[string]string{"s": "}"}}, {RetryIn: new(time.Duration(0))}, {}})
			require.NoError(t, err)
			require.Equal(t, []client.Outcome{client.Dead, client.Retry, client.Gone}, outcomes)
			again := receiveOne(t, c)
			require.Equal(t, rs[3].ID, again.ID)
			require.Equal(t, 2, again.Attempt)
			got, err = c.Release(ctx, byID[rs[3].ID], 0)
			require.NoError(t, err)
			require.Equal(t, client.Stale, got)
			outcomes, err = c.ReleaseMany(ctx, "q", []*client.Message{again}, time.Hour)
			require.NoError(t, err)
			require.Equal(t, []client.Outcome{client.Released}, outcomes)
			ok, err := c.RunNow(ctx, "q", again.ID)
			require.NoError(t, err)
			require.True(t, ok)
			got, err = c.Fail(ctx, receiveOne(t, c), &client.FailOptions{Error: "no", Permanent: true, RetryIn: new(time.Second), Details: body})
			require.NoError(t, err)
			require.Equal(t, client.Dead, got)

			history, err := c.History(ctx, "q", one.ID)
			require.NoError(t, err)
			require.Len(t, history, 1)
			require.Equal(t, "acked", history[0].Outcome)
			require.Equal(t, "w'1", history[0].Worker)
			require.NoError(t, json.Unmarshal(history[0].Result, &back))
			require.Equal(t, payload, back)
			dead, err := c.DeadLetters(ctx, "q", &client.DeadLetterOptions{MaxMessages: 5})
			require.NoError(t, err)
			require.Len(t, dead, 2)
			n, err := c.Redrive(ctx, "q", &client.RedriveOptions{IDs: []int64{rs[2].ID}, Reason: "permanent", MaxMessages: 5})
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			peeked, err := c.Peek(ctx, "q", &client.PeekOptions{MaxMessages: 5})
			require.NoError(t, err)
			require.Len(t, peeked, 2)
			shown, err := c.Get(ctx, "q", one.ID)
			require.NoError(t, err)
			require.Equal(t, one.ID, shown.ID)
			require.Equal(t, body, shown.Body)
			stats, err := c.Stats(ctx, "q")
			require.NoError(t, err)
			require.Len(t, stats, 1)
			require.EqualValues(t, 1, stats[0].Ready)
			gone, err := c.Cancel(ctx, "q", late.ID)
			require.NoError(t, err)
			require.Equal(t, client.Cancelled, gone)
			idle, err := c.Idle(ctx, "q")
			require.NoError(t, err)
			require.Equal(t, "workq.q", idle.Channel)
			_, err = c.PauseQueue(ctx, "q")
			require.NoError(t, err)
			_, err = c.ResumeQueue(ctx, "q")
			require.NoError(t, err)
			_, err = c.Sweep(ctx, 10)
			require.NoError(t, err)
			_, err = c.Maintain(ctx)
			require.NoError(t, err)
			n, err = c.PurgeQueue(ctx, "q")
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			require.ErrorIs(t, c.DropQueue(ctx, "q", false), client.ErrQueueNotEmpty)
			require.NoError(t, c.DropQueue(ctx, "q", true))
			queues, err := c.Queues(ctx)
			require.NoError(t, err)
			require.Empty(t, queues)
		})
	}
}

func TestClientErrorsAreFoundByCode(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, _ := newClient(t, client.QueueSettings{MaxPayloadBytes: new(100), MaxDepth: new(int64(2))})
	call := func(queue string, payload any, opts *client.EnqueueOptions) error {
		_, err := c.Enqueue(ctx, queue, payload, opts)
		return err
	}
	require.NoError(t, call("q", 1, nil))
	lost := receiveOne(t, c)
	_, err := c.Ack(ctx, lost, nil)
	require.NoError(t, err)
	require.NoError(t, call("q", 1, nil))
	for name, tt := range map[string]struct {
		err  error
		want error
		code string
	}{
		"queue not found":   {call("none", nil, nil), client.ErrQueueNotFound, "WQ001"},
		"payload too large": {call("q", strings.Repeat("x", 200), nil), client.ErrPayloadTooLarge, "WQ004"},
		"queue not empty":   {c.DropQueue(ctx, "q", false), client.ErrQueueNotEmpty, "WQ007"},
		"invalid argument":  {call("q", nil, &client.EnqueueOptions{Priority: new(11)}), client.ErrInvalidArgument, "22023"},
		"not supported":     {call("q", nil, &client.EnqueueOptions{GroupKey: "k"}), client.ErrNotSupported, "0A000"},
		"queue exists":      {second(c.CreateQueue(ctx, "q", client.QueueSettings{MaxAttempts: new(77)})), client.ErrQueueExists, "WQ008"},
		"lease lost":        {second(c.Ack(ctx, lost, &client.AckOptions{Strict: true})), client.ErrLeaseLost, "WQ002"},
	} {
		t.Run(name, func(t *testing.T) {
			require.ErrorIs(t, tt.err, tt.want)
			var pg *pgconn.PgError
			require.ErrorAs(t, tt.err, &pg)
			require.Equal(t, tt.code, pg.Code)
			var e *client.Error
			require.ErrorAs(t, tt.err, &e)
			for _, part := range []string{pg.Message, pg.Detail, pg.Hint, pg.Code} {
				require.Contains(t, tt.err.Error(), part)
			}
			for _, other := range []error{client.ErrQueueNotFound, client.ErrPayloadTooLarge, client.ErrNoAccess, client.ErrMessageNotFound} {
				require.True(t, other == tt.want || !errors.Is(tt.err, other))
			}
		})
	}
	_, err = c.Extend(ctx, lost, time.Second)
	require.ErrorIs(t, err, client.ErrLeaseLost)
}

func second[T any](_ T, err error) error { return err }

func TestClientJoinsTheCallersTransaction(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, pool := newClient(t, client.QueueSettings{})
	boom := errors.New("boom")
	in := func(fail error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			enqueue(t, c.With(tx), "in a transaction", nil)
			return fail
		})
	}
	require.ErrorIs(t, in(boom), boom)
	ms, err := c.Receive(ctx, "q", nil)
	require.NoError(t, err)
	require.Empty(t, ms)
	require.NoError(t, in(nil))
	receiveOne(t, c)

	// A connection will do, too, and then no pool is needed.
	conn, err := pool.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	_, err = client.New(nil, client.Options{}).With(conn.Conn()).Version(ctx)
	require.NoError(t, err)
}

func TestClientOutcomesComeInTheOrderAsked(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c, _ := newClient(t, client.QueueSettings{})
	var ms []*client.Message
	for range 4 {
		enqueue(t, c, nil, nil)
		ms = append(ms, receiveOne(t, c))
	}
	_, err := c.Ack(ctx, ms[2], nil)
	require.NoError(t, err)
	_, err = c.Release(ctx, ms[1], 0)
	require.NoError(t, err)
	outcomes, err := c.AckMany(ctx, "q", []*client.Message{ms[3], ms[2], ms[1], ms[0]}, nil)
	require.NoError(t, err)
	require.Equal(t, []client.Outcome{client.Acked, client.Gone, client.Stale, client.Acked}, outcomes)
	outcomes, err = c.AckMany(ctx, "q", nil, nil)
	require.NoError(t, err)
	require.Empty(t, outcomes)
}

func TestClientCallsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	c, _ := newClient(t, client.QueueSettings{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := c.Receive(ctx, "q", nil)
	require.ErrorIs(t, err, context.Canceled)
}
