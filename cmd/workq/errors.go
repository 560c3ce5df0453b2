package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

// Exit statuses.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130 // as a shell says it
)

// runError is what a command returned that was called rightly.
type runError struct{ err error }

func (e *runError) Error() string { return e.err.Error() }
func (e *runError) Unwrap() error { return e.err }

// usageError is a wrong call that only showed once the command ran.
type usageError struct{ msg string }

func (e *usageError) Error() string { return e.msg }

func usage(format string, a ...any) error { return &usageError{fmt.Sprintf(format, a...)} }

// placeError says where in the input something is wrong.
type placeError struct {
	place string
	err   error
}

func (e *placeError) Error() string { return e.place + ": " + e.err.Error() }
func (e *placeError) Unwrap() error { return e.err }

// noteError adds a line about what was done in spite of an error.
type noteError struct {
	err  error
	note string
}

func (e *noteError) Error() string { return e.err.Error() }
func (e *noteError) Unwrap() error { return e.err }

// report says what went wrong, and gives the exit status.
func report(w io.Writer, cmd *cobra.Command, err error) int {
	if err == nil {
		return 0
	}
	var run *runError
	var wrong *usageError
	if !errors.As(err, &run) || errors.As(err, &wrong) {
		fmt.Fprintf(w, "workq: %s\nTry '%s --help'\n", oneLine(err.Error()), cmd.CommandPath())
		return exitUsage
	}
	status := exitFailed
	if errors.Is(err, context.Canceled) && cmd.Context().Err() != nil {
		status = exitInterrupted
		fmt.Fprintln(w, "workq: interrupted")
	} else {
		msg, hint := explain(run.err)
		fmt.Fprintf(w, "workq: %s\n", oneLine(msg))
		if hint != "" {
			fmt.Fprintf(w, "hint: %s\n", hint)
		}
	}
	var note *noteError
	if errors.As(err, &note) {
		fmt.Fprintf(w, "workq: %s\n", note.note)
	}
	return status
}

// explain gives an error as one line and a hint, which may be "".
func explain(err error) (msg, hint string) {
	var place *placeError
	if errors.As(err, &place) {
		msg, hint = explain(place.err)
		return place.place + ": " + msg, hint
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return explainConnect(connect)
	}
	var parse *pgconn.ParseConfigError
	if errors.As(err, &parse) {
		return parse.Error(), connectHint
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return explainPg(pg)
	}
	return strings.TrimPrefix(err.Error(), "workq: "), ""
}

func explainPg(e *pgconn.PgError) (msg, hint string) {
	msg, hint = e.Message, e.Hint
	if e.Detail != "" {
		msg += " (" + e.Detail + ")"
	}
	// undefined table, schema, function
	if slices.Contains([]string{"42P01", "3F000", "42883"}, e.Code) {
		hint = "workq is not installed in this database, or is another version than this command: run workq migrate"
	}
	return msg, hint
}

const connectHint = "set DATABASE_URL or --database-url (or PGHOST, PGUSER and so on), or start a throwaway server with workq dev"

func explainConnect(e *pgconn.ConnectError) (msg, hint string) {
	where := net.JoinHostPort(e.Config.Host, strconv.Itoa(int(e.Config.Port)))
	if strings.HasPrefix(e.Config.Host, "/") {
		where = fmt.Sprintf("%s/.s.PGSQL.%d", e.Config.Host, e.Config.Port)
	}
	var pg *pgconn.PgError
	why := ""
	if errors.As(e, &pg) {
		why = pg.Message
	} else if errors.Is(e, context.DeadlineExceeded) {
		why = "no answer in time"
	} else {
		// The last of several tries, without the addresses that lead to it.
		lines := strings.Split(strings.TrimSpace(e.Unwrap().Error()), "\n")
		why = lines[len(lines)-1]
		why = why[strings.LastIndex(why, ": ")+1:]
	}
	return fmt.Sprintf("cannot connect to PostgreSQL at %s as user %s, database %s: %s",
		where, e.Config.User, cmp.Or(e.Config.Database, e.Config.User), strings.TrimSpace(why)), connectHint
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
