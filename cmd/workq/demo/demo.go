// Package demo is `workq demo`: the queue at work on real files, with a worker killed half-way, and
// every result checked.
package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgworkq/workq/client"
)

const (
	queue      = "files"
	batchSize  = 500             // messages in one enqueue_many
	visibility = 5 * time.Second // how soon others get the messages of the killed worker
	pollEvery  = 100 * time.Millisecond
	stuckAfter = 30 * time.Second // without any progress
)

type options struct {
	server  string // connection string; "" for a throwaway server
	dir     string
	workers int
	keep    bool
	json    bool
}

// Command is `workq demo`.
func Command() *cobra.Command {
	var o options
	var asWorker string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Hash real files with four workers, kill one, and check every result",
		Long: `Enqueues one message for each file below a folder, by default the source of the Go distribution,
runs worker processes that compute the file's SHA-256 and count its lines, kills one of them
half-way with SIGKILL, waits until all is done, and compares every result with its own.

It runs on a throwaway PostgreSQL that is gone afterwards; with DATABASE_URL set, in a database of its
own on that server. The exit status is 1 if a result is lost or wrong.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("too many arguments: %q", args[0])
			}
			if o.workers < 2 {
				return fmt.Errorf("--workers is %d: choose 2 or more, as one is killed", o.workers)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.server = os.Getenv("DATABASE_URL")
			// The root command has these two.
			if f := cmd.Flag("database-url"); f != nil && f.Value.String() != "" {
				o.server = f.Value.String()
			}
			if f := cmd.Flag("json"); f != nil {
				o.json = f.Value.String() == "true"
			}
			if asWorker != "" {
				return work(cmd.Context(), cmd.InOrStdin(), o.server, o.dir, asWorker)
			}
			return run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), o)
		},
	}
	cmd.Flags().StringVar(&o.dir, "dir", "", "`folder` with the files (default: the source tree of the Go distribution)")
	cmd.Flags().IntVar(&o.workers, "workers", 4, "`number` of worker processes, at least 2")
	cmd.Flags().BoolVar(&o.keep, "keep", false, "keep the server at the end, until interrupted")
	cmd.Flags().StringVar(&asWorker, "as-worker", "", "be one worker process, with this `name`")
	_ = cmd.Flags().MarkHidden("as-worker") // it exists
	return cmd
}

// run does it all. Data goes to out, everything else to progress.
func run(ctx context.Context, out, progress io.Writer, o options) (err error) {
	dir, err := sourceDir(ctx, o.dir)
	if err != nil {
		return err
	}
	paths, err := listFiles(dir)
	if err != nil {
		return err
	}
	if len(paths) == 0 {
		return fmt.Errorf("no files below %s: choose another folder with --dir", dir)
	}

	began := time.Now()
	db, err := openDatabase(ctx, o.server)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.close()) }()
	fmt.Fprintf(progress, "%s, workq installed (%s)\n", db.what, seconds(time.Since(began)))
	fmt.Fprintf(progress, "%s files below %s\n", thousands(len(paths)), dir)

	pool, err := pgxpool.New(ctx, db.url)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	d := &demo{options: o, dir: dir, paths: paths, db: db, pool: pool, client: client.New(pool, client.Options{}), progress: progress}

	if err := d.work(ctx); err != nil {
		return err
	}
	v, err := d.verify(ctx)
	if err != nil {
		return err
	}
	if err := d.summary(out, v); err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintf(progress, "\nThe server stays until you press Ctrl-C:\n\n  psql '%s'\n", db.url)
		<-ctx.Done()
	}
	return v.err()
}

// demo is one run.
type demo struct {
	options
	dir      string
	paths    []string
	db       *database
	pool     *pgxpool.Pool
	client   *client.Client
	progress io.Writer

	enqueued map[int64]message // by id
	killed   killing
	workers  []*worker
}

// message is what was enqueued.
type message struct {
	path string
	at   time.Time
}

// killing is what became of the killed worker.
type killing struct {
	worker *worker
	done   int // messages that were done
	leases int // that it held
}

// work enqueues a message for each file while the workers are running, kills one half-way and returns when
// the queue is empty and the other workers have ended.
func (d *demo) work(ctx context.Context) error {
	lease := visibility
	if _, err := d.client.CreateQueue(ctx, queue, client.QueueSettings{Visibility: &lease}); err != nil {
		return err
	}
	defer d.stopWorkers()
	for i := range d.options.workers {
		w, err := startWorker(d.db.url, d.dir, fmt.Sprintf("worker %d", i+1))
		if err != nil {
			return err
		}
		d.workers = append(d.workers, w)
	}
	show := newDisplay(d.progress, len(d.paths))
	err := d.feedAndWatch(ctx, show)
	show.stop()
	if err != nil {
		return err
	}
	return d.stopWorkers()
}

// stopWorkers lets all workers drain, and says which of those that were not killed did not end well.
func (d *demo) stopWorkers() error {
	for _, w := range d.workers {
		w.drain()
	}
	for _, w := range d.workers {
		if err := w.wait(); err != nil && w != d.killed.worker {
			return fmt.Errorf("%s did not end well: %w\n%s", w.name, err, w.log())
		}
	}
	return nil
}

func (d *demo) feedAndWatch(ctx context.Context, show display) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	fed := make(chan error, 1)
	go func() { fed <- d.enqueue(ctx, show) }()
	watchErr := d.watch(ctx, show)
	if watchErr != nil {
		cancel()
	}
	if err := <-fed; err != nil && watchErr == nil {
		return err
	}
	return watchErr
}

func (d *demo) enqueue(ctx context.Context, show display) error {
	d.enqueued = make(map[int64]message, len(d.paths))
	for batch := range slices.Chunk(d.paths, batchSize) {
		messages := make([]client.NewMessage, len(batch))
		for i, path := range batch {
			messages[i].Payload = payload{Path: path}
		}
		receipts, err := d.client.EnqueueMany(ctx, queue, messages, nil)
		if err != nil {
			return fmt.Errorf("enqueue: %w", err)
		}
		for i, r := range receipts {
			d.enqueued[r.ID] = message{path: batch[i], at: r.VisibleAt}
		}
		show.enqueued(len(batch))
	}
	return nil
}

// watch follows the queue until all is done, and kills a worker when half is.
func (d *demo) watch(ctx context.Context, show display) error {
	total, last, lastAt, waiting := len(d.paths), 0, time.Now(), false
	for {
		done, err := d.done(ctx)
		if err != nil {
			return err
		}
		show.done(done)
		if done != last {
			last, lastAt = done, time.Now()
		}
		if d.killed.worker == nil && done >= total/2 {
			if err := d.kill(ctx, done); err != nil {
				return err
			}
			show.say(fmt.Sprintf("%s (process %d) killed with SIGKILL when %s were done; it held %d leases",
				d.killed.worker.name, d.killed.worker.pid(), thousands(done), d.killed.leases))
		}
		if done == total {
			return nil
		}
		if d.killed.worker != nil && done == total-d.killed.leases && !waiting {
			waiting = true
			show.say(fmt.Sprintf("only the messages of %s are left: others get them %s after it took them", d.killed.worker.name, seconds(visibility)))
		}
		for _, w := range d.workers {
			if w != d.killed.worker && w.ended() {
				return fmt.Errorf("%s ended by itself: %v\n%s", w.name, w.wait(), w.log())
			}
		}
		if time.Since(lastAt) > stuckAfter {
			return fmt.Errorf("stuck: nothing was done for %s, %s of %s are done", stuckAfter, thousands(done), thousands(total))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollEvery):
		}
	}
}

// done counts the messages that are finished.
func (d *demo) done(ctx context.Context) (int, error) {
	var done int
	err := d.pool.QueryRow(ctx, `select count(*) from workq.attempt a where a.outcome in ('acked', 'dead')`).Scan(&done)
	if err != nil {
		return 0, fmt.Errorf("count what is done: %w", err)
	}
	return done, nil
}

// kill ends a worker that holds leases, and counts them when it is dead.
func (d *demo) kill(ctx context.Context, done int) error {
	held, err := d.held(ctx)
	if err != nil {
		return err
	}
	victim := slices.MaxFunc(d.workers, func(a, b *worker) int { return cmp.Compare(held[a.name], held[b.name]) })
	if err := victim.kill(); err != nil {
		return err
	}
	d.killed = killing{worker: victim, done: done}
	// What it sent last is still being carried out: count when its sessions are gone.
	for {
		var sessions int
		err := d.pool.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1", victim.name).Scan(&sessions)
		if err != nil {
			return fmt.Errorf("look for the sessions of %s: %w", victim.name, err)
		}
		if sessions == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pollEvery / 10):
		}
	}
	if held, err = d.held(ctx); err != nil {
		return err
	}
	d.killed.leases = held[victim.name]
	return nil
}

// held is the number of leases of each worker.
func (d *demo) held(ctx context.Context) (map[string]int, error) {
	leased, err := d.client.Peek(ctx, queue, &client.PeekOptions{MaxMessages: 10000, State: "leased"})
	if err != nil {
		return nil, err
	}
	held := map[string]int{}
	for _, m := range leased {
		held[m.Worker]++
	}
	return held, nil
}

// verify collects what the history says of every message and compares it with the files.
func (d *demo) verify(ctx context.Context) (verdict, error) {
	ids := make([]int64, 0, len(d.enqueued))
	for id := range d.enqueued {
		ids = append(ids, id)
	}
	attempts, err := readHistory(ctx, d.pool, ids)
	if err != nil {
		return verdict{}, err
	}
	truth, err := hashAll(ctx, d.dir, d.paths)
	if err != nil {
		return verdict{}, err
	}
	v := check(truth, d.enqueued, attempts)
	stats, err := d.client.Stats(ctx, queue)
	if err != nil {
		return verdict{}, err
	}
	for _, s := range stats {
		v.unfinished += int(s.Ready + s.Delayed + s.Leased + s.Retrying)
		v.dead += int(s.Dead)
	}
	v.killedLeases = d.killed.leases
	return v, nil
}

func sourceDir(ctx context.Context, dir string) (string, error) {
	if dir == "" {
		var err error
		if dir, err = goSource(ctx); err != nil {
			return "", err
		}
	}
	info, err := os.Stat(dir)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a folder", dir)
	}
	return realPath(dir)
}
