package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
)

type snapshotOptions struct {
	rate      int
	seconds   int
	consumers []int
	release   bool
}

func newSnapshot(t *target) *cobra.Command {
	var o snapshotOptions
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "A steady load while an old snapshot is held: does it slow down?",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, consumers := range o.consumers {
				if err := snapshot(cmd.Context(), t, o, consumers); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&o.rate, "rate", 5000, "messages a second")
	cmd.Flags().IntVar(&o.seconds, "seconds", 60, "how long the snapshot is held")
	cmd.Flags().IntSliceVar(&o.consumers, "consumers", []int{2, 16}, "consumers")
	cmd.Flags().BoolVar(&o.release, "free", false, "hold no snapshot, for comparison")
	return cmd
}

// slice is a quarter of the time.
type slice struct {
	acked   int64
	cpu     time.Duration
	backlog int64 // at its end
	delays  []float64
}

func snapshot(ctx context.Context, t *target, o snapshotOptions, consumers int) error {
	b, err := t.open(ctx, consumers+2)
	if err != nil {
		return err
	}
	defer b.close()
	queue, err := b.queue(ctx, "snapshot")
	if err != nil {
		return err
	}

	var sent, acked atomic.Int64
	delays := make(chan float64, 1<<20)
	g, gctx := errgroup.WithContext(ctx)
	loadCtx, stop := context.WithCancel(gctx)
	defer stop()
	g.Go(func() error { return ended(loadCtx, produce(loadCtx, b, queue, o.rate, &sent)) })
	for range consumers {
		g.Go(func() error { return ended(loadCtx, consume(loadCtx, b, queue, &acked, delays)) })
	}

	// Warm first: plans, pools, files. Then somebody opens a snapshot and leaves it.
	wait(loadCtx, 5*time.Second)
	var holder *pgx.Conn
	if !o.release {
		if holder, err = pgx.ConnectConfig(ctx, b.pool.Config().ConnConfig); err != nil {
			return err
		}
		defer holder.Close(ctx)
		if _, err := holder.Exec(ctx, "begin isolation level repeatable read"); err != nil {
			return err
		}
		if _, err := holder.Exec(ctx, "select count(*) from pg_class"); err != nil {
			return err
		}
	}
	drainDelays(delays)

	slices_ := make([]slice, 4)
	every := time.Duration(o.seconds) * time.Second / 4
	began := time.Now()
	for i := range slices_ {
		s := &slices_[i]
		ackedBefore := acked.Load()
		cpuBefore, err := b.cpu()
		if err != nil {
			return err
		}
		wait(loadCtx, time.Until(began.Add(time.Duration(i+1)*every)))
		if err := gctx.Err(); err != nil {
			return g.Wait()
		}
		cpuAfter, err := b.cpu()
		if err != nil {
			return err
		}
		s.acked, s.cpu, s.backlog = acked.Load()-ackedBefore, cpuAfter-cpuBefore, sent.Load()-acked.Load()
		s.delays = drainDelays(delays)
	}
	var dead, size int64
	if err := b.pool.QueryRow(ctx, `
		select s.n_dead_tup, pg_total_relation_size(s.relid)
		from pg_stat_all_tables s where s.relid = 'workq.delivery'::regclass`).Scan(&dead, &size); err != nil {
		return err
	}
	stop()
	if err := g.Wait(); err != nil {
		return err
	}

	out := table.NewWriter()
	out.SetOutputMirror(os.Stdout)
	held := "a snapshot held"
	if o.release {
		held = "no snapshot held"
	}
	out.SetTitle("%d messages/s, %d consumers, %s for %d s, PostgreSQL %s", o.rate, consumers, held, o.seconds, b.version)
	out.AppendHeader(table.Row{"quarter", "acked/s", "backlog", "server CPU %", "CPU µs/message", "delay p50 ms", "p99 ms"})
	for i, s := range slices_ {
		out.AppendRow(table.Row{i + 1, int64(float64(s.acked) / every.Seconds()), s.backlog,
			fmt.Sprintf("%.0f", 100*s.cpu.Seconds()/every.Seconds()),
			fmt.Sprintf("%.0f", float64(s.cpu.Microseconds())/float64(s.acked)),
			fmt.Sprintf("%.1f", quantile(s.delays, 0.5)), fmt.Sprintf("%.1f", quantile(s.delays, 0.99))})
	}
	first, last := slices_[0], slices_[3]
	out.AppendFooter(table.Row{"", "", "", fmt.Sprintf("last / first %.2f", last.cpu.Seconds()/first.cpu.Seconds()), "",
		fmt.Sprintf("%d dead rows", dead), fmt.Sprintf("%d MB", size>>20)})
	out.Render()
	return nil
}

// produce enqueues a hundredth of the rate every 10 ms, by the clock: what is late is caught up.
func produce(ctx context.Context, b *bed, queue string, rate int, sent *atomic.Int64) error {
	began := time.Now()
	for {
		if n := int64(time.Since(began).Seconds()*float64(rate)) - sent.Load(); n > 0 {
			n = min(n, 1000)
			if _, err := b.pool.Exec(ctx, "select count(*) from workq.enqueue_many($1, array_fill($2::jsonb, array[$3::int]))", queue, payload, n); err != nil {
				return err
			}
			sent.Add(n)
		}
		if !wait(ctx, 10*time.Millisecond) {
			return nil
		}
	}
}

// consume receives and acks in hundreds, and looks again after 10 ms where there was nothing.
func consume(ctx context.Context, b *bed, queue string, acked *atomic.Int64, delays chan<- float64) error {
	conn, err := b.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	for ctx.Err() == nil {
		rows, err := conn.Query(ctx, "select id, lease, date_part('epoch', clock_timestamp() - enqueued_at) from workq.receive($1, 100)", queue)
		if err != nil {
			return err
		}
		var ids, leases []int64
		for rows.Next() {
			var id, lease int64
			var delay float64
			if err := rows.Scan(&id, &lease, &delay); err != nil {
				return err
			}
			ids, leases = append(ids, id), append(leases, lease)
			delays <- delay * 1000
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if len(ids) == 0 {
			wait(ctx, 10*time.Millisecond)
			continue
		}
		if _, err := conn.Exec(ctx, "select count(*) from workq.ack_many($1, $2, $3)", queue, ids, leases); err != nil {
			return err
		}
		acked.Add(int64(len(ids)))
	}
	return nil
}

// ended forgets an error that stopping caused.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil && (errors.Is(err, context.Canceled) || pgxTimeout(err)) {
		return nil
	}
	return err
}

func pgxTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// wait waits, and says whether it came to the end of it.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func drainDelays(c <-chan float64) (all []float64) {
	for {
		select {
		case d := <-c:
			all = append(all, d)
		default:
			return all
		}
	}
}

func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	return s[int(q*float64(len(s)-1))]
}
