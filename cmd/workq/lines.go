package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"
)

type line struct {
	n    int // from 1
	json string
}

// lines reads a file of JSON values, one a line. Empty lines are passed over.
type lines struct {
	name string
	in   *bufio.Reader
	last int // number of the last line read well
}

func newLines(name string, in io.Reader) *lines {
	if name == "-" {
		name = "stdin"
	}
	return &lines{name: name, in: bufio.NewReaderSize(in, 1<<16)}
}

func (l *lines) place(n int) string { return fmt.Sprintf("%s:%d", l.name, n) }

// batch reads up to so many lines. With an error, which is io.EOF at the end, it gives what came before.
func (l *lines) batch(size int) (batch []line, err error) {
	for bytes := 0; len(batch) < size && bytes < batchBytes; {
		one, err := l.next()
		if err != nil {
			return batch, err
		}
		if one.json == "" {
			continue
		}
		batch, bytes = append(batch, one), bytes+len(one.json)
	}
	return batch, nil
}

// next reads a line, which may be empty.
func (l *lines) next() (line, error) {
	b, err := l.in.ReadBytes('\n')
	if err != nil && (!errors.Is(err, io.EOF) || len(b) == 0) {
		return line{}, err
	}
	n := l.last + 1
	if n == 1 {
		b = bytes.TrimPrefix(b, []byte("\ufeff"))
	}
	b = bytes.TrimSpace(b)
	if len(b) > 0 {
		if err := checkJSON(b); err != nil {
			return line{}, &placeError{l.place(n), fmt.Errorf("not a JSON value: %w", err)}
		}
		if !utf8.Valid(b) {
			return line{}, &placeError{l.place(n), errors.New("not UTF-8")}
		}
	}
	l.last = n
	return line{n, string(b)}, nil
}
