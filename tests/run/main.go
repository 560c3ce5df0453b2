// Command run is what `make test` and `make lint` call. It starts a throwaway PostgreSQL (or takes
// the one at $DATABASE_URL), runs the wanted parts and says at the end what ran.
//
//	go run ./tests/run -pg 15 go pgtap     all tests
//	go run ./tests/run -pg 15 check        plpgsql_check
//
// It exits with 1 when a part failed, and with 2 when it was called wrongly.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

type config struct {
	major int    // major version of the throwaway server
	run   string // for `go test -run`
	args  string // more arguments for go test
}

// report is what one part says in the last line.
type report struct {
	summary string
	ok      bool
}

func main() {
	var cfg config
	flag.IntVar(&cfg.major, "pg", 15, "major `version` of the server, when DATABASE_URL is not set")
	flag.StringVar(&cfg.run, "run", "", "only Go tests that match the `regexp`")
	flag.StringVar(&cfg.args, "args", "", "more `arguments` for go test")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "run: name the parts: go, pgtap, check")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := runParts(ctx, cfg, flag.Args())
	stop()
	os.Exit(status)
}

func runParts(ctx context.Context, cfg config, parts []string) int {
	var summaries []string
	status, version := 0, fmt.Sprint(cfg.major)
	for _, part := range parts {
		var r report
		var err error
		switch part {
		case "go":
			r, err = runGo(ctx, cfg)
		case "pgtap", "check":
			var db *database
			if db, err = openDatabase(ctx, cfg); err == nil {
				version = db.version
				if part == "pgtap" {
					r, err = runPgTAP(ctx, db)
				} else {
					r, err = runCheck(ctx, db)
				}
				db.close()
			}
		default:
			fmt.Fprintf(os.Stderr, "run: there is no part %q: choose go, pgtap, check\n", part)
			return 2
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", part, err)
			r = report{summary: part + " did not run"}
		}
		if !r.ok {
			status = 1
		}
		summaries = append(summaries, r.summary)
	}
	verdict := ""
	if status != 0 {
		verdict = "FAILED, "
	}
	fmt.Printf("\nPostgreSQL %s: %s%s\n", version, verdict, strings.Join(summaries, ", "))
	return status
}
