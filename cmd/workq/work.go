package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgworkq/workq/client"
)

func newWork() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "work QUEUE [flags] -- COMMAND [ARGS...]",
		Short: "Run a program for each message of a queue",
		Long: `Receives messages and runs the command for each, until interrupted.

The payload is on the command's stdin as JSON; a message with a body has the body there instead. In its
environment are

  WORKQ_QUEUE, WORKQ_ID, WORKQ_LEASE    what the settling functions of SQL name
  WORKQ_ATTEMPT, WORKQ_MAX_ATTEMPTS     this delivery and the last one (empty: no limit)
  WORKQ_KIND, WORKQ_CONTENT_TYPE
  WORKQ_HEADERS                         a JSON object, or empty
  WORKQ_HEADER_<NAME>                   each header; the name in capitals, _ for what is no letter or digit

How it ends decides:

  0       done; its output is the result, as JSON if it is, else as a JSON string (of up to 64 KiB)
  65      failed for good (EX_DATAERR): a dead letter
  75      failed for now (EX_TEMPFAIL): retried, the last line of its stderr is the error
  others  failed: retried as well, the end of its stderr is the error; so with a signal

The lease is extended while it runs. If it is lost all the same, or the grace period ends, the command and
its children get SIGTERM, and SIGKILL 2 seconds later. SIGTERM or Ctrl-C lets running commands finish within
--grace; what was killed then is delivered again, and that attempt does not count. A second signal ends at once.`,
		Example: `  workq work emails --concurrency 8 -- ./send-email
  workq work images -- sh -c 'convert - -resize 50% png:- | upload "$WORKQ_ID"'
  workq work reports --visibility '5 min' --grace '1 min' -- python3 report.py
  workq work emails --drain -- cat`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0:
				return errors.New("QUEUE is missing")
			case len(args) == 1:
				return fmt.Errorf("COMMAND is missing: workq work %s -- COMMAND", args[0])
			case cmd.ArgsLenAtDash() != 1:
				return fmt.Errorf("write -- between QUEUE and COMMAND: workq work %s -- %s", args[0], args[1])
			}
			return nil
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return queueNames(cmd)
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: runWork,
	}
	f := cmd.Flags()
	f.IntP("concurrency", "c", 1, "commands at once")
	f.Var(&sqlText{kind: "interval"}, "visibility", "how long leases last, so how soon others get the messages if this process dies (default: the queue's)")
	f.Var(&sqlText{value: "20 s", kind: "interval"}, "grace", "how long running commands may go on after SIGTERM or Ctrl-C")
	f.Bool("drain", false, "stop when no message is ready (those that wait for a time do not count)")
	f.Bool("no-maintenance", false, "leave sweep and maintain to others")
	return cmd
}

func runWork(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	concurrency, _ := f.GetInt("concurrency")
	if concurrency < 1 {
		return usage("--concurrency is %d: 1 or more", concurrency)
	}
	path, err := exec.LookPath(args[1])
	if err != nil {
		return usage("%v", err)
	}
	pool, err := newPool(cmd)
	if err != nil {
		return err
	}
	defer pool.Close()
	opts := client.WorkerOptions{Concurrency: concurrency, Name: workerName()}
	opts.DisableMaintenance, _ = f.GetBool("no-maintenance")
	if opts.Visibility, err = interval(cmd, pool, "visibility"); err != nil {
		return err
	}
	if opts.GracePeriod, err = interval(cmd, pool, "grace"); err != nil {
		return err
	}
	opts.GracePeriod = max(opts.GracePeriod, 1) // 0 is the client's default
	watch, err := startJanitor()
	if err != nil {
		return err
	}
	defer watch.stop()

	fmt.Fprintf(cmd.ErrOrStderr(), "workq: working on %s, interrupt to stop\n", args[0])
	context.AfterFunc(cmd.Context(), func() {
		fmt.Fprintln(cmd.ErrOrStderr(), "workq: stopping when the running commands have finished, once more to stop at once")
	})
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	handler := &program{path: path, args: args[1:], janitor: watch, stderr: cmd.ErrOrStderr()}
	worker := client.New(pool, client.Options{Logger: log}).NewWorker(args[0], handler, opts)
	drain, _ := f.GetBool("drain")
	if !drain {
		return worker.Run(cmd.Context())
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { defer stop(); ended <- waitUntilEmpty(ctx, pool, args[0], opts.Name) }()
	err = worker.Run(ctx)
	stop()
	return cmp.Or(err, <-ended)
}

func workerName() string {
	host, _ := os.Hostname()
	return host + ":" + strconv.Itoa(os.Getpid())
}

// interval asks PostgreSQL what the interval in a flag means; 0 when it is empty.
func interval(cmd *cobra.Command, pool *pgxpool.Pool, flag string) (time.Duration, error) {
	value := cmd.Flags().Lookup(flag).Value.String()
	if value == "" {
		return 0, nil
	}
	var seconds float64
	err := pool.QueryRow(cmd.Context(), "select extract(epoch from $1::text::interval)::float8", value).Scan(&seconds)
	if err != nil {
		return 0, (&call{params: []param{{flag, "interval", value, "--" + flag}}}).explain(err)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
