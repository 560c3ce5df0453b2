package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/pflag"
)

// call is a call of a function of the schema workq. Arguments travel as text and PostgreSQL reads
// them, so that nothing about them is repeated here. What was not given is left out.
type call struct {
	fn     string
	params []param
}

type param struct {
	name  string // of the argument
	typ   string // of PostgreSQL
	value any    // string, []string, or []byte for bytea
	shown string // how the user knows it
}

func fn(name string) *call { return &call{fn: name} }

// arg adds an argument from the command line.
func (c *call) arg(name, typ string, value any) *call {
	c.params = append(c.params, param{name, typ, value, strings.ToUpper(name)})
	return c
}

// flags adds the flags that were given and that sqlFlags made.
func (c *call) flags(fs *pflag.FlagSet) *call {
	fs.Visit(func(f *pflag.Flag) {
		typ, ok := f.Annotations[sqlType]
		if !ok {
			return
		}
		var value any = f.Value.String()
		if s, ok := f.Value.(pflag.SliceValue); ok {
			value = s.GetSlice()
		}
		c.params = append(c.params, param{strings.ReplaceAll(f.Name, "-", "_"), typ[0], value, "--" + f.Name})
	})
	return c
}

// placeholder is the nth parameter, of type typ.
func (p param) placeholder(n int) string {
	switch p.value.(type) {
	case []byte:
		return fmt.Sprintf("$%d", n)
	case []string:
		return fmt.Sprintf("$%d::text[]::%s", n, p.typ)
	default:
		return fmt.Sprintf("$%d::text::%s", n, p.typ)
	}
}

// sql gives `fn(name => $1, …)` and its arguments.
func (c *call) sql() (string, []any) {
	var list []string
	var args []any
	for i, p := range c.params {
		list = append(list, p.name+" => "+p.placeholder(i+1))
		args = append(args, p.value)
	}
	return "workq." + c.fn + "(" + strings.Join(list, ", ") + ")", args
}

// rows calls the function, hands each row to f as a JSON object, and ends at the first error.
func (c *call) rows(ctx context.Context, conn *pgx.Conn, columns string, f func(row string) error) error {
	from, args := c.sql()
	rows, err := conn.Query(ctx, "select row_to_json(r)::text from (select "+columns+" from "+from+" as result) r", args...)
	if err != nil {
		return c.explain(err)
	}
	var row string
	_, err = pgx.ForEachRow(rows, []any{&row}, func() error { return f(row) })
	return c.explain(err)
}

// explain makes a wrong call of an error that says that PostgreSQL cannot read an argument.
func (c *call) explain(err error) error {
	var pg *pgconn.PgError
	unreadable := []string{"22P02", "22007", "22008", "22003", "22009"}
	if !errors.As(err, &pg) || !slices.Contains(unreadable, pg.Code) {
		return err
	}
	for _, p := range c.params {
		values, ok := p.value.([]string)
		if s, is := p.value.(string); is {
			values, ok = []string{s}, true
		}
		if ok && p.typ != "jsonb" && slices.ContainsFunc(values, func(v string) bool { return strings.Contains(pg.Message, `"`+v+`"`) }) {
			return usage("%s: %s", p.shown, pg.Message)
		}
	}
	return err
}
