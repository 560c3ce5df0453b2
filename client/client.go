package client

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Querier is what a [Client] speaks through: *pgxpool.Pool, *pgx.Conn and pgx.Tx all satisfy it.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Options configures a [Client]. The zero value works.
type Options struct {
	// Logger receives what the listener and the workers have to say.
	// Defaults to nothing being logged.
	Logger *slog.Logger

	// Listen says how to reach PostgreSQL directly for LISTEN, for a pool that goes through a
	// pooler in transaction mode. It is only used while a worker runs.
	// Defaults to the pool's own connection settings.
	Listen *pgx.ConnConfig

	// DisableListen keeps workers from listening; they poll.
	// Defaults to false.
	DisableListen bool
}

// Client calls the functions of the schema workq. It is safe for concurrent use if what it
// speaks through is: a pool is, a connection or a transaction is not.
type Client struct {
	pool     *pgxpool.Pool
	db       Querier
	log      *slog.Logger
	listener *listener // nil when disabled
}

// New returns a client on pool. It does not connect; the first call does. It holds nothing that
// needs closing. A nil pool is fine for a client that is only used through [Client.With].
func New(pool *pgxpool.Pool, opts Options) *Client {
	c := &Client{pool: pool, log: opts.Logger}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if pool != nil {
		c.db = pool
		if !opts.DisableListen {
			c.listener = newListener(pool, opts.Listen, c.log)
		}
	}
	return c
}

// With returns a client whose calls go through db, for instance a transaction that they join.
// Its workers still use the pool that c was made with.
func (c *Client) With(db Querier) *Client {
	w := *c
	w.db = db
	return &w
}

// call is one `select … from workq.fn(name => $1, …)`. Arguments that are not set are left out,
// so that SQL's own defaults hold.
type call struct {
	fn    string
	names []string
	args  []any
}

func fn(name string) *call { return &call{fn: name} }

// arg adds an argument. name may carry a cast, as in "ids" or "results::text[]::jsonb[]".
func (q *call) arg(name string, v any) *call {
	q.names = append(q.names, name)
	q.args = append(q.args, v)
	return q
}

func (q *call) str(name, v string) *call {
	if v == "" {
		return q
	}
	return q.arg(name, v)
}

func (q *call) int(name string, v int) *call {
	if v == 0 {
		return q
	}
	return q.arg(name, v)
}

func (q *call) dur(name string, v time.Duration) *call {
	if v == 0 {
		return q
	}
	return q.arg(name, v)
}

func (q *call) time(name string, v time.Time) *call {
	if v.IsZero() {
		return q
	}
	return q.arg(name, v)
}

// opt adds *v unless v is nil.
func opt[T any](q *call, name string, v *T) *call {
	if v == nil {
		return q
	}
	return q.arg(name, *v)
}

// json adds v as JSON text, which every execution mode of pgx passes unharmed ([]byte would
// become bytea under the simple protocol).
func (q *call) json(name string, v any) (*call, error) {
	s, err := jsonText(v)
	if err != nil {
		return nil, fmt.Errorf("workq: %s: %w", name, err)
	}
	if s == nil {
		return q, nil
	}
	return q.arg(name+"::jsonb", *s), nil
}

func (q *call) sql(columns string) string {
	var b strings.Builder
	b.WriteString("select ")
	b.WriteString(columns)
	b.WriteString(" from workq.")
	b.WriteString(q.fn)
	b.WriteByte('(')
	for i, n := range q.names {
		name, cast, _ := strings.Cut(n, "::")
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(name + " => $" + strconv.Itoa(i+1))
		if cast != "" {
			b.WriteString("::" + cast)
		}
	}
	b.WriteByte(')')
	return b.String()
}

// rows runs q and collects its rows.
func rows[T any](ctx context.Context, db Querier, q *call, columns string, to pgx.RowToFunc[T]) ([]T, error) {
	r, err := db.Query(ctx, q.sql(columns), q.args...)
	if err != nil {
		return nil, wrap(err)
	}
	out, err := pgx.CollectRows(r, to)
	return out, wrap(err)
}

// row runs q and returns its one row.
func row[T any](ctx context.Context, db Querier, q *call, columns string, to pgx.RowToFunc[T]) (T, error) {
	r, err := db.Query(ctx, q.sql(columns), q.args...)
	if err != nil {
		var zero T
		return zero, wrap(err)
	}
	out, err := pgx.CollectExactlyOneRow(r, to)
	return out, wrap(err)
}

// value runs q and returns its one value.
func value[T any](ctx context.Context, db Querier, q *call) (T, error) {
	return row(ctx, db, q, "*", pgx.RowTo[T])
}

// jsonText gives v as JSON; nil for nil and for an empty json.RawMessage.
func jsonText(v any) (*string, error) {
	switch v := v.(type) {
	case nil:
		return nil, nil
	case json.RawMessage:
		if len(v) == 0 {
			return nil, nil
		}
		s := string(v)
		return &s, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	s := string(b)
	return &s, nil
}

// jsonTexts is jsonText for each; nil if all are nil.
func jsonTexts(vs []any) ([]*string, error) {
	var out []*string
	for i, v := range vs {
		s, err := jsonText(v)
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		if s == nil {
			continue
		}
		if out == nil {
			out = make([]*string, len(vs))
		}
		out[i] = s
	}
	return out, nil
}

// column collects one field of each element for an array argument; nil if none is set.
func column[E, T any](es []E, get func(*E) *T) []*T {
	var out []*T
	for i := range es {
		v := get(&es[i])
		if v == nil {
			continue
		}
		if out == nil {
			out = make([]*T, len(es))
		}
		out[i] = v
	}
	return out
}

// nonzero is a pointer to v, nil if v is its type's zero value.
func nonzero[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// exec runs q for its effect.
func (c *Client) exec(ctx context.Context, q *call) error {
	r, err := c.db.Query(ctx, q.sql("*"), q.args...)
	if err != nil {
		return wrap(err)
	}
	r.Close()
	return wrap(r.Err())
}
