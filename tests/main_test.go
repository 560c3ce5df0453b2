// Package tests holds the tests that need a commit, a second session, a crash or an upgrade.
//
// They run against $DATABASE_URL (a superuser's, whose server they may fill with databases), or
// else against a throwaway server of the major version in $PG (15 when that is not set).
package tests

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/pgworkq/workq/cmd/workq/devpg"
)

// serverURL is the connection string of a superuser. TestMain sets it.
var serverURL string

func TestMain(m *testing.M) {
	os.Exit(runWithServer(m))
}

func runWithServer(m *testing.M) int {
	if serverURL = os.Getenv("DATABASE_URL"); serverURL != "" {
		return m.Run()
	}
	opts, err := serverOptions()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	server, err := devpg.Start(ctx, opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tests:", err)
		return 1
	}
	defer func() {
		if err := server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "tests:", err)
		}
	}()
	serverURL = server.URL("postgres")
	return m.Run()
}

// serverOptions are those of the shared server. Tests that stop or kill theirs start one of
// their own with these. TEST_FSYNC=on makes commits durable.
func serverOptions() (devpg.Options, error) {
	opts := devpg.Options{Major: 15, TCP: true, Fsync: os.Getenv("TEST_FSYNC") == "on"}
	if pg := os.Getenv("PG"); pg != "" {
		major, err := strconv.Atoi(pg)
		if err != nil {
			return opts, fmt.Errorf("PG=%s is no major version, try PG=15", pg)
		}
		opts.Major = major
	}
	dirs, err := filepath.Glob("../.cache/postgresql/*/bin") // where `make setup` puts them
	opts.SearchDirs = dirs
	return opts, err
}
