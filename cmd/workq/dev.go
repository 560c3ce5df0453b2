package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgworkq/workq/client/migrate"
	"github.com/pgworkq/workq/cmd/workq/devpg"
)

func newDev() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a throwaway PostgreSQL with workq in it",
		Long: `Starts a PostgreSQL of its own in a temporary folder, on a loopback port, with workq installed, prints its URL
and stays until interrupted. Then the server and all that was in it are gone. DATABASE_URL is left alone.`,
		Example: `  workq dev
  workq dev --port 5433
  workq dev --json`,
		RunE: runDev,
	}
	cmd.Flags().Uint16("port", 0, "port on 127.0.0.1 (default: a free one)")
	cmd.Flags().Int("pg", 0, "major version of PostgreSQL (default: the newest on this machine)")
	return cmd
}

type devServer struct {
	URL    string `json:"url"`
	Server string `json:"server"`
}

func runDev(cmd *cobra.Command, _ []string) (err error) {
	port, _ := cmd.Flags().GetUint16("port")
	major, _ := cmd.Flags().GetInt("pg")
	opts := devpg.Options{TCP: true, Major: major}
	if port != 0 {
		opts.Settings = map[string]string{"port": strconv.Itoa(int(port))}
	}
	ctx := cmd.Context()
	pg, err := devpg.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Close()) }()
	at, err := atPort(pg.URL("postgres"), port)
	if err != nil {
		return err
	}
	if err := migrate.Up(ctx, at); err != nil {
		return err
	}
	if err := showRecord(cmd, devServer{at, pg.Version()}); err != nil {
		return err
	}
	fmt.Fprintf(cmd.ErrOrStderr(), devHints, at)
	return waitForEnd(ctx, pg)
}

const devHints = `
In another terminal:

  psql '%[1]s'

  select workq.create_queue('emails');
  select * from workq.enqueue('emails', '{"to": "ada@example.com"}');
  select id, lease, attempt, payload from workq.receive('emails');
  select workq.ack('emails', <id>, <lease>);      -- acked; once more: gone
  select * from workq.history('emails', <id>);

or  export DATABASE_URL='%[1]s'
    workq enqueue emails '{"to": "grace@example.com"}'
    workq work emails -- cat

Interrupt (Ctrl-C) to stop it and throw it away.
`

// atPort is the URL with another port, unless that is 0.
func atPort(raw string, port uint16) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || port == 0 {
		return raw, err
	}
	u.Host = net.JoinHostPort(u.Hostname(), strconv.Itoa(int(port)))
	return u.String(), nil
}

// waitForEnd waits for an interrupt, which is the right way to end, or for the server to end by itself.
func waitForEnd(ctx context.Context, pg *devpg.Cluster) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(500 * time.Millisecond):
			if !pg.Running() {
				return errors.New("the server ended by itself")
			}
		}
	}
}
