package client

import (
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// The errors of the contract, one for each SQLSTATE. Find them with errors.Is.
var (
	ErrQueueNotFound   = errors.New("workq: queue does not exist")                      // WQ001
	ErrLeaseLost       = errors.New("workq: lease lost")                                // WQ002, and the cause with which a worker cancels a handler
	ErrMessageNotFound = errors.New("workq: message not found")                         // WQ003
	ErrPayloadTooLarge = errors.New("workq: payload over the queue's limit")            // WQ004
	ErrQueueFull       = errors.New("workq: queue is full")                             // WQ005
	ErrNoAccess        = errors.New("workq: no access to this queue")                   // WQ006
	ErrQueueNotEmpty   = errors.New("workq: queue is not empty")                        // WQ007
	ErrQueueExists     = errors.New("workq: queue exists with other settings")          // WQ008
	ErrInvalidArgument = errors.New("workq: argument out of its range")                 // 22023
	ErrNotSupported    = errors.New("workq: argument or isolation level not supported") // 0A000
)

var sentinels = map[string]error{
	"WQ001": ErrQueueNotFound,
	"WQ002": ErrLeaseLost,
	"WQ003": ErrMessageNotFound,
	"WQ004": ErrPayloadTooLarge,
	"WQ005": ErrQueueFull,
	"WQ006": ErrNoAccess,
	"WQ007": ErrQueueNotEmpty,
	"WQ008": ErrQueueExists,
	"22023": ErrInvalidArgument,
	"0A000": ErrNotSupported,
}

// Error is an error that a workq function raised. errors.Is finds its sentinel and errors.As
// the *pgconn.PgError.
type Error struct {
	kind error
	err  error
	pg   *pgconn.PgError
}

// Error gives message, detail, hint and SQLSTATE.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("workq: " + e.pg.Message)
	if e.pg.Detail != "" {
		b.WriteString(": " + e.pg.Detail)
	}
	b.WriteString(" (")
	if e.pg.Hint != "" {
		b.WriteString("hint: " + e.pg.Hint + ", ")
	}
	b.WriteString("SQLSTATE " + e.pg.Code + ")")
	return b.String()
}

// Unwrap gives the sentinel and the error that pgx returned.
func (e *Error) Unwrap() []error { return []error{e.kind, e.err} }

// wrap makes err an *Error if PostgreSQL raised it with a SQLSTATE of the contract.
func wrap(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	if kind, ok := sentinels[pg.Code]; ok {
		return &Error{kind: kind, err: err, pg: pg}
	}
	return err
}
