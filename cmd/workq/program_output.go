package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"
)

const (
	resultBytes = 64 << 10 // SQL keeps no more
	headChars   = 16 << 10 // of a result that was cut, as in SQL
	tailBytes   = 8 << 10
)

// head keeps the beginning of what is written, and counts.
type head struct {
	kept  bytes.Buffer
	bytes int64
}

func (h *head) Write(b []byte) (int, error) {
	h.bytes += int64(len(b))
	h.kept.Write(b[:min(len(b), resultBytes-h.kept.Len())])
	return len(b), nil
}

// result is what a program wrote: nothing, JSON, or text. What is too much is cut as SQL would.
func (h *head) result() any {
	text := strings.ReplaceAll(h.kept.String(), "\x00", "\uFFFD") // jsonb has no NUL
	if h.bytes > int64(h.kept.Len()) {
		return map[string]any{"cut": true, "bytes": h.bytes, "head": firstChars(text, headChars)}
	}
	text = strings.TrimRight(text, "\r\n")
	if text == "" {
		return nil
	}
	if v, ok := jsonbValue(text); ok {
		return v
	}
	return text
}

// jsonbValue reads JSON that jsonb can hold, too.
func jsonbValue(text string) (any, bool) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil || d.More() {
		return nil, false
	}
	again, err := json.Marshal(v) // without half surrogates, for instance
	if err != nil || bytes.Contains(again, []byte(`\u0000`)) {
		return nil, false
	}
	return json.RawMessage(again), true
}

func firstChars(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}

// tail keeps the end of what is written.
type tail struct {
	kept []byte
	cut  bool
}

func (t *tail) Write(b []byte) (int, error) {
	t.kept = append(t.kept, b...)
	if extra := len(t.kept) - tailBytes; extra > 0 {
		t.kept, t.cut = append(t.kept[:0], t.kept[extra:]...), true
	}
	return len(b), nil
}

func (t *tail) text() string {
	b := t.kept
	for t.cut && len(b) > 0 && !utf8.RuneStart(b[0]) {
		b = b[1:]
	}
	s := strings.TrimSpace(string(b))
	if t.cut && s != "" {
		s = "… " + s
	}
	return s
}

func (t *tail) lastLine() string {
	s := t.text()
	return strings.TrimSpace(s[strings.LastIndexByte(s, '\n')+1:])
}
