package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// view says how the result of a call is shown.
type view struct {
	one     bool   // one row: an object, else an array of them
	columns string // of the table, as SQL; "" for all
	json    string // of the JSON, as SQL; "" for all
}

// show calls a function and prints what it returns, as a table or as JSON.
func show(cmd *cobra.Command, c *call, v view) error {
	return connect(cmd, func(ctx context.Context, conn *pgx.Conn) error { return showOn(ctx, cmd, conn, c, v) })
}

func showOn(ctx context.Context, cmd *cobra.Command, conn *pgx.Conn, c *call, v view) error {
	p := newPrinter(cmd, v.one)
	columns := v.columns
	if p.json {
		columns = v.json
	}
	if columns == "" {
		columns = "*"
	}
	if err := c.rows(ctx, conn, columns, p.row); err != nil {
		return err
	}
	return p.end()
}

// showRecord prints a struct with JSON tags.
func showRecord(cmd *cobra.Command, record any) error {
	row, err := json.Marshal(record)
	if err != nil {
		return err
	}
	p := newPrinter(cmd, true)
	if err := p.row(string(row)); err != nil {
		return err
	}
	return p.end()
}

// printer prints rows, which are JSON objects: as they are, or as a table in which the first row's
// names are the columns.
type printer struct {
	out, err  io.Writer
	json, one bool
	n         int
	table     table.Writer
}

func newPrinter(cmd *cobra.Command, one bool) *printer {
	asJSON, _ := cmd.Flags().GetBool("json")
	return &printer{out: cmd.OutOrStdout(), err: cmd.ErrOrStderr(), json: asJSON, one: one, table: newTable()}
}

func (p *printer) row(row string) error {
	p.n++
	if p.json {
		before := ""
		switch {
		case p.one:
		case p.n == 1:
			before = "["
		default:
			before = ",\n "
		}
		_, err := fmt.Fprint(p.out, before, row)
		return err
	}
	names, values, err := fields(row)
	if err != nil {
		return err
	}
	if p.one {
		for i, name := range names {
			p.table.AppendRow(table.Row{text.FgCyan.Sprint(name), cell(name, values[i], true)})
		}
		return nil
	}
	header, cells := make(table.Row, len(names)), make(table.Row, len(names))
	for i, name := range names {
		header[i], cells[i] = name, cell(name, values[i], false)
	}
	if p.n == 1 {
		p.table.AppendHeader(header)
		p.table.SuppressEmptyColumns()
	}
	p.table.AppendRow(cells)
	return nil
}

func (p *printer) end() error {
	if p.json {
		end := "\n"
		if !p.one {
			end = "]\n"
			if p.n == 0 {
				end = "[]\n"
			}
		}
		_, err := fmt.Fprint(p.out, end)
		return err
	}
	if p.n == 0 {
		fmt.Fprintln(p.err, "workq: nothing to show")
		return nil
	}
	_, err := fmt.Fprintln(p.out, p.table.Render())
	return err
}

func newTable() table.Writer {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	s := t.Style()
	s.Options.DrawBorder = false
	s.Options.SeparateColumns = false
	s.Box.PaddingLeft = ""
	s.Box.PaddingRight = "  "
	s.Format.Header = text.FormatDefault
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil {
		s.Size.WidthMax = width
	} else {
		text.DisableColors()
	}
	t.SuppressTrailingSpaces()
	return t
}

// fields splits a JSON object, in its order.
func fields(row string) (names []string, values []json.RawMessage, err error) {
	d := json.NewDecoder(strings.NewReader(row))
	if _, err := d.Token(); err != nil {
		return nil, nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		var v json.RawMessage
		if err := d.Decode(&v); err != nil {
			return nil, nil, err
		}
		names, values = append(names, fmt.Sprint(name)), append(values, v)
	}
	return names, values, nil
}

// cellWidth is where a value of a list is cut.
const cellWidth = 60

// cell gives a value as people read it, whole or short.
func cell(name string, v json.RawMessage, whole bool) string {
	s := string(v)
	var str string
	if json.Unmarshal(v, &str) == nil { // a null leaves it empty
		s = str
	}
	if strings.HasSuffix(name, "_at") {
		if at, err := time.Parse(time.RFC3339Nano, s); err == nil {
			s = at.Local().Format("2006-01-02 15:04:05")
			if whole {
				s = at.Local().Format("2006-01-02 15:04:05.000 -07:00")
			}
		}
	}
	if !whole {
		s = text.Snip(oneLine(s), cellWidth, "…")
	}
	return printable(s)
}

// printable keeps what is in a message from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, s)
}
