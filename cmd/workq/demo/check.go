package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// attempt is one line of workq.history().
type attempt struct {
	ID       int64
	Number   int
	Outcome  string
	Worker   string
	Started  time.Time
	Finished time.Time
	Result   json.RawMessage
}

// readHistory calls workq.history() for each message, in one statement.
func readHistory(ctx context.Context, pool *pgxpool.Pool, ids []int64) ([]attempt, error) {
	rows, err := pool.Query(ctx, `
		select h.id, h.attempt, h.outcome, coalesce(h.worker, ''), h.started_at, h.finished_at, h.result
		from unnest($1::bigint[]) i (id)
		cross join lateral workq.history($2, i.id) h
		order by h.id, h.attempt, h.finished_at`, ids, queue)
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	attempts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[attempt])
	if err != nil {
		return nil, fmt.Errorf("read the history: %w", err)
	}
	return attempts, nil
}

// verdict is what check found.
type verdict struct {
	files   int
	results int
	lost    []string // files without a result
	wrong   []string // files with a result that is not theirs
	twice   []string // files with more than one result
	strange []string // results for no file

	redelivered int       // messages that were delivered more than once
	example     []attempt // of one of them
	examplePath string

	first     int           // messages acked at their first delivery,
	firstSpan time.Duration // from the first receive to the last of these acks
	span      time.Duration // from the first enqueue to the last ack
	latencies []time.Duration

	unfinished   int // messages still in the queue
	dead         int // dead letters
	killedLeases int // that the killed worker held
}

// check compares what the history says with the truth: one result for each file, and the right one.
// The attempts of a message come in order.
func check(truth map[string]digest, enqueued map[int64]message, attempts []attempt) verdict {
	v := verdict{files: len(truth)}
	results := map[string]int{}
	timeouts := map[int64]bool{}
	var begin, received, lastFirst, last time.Time
	for _, m := range enqueued {
		begin = earlier(begin, m.at)
	}
	for _, a := range attempts {
		if a.Outcome != "acked" {
			timeouts[a.ID] = timeouts[a.ID] || a.Outcome == "timeout"
			continue
		}
		v.results++
		m, ok := enqueued[a.ID]
		want, known := truth[m.path]
		if !ok || !known {
			v.strange = append(v.strange, fmt.Sprintf("message %d", a.ID))
			continue
		}
		if results[m.path]++; results[m.path] == 2 {
			v.twice = append(v.twice, m.path)
		}
		var got digest
		if err := json.Unmarshal(a.Result, &got); err != nil || got != want {
			v.wrong = append(v.wrong, m.path)
		}
		v.latencies = append(v.latencies, a.Finished.Sub(m.at))
		received, last = earlier(received, a.Started), later(last, a.Finished)
		if a.Number > 1 || timeouts[a.ID] {
			v.redelivered++
			if v.example == nil {
				v.examplePath = m.path
				v.example = slices.DeleteFunc(slices.Clone(attempts), func(b attempt) bool { return b.ID != a.ID })
			}
			continue
		}
		v.first++
		lastFirst = later(lastFirst, a.Finished)
	}
	for path := range truth {
		if results[path] == 0 {
			v.lost = append(v.lost, path)
		}
	}
	v.firstSpan, v.span = lastFirst.Sub(received), last.Sub(begin)
	for _, list := range [][]string{v.lost, v.wrong, v.twice, v.strange} {
		slices.Sort(list)
	}
	slices.Sort(v.latencies)
	return v
}

// err says all that is off, and is nil if nothing is.
func (v verdict) err() error {
	var off []string
	add := func(paths []string, what string) {
		if len(paths) > 0 {
			some := strings.Join(paths[:min(len(paths), 3)], ", ")
			off = append(off, fmt.Sprintf("%d %s (%s)", len(paths), what, some))
		}
	}
	add(v.lost, "lost")
	add(v.wrong, "wrong")
	add(v.twice, "with two results")
	add(v.strange, "of no file")
	if v.results != v.files && off == nil {
		off = append(off, fmt.Sprintf("%d results for %d files", v.results, v.files))
	}
	if v.unfinished > 0 {
		off = append(off, fmt.Sprintf("%d messages left in the queue", v.unfinished))
	}
	if v.dead > 0 {
		off = append(off, fmt.Sprintf("%d dead letters", v.dead))
	}
	if v.killedLeases == 0 {
		off = append(off, "the killed worker held no lease, so nothing was shown: choose a folder with more files")
	}
	if v.redelivered < v.killedLeases {
		off = append(off, fmt.Sprintf("only %d messages were redelivered, the killed worker held %d", v.redelivered, v.killedLeases))
	}
	if off == nil {
		return nil
	}
	return errors.New(strings.Join(off, "; "))
}

// percentile is that of the sorted latencies.
func (v verdict) percentile(p int) time.Duration {
	if len(v.latencies) == 0 {
		return 0
	}
	return v.latencies[(len(v.latencies)-1)*p/100]
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
