package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

// A worker receives a batch and acks it, each in a transaction of its own, and says how many it did.
type worker func(ctx context.Context, conn *pgxpool.Conn, queue string, batch int) (int, error)

// functions is what users call.
func functions(ctx context.Context, conn *pgxpool.Conn, queue string, batch int) (int, error) {
	ids, leases, err := receive(ctx, conn, "select id, lease, payload from workq.receive($1, $2)", queue, batch)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if batch == 1 {
		_, err = conn.Exec(ctx, "select workq.ack($1, $2, $3)", queue, ids[0], leases[0])
	} else {
		_, err = conn.Exec(ctx, "select count(*) from workq.ack_many($1, $2, $3)", queue, ids, leases)
	}
	return len(ids), err
}

// bare is the floor: the same tables and the same history, in two plain statements, with nothing of
// what the functions promise: no queue settings, no ttl, no attempts that run out, no floor, no
// wake-ups, no outcomes, one priority. The session pins the plans as the functions do, and the key of
// the ack is written as theirs is: as a plain join it is turned around sooner or later, and then it
// walks the whole queue at every call.
func bare(ctx context.Context, conn *pgxpool.Conn, queue string, batch int) (int, error) {
	ids, leases, err := receive(ctx, conn, `
		with picked as materialized (
			select d.ctid
			from workq.delivery d
			where d.queue_id = (select q.id from workq.queue q where q.name = $1) and d.priority = 5
				and d.visible_at <= clock_timestamp()
			order by d.visible_at
			limit $2
			for update skip locked
		), leased as (
			update workq.delivery d
			set attempt = d.attempt + 1, lease = nextval('workq.lease_number'), received_at = clock_timestamp(),
				visible_at = clock_timestamp() + interval '30 seconds'
			from picked p
			where d.ctid = p.ctid
			returning d.message_id, d.lease, d.created_at
		)
		select l.message_id, l.lease, m.payload
		from leased l
		left join lateral (
			select m.payload from workq.message m where m.id = l.message_id and m.created_at = l.created_at limit 1
		) m on true`, queue, batch)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	_, err = conn.Exec(ctx, `
		with acked as (
			delete from workq.delivery d
			using unnest($2::bigint[], $3::bigint[]) i (id, lease)
			where d.message_id = any (array[i.id]) and d.queue_id + 0 = (select q.id from workq.queue q where q.name = $1) and d.lease = i.lease
			returning d.*
		)
		insert into workq.attempt (message_id, finished_at, started_at, lease, queue_id, attempt, outcome)
		select a.message_id, clock_timestamp(), a.received_at, a.lease, a.queue_id, a.attempt, 'acked' from acked a`,
		queue, ids, leases)
	return len(ids), err
}

var pins = []string{
	"enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "enable_sort", "jit",
}

func receive(ctx context.Context, conn *pgxpool.Conn, sql, queue string, batch int) (ids, leases []int64, err error) {
	rows, err := conn.Query(ctx, sql, queue, batch)
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, lease int64
		var payload []byte
		if err := rows.Scan(&id, &lease, &payload); err != nil {
			return nil, nil, err
		}
		ids, leases = append(ids, id), append(leases, lease)
	}
	return ids, leases, rows.Err()
}

type drainOptions struct {
	messages, rounds int
	connections      []int
	batches          []int
}

func newDrain(t *target) *cobra.Command {
	var o drainOptions
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Receive and ack a backlog: the functions against the bare statements",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return drain(cmd.Context(), t, o) },
	}
	cmd.Flags().IntVar(&o.messages, "messages", 200_000, "backlog of a round in batches of 100; a tenth of it one by one")
	cmd.Flags().IntVar(&o.rounds, "rounds", 5, "rounds of each")
	cmd.Flags().IntSliceVar(&o.connections, "connections", []int{4}, "connections")
	cmd.Flags().IntSliceVar(&o.batches, "batches", []int{100, 1}, "messages a call")
	return cmd
}

func drain(ctx context.Context, t *target, o drainOptions) error {
	b, err := t.open(ctx, slices.Max(o.connections))
	if err != nil {
		return err
	}
	defer b.close()
	out := table.NewWriter()
	out.SetOutputMirror(os.Stdout)
	out.SetTitle("receive + ack, messages/s, PostgreSQL %s, fsync on, median of %d (least, most)", b.version, o.rounds)
	out.AppendHeader(table.Row{"connections", "batch", "messages", "functions", "bare statements", "ratio of medians", "ratio of the best", "server CPU µs/message", "bare"})
	for _, connections := range o.connections {
		for _, batch := range o.batches {
			messages := o.messages
			if batch == 1 {
				messages /= 10
			}
			var with, without drained
			for round := range o.rounds * 2 {
				work, d := functions, &with
				// One after the other, and each as often first.
				if (round+round/2)%2 == 1 {
					work, d = bare, &without
				}
				if err := d.once(ctx, b, work, connections, batch, messages); err != nil {
					return err
				}
			}
			out.AppendRow(table.Row{connections, batch, messages, spread(with.rates), spread(without.rates),
				fmt.Sprintf("%.2f", median(with.rates)/median(without.rates)),
				fmt.Sprintf("%.2f", slices.Max(with.rates)/slices.Max(without.rates)),
				spread(with.cpu), spread(without.cpu)})
		}
	}
	out.Render()
	return nil
}

// drained is what was measured: messages a second, and the server's processor time in µs a message.
type drained struct{ rates, cpu []float64 }

// once fills a queue and empties it.
func (d *drained) once(ctx context.Context, b *bed, work worker, connections, batch, messages int) error {
	queue, err := b.queue(ctx, "drain")
	if err != nil {
		return err
	}
	if err := b.fill(ctx, queue, messages); err != nil {
		return err
	}
	if err := b.rest(ctx); err != nil {
		return err
	}

	conns := make([]*pgxpool.Conn, connections)
	for i := range conns {
		if conns[i], err = b.pool.Acquire(ctx); err != nil {
			return err
		}
		defer conns[i].Release()
		for _, pin := range pins {
			if _, err := conns[i].Exec(ctx, "set "+pin+" = off"); err != nil {
				return err
			}
		}
		if _, err := conns[i].Exec(ctx, "set plan_cache_mode = force_generic_plan"); err != nil {
			return err
		}
	}
	var done atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	cpuBefore, cpuErr := b.cpu() // unknown on a database of the user's: then it shows as 0
	began := time.Now()
	for _, conn := range conns {
		g.Go(func() error {
			for {
				n, err := work(gctx, conn, queue, batch)
				if err != nil || n == 0 {
					return err
				}
				done.Add(int64(n))
			}
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	took := time.Since(began)
	if int(done.Load()) != messages {
		return fmt.Errorf("%d of %d messages were acked", done.Load(), messages)
	}
	cpu := 0.0
	if cpuAfter, err := b.cpu(); err == nil && cpuErr == nil {
		cpu = float64((cpuAfter - cpuBefore).Microseconds()) / float64(messages)
	}
	d.rates = append(d.rates, float64(messages)/took.Seconds())
	d.cpu = append(d.cpu, cpu)
	return nil
}

func median(v []float64) float64 {
	s := slices.Sorted(slices.Values(v))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

func spread(v []float64) string {
	return fmt.Sprintf("%.0f (%.0f, %.0f)", median(v), slices.Min(v), slices.Max(v))
}
