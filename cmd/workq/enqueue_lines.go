package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

// batchBytes ends a batch early, so that large lines do not gather in memory.
const batchBytes = 8 << 20

type enqueued struct {
	Enqueued int `json:"enqueued"`
}

// enqueueLines always says how many messages are in, whatever else happened.
func enqueueLines(cmd *cobra.Command, queue, headers string) error {
	f := cmd.Flags()
	name, _ := f.GetString("lines")
	size, _ := f.GetInt("batch")
	atomic, _ := f.GetBool("atomic")
	if size < 1 {
		return usage("--batch is %d: 1 or more", size)
	}
	in, err := open(cmd, name)
	if err != nil {
		return err
	}
	defer in.Close()
	bar := newProgress(in)
	defer bar.stop()
	l := &loader{
		lines: newLines(name, bar.reader(in)), bar: bar, size: size,
		call: manyCall(queue, headers, fn("").flags(f)),
	}
	err = connect(cmd, func(ctx context.Context, conn *pgx.Conn) error {
		if atomic {
			return l.loadAtomic(ctx, conn)
		}
		return l.load(ctx, conn)
	})
	bar.stop()
	if err != nil && !l.begun {
		return err
	}
	return errors.Join(err, showRecord(cmd, enqueued{l.done}))
}

// loader enqueues lines in batches.
type loader struct {
	lines *lines
	bar   *progressBar
	size  int
	call  *call
	done  int // messages that are in
	sent  int // number of the last line that was read and is in
	begun bool
}

// begins is a connection or a transaction.
type begins interface {
	Begin(context.Context) (pgx.Tx, error)
}

func (l *loader) load(ctx context.Context, db begins) error {
	l.begun = true
	for {
		batch, next, err := l.read(ctx)
		if err := l.send(ctx, db, batch); err != nil {
			return err
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return l.stopped(err, next)
		}
		l.sent = next - 1
	}
}

// read reads a batch, and gives the number of the line that follows. An interrupt does not wait for
// input.
func (l *loader) read(ctx context.Context) (batch []line, next int, err error) {
	done := make(chan struct{})
	var got []line
	var gotErr error
	go func() {
		defer close(done)
		got, gotErr = l.lines.batch(l.size)
	}()
	select {
	case <-ctx.Done():
		return nil, l.sent + 1, ctx.Err()
	case <-done:
		return got, l.lines.last + 1, gotErr
	}
}

func (l *loader) loadAtomic(ctx context.Context, conn *pgx.Conn) error {
	committing := false
	err := pgx.BeginFunc(context.WithoutCancel(ctx), conn, func(tx pgx.Tx) error {
		err := l.load(ctx, tx)
		committing = err == nil
		return err
	})
	if err == nil {
		return nil
	}
	l.done = 0
	var pg *pgconn.PgError
	if committing && !errors.As(err, &pg) {
		return &noteError{err, "it is not known whether all lines were enqueued or none"}
	}
	return &noteError{err, "nothing was enqueued"}
}

// send enqueues a batch in a transaction of its own. When PostgreSQL refuses something in it, the
// lines are sent one by one, up to the one to blame.
func (l *loader) send(ctx context.Context, db begins, batch []line) error {
	if len(batch) == 0 {
		return nil
	}
	err := l.commit(ctx, db, batch)
	var pg *pgconn.PgError
	switch {
	case err == nil:
		l.done += len(batch)
		l.bar.enqueued(l.done)
		return nil
	case !errors.As(err, &pg):
		return &noteError{err, fmt.Sprintf("%d lines were enqueued; of lines %d to %d it is not known", l.done, batch[0].n, batch[len(batch)-1].n)}
	case len(batch) == 1 || !aboutData(pg.Code):
		return l.stopped(&placeError{l.lines.place(batch[0].n), err}, batch[0].n)
	}
	for _, one := range batch {
		if err := l.send(ctx, db, []line{one}); err != nil {
			return err
		}
	}
	return nil
}

// aboutData tells errors that one message may be to blame for.
func aboutData(code string) bool {
	return slices.Contains([]string{"22", "54", "WQ"}, code[:min(2, len(code))]) && code != "WQ001"
}

func (l *loader) commit(ctx context.Context, db begins, batch []line) error {
	// Not cut off in the middle: then it would not be known whether it was committed.
	return pgx.BeginFunc(context.WithoutCancel(ctx), db, func(tx pgx.Tx) error {
		payloads := make([]string, len(batch))
		for i := range batch {
			payloads[i] = batch[i].json
		}
		sql, args := l.call.many(payloads)
		_, err := tx.Exec(context.WithoutCancel(ctx), sql, args...)
		return l.call.explain(err)
	})
}

// stopped adds how to go on.
func (l *loader) stopped(err error, next int) error {
	return &noteError{err, fmt.Sprintf("%d lines were enqueued, go on at line %d: tail -n +%d", l.done, next, next)}
}

// manyCall makes the arguments of enqueue_many from the flags of enqueue.
func manyCall(queue, headers string, flags *call) *call {
	c := fn("enqueue_many").arg("queue", "text", queue)
	if headers != "" {
		flags.arg("headers", "jsonb", headers)
	}
	c.params = append(c.params, flags.params...)
	return c
}

// many gives the statement for so many payloads: what all messages share and enqueue_many takes as
// an array is repeated for each.
func (c *call) many(payloads []string) (string, []any) {
	args := []any{payloads}
	list := []string{"payloads => $1::text[]::jsonb[]"}
	for _, p := range c.params {
		args = append(args, p.value)
		value := p.placeholder(len(args))
		name := p.name
		switch p.name {
		case "delay":
			name, value = "run_ats", each("pg_catalog.clock_timestamp() + "+value)
		case "priority":
			name, value = "priorities", each(value)
		case "kind", "content_type", "run_at":
			name, value = p.name+"s", each(value)
		case "headers":
			value = each(value)
		}
		list = append(list, name+" => "+value)
	}
	return "select from workq." + c.fn + "(" + strings.Join(list, ", ") + ")", args
}

func each(value string) string {
	return "pg_catalog.array_fill(" + value + ", array[pg_catalog.cardinality($1::text[])])"
}
