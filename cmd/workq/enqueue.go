package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newEnqueue() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "enqueue QUEUE [JSON]",
		Short: "Put messages into a queue",
		Long: `Puts a message into a queue and shows its id. The payload is the JSON of the argument, or that on stdin where
the argument is -. --body adds bytes from a file, or is all there is.

--lines puts in a message for each line of a file, of JSON each, in batches that are committed one by one. After
an error it says how many are in and at which line it stopped; --atomic makes it all or nothing.`,
		Example: `  workq enqueue emails '{"to": "ada@example.com"}' --kind welcome --priority 2
  workq enqueue emails '{"to": "ada@example.com"}' --delay '10 min' --header trace=42
  jq '.order' order.json | workq enqueue orders -
  workq enqueue images --body photo.png --content-type image/png
  workq enqueue emails --lines emails.jsonl
  generate | workq enqueue emails --lines - --batch 5000`,
		RunE: runEnqueue,
	}
	f := cmd.Flags()
	sqlFlag(f, "kind", "text", "type of the payload, for workers that tell them apart")
	sqlFlag(f, "priority", "int", "0 (first) to 10 (last)")
	sqlFlag(f, "delay", "interval", "not before this has passed")
	sqlFlag(f, "run-at", "timestamptz", "not before this time ('2030-01-31 12:00+00', 'tomorrow')")
	sqlFlag(f, "content-type", "text", "MIME type of the body")
	sqlFlag(f, "ttl", "interval", "a dead letter when unfinished for so long")
	sqlFlag(f, "max-attempts", "int", "deliveries before it is a dead letter")
	f.StringArray("header", nil, "header as `name=value`, may be given several times")
	f.String("body", "", "`file` with the body (- for stdin)")
	f.String("lines", "", "`file` with one JSON value a line (- for stdin)")
	f.Int("batch", 1000, "with --lines: messages a commit")
	f.Bool("atomic", false, "with --lines: all or nothing")
	cmd.MarkFlagsMutuallyExclusive("lines", "body")
	cmd.MarkFlagsMutuallyExclusive("delay", "run-at")
	return cmd
}

func runEnqueue(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	headers, err := headers(f)
	if err != nil {
		return err
	}
	if f.Changed("lines") {
		if len(args) > 1 {
			return usage("--lines takes the place of the payload")
		}
		return enqueueLines(cmd, args[0], headers)
	}
	if f.Changed("batch") || f.Changed("atomic") {
		return usage("--batch and --atomic go with --lines")
	}
	c := fn("enqueue").arg("queue", "text", args[0]).flags(f)
	if headers != "" {
		c.arg("headers", "jsonb", headers)
	}
	body, _ := f.GetString("body")
	if len(args) > 1 {
		if args[1] == "-" && body == "-" {
			return usage("stdin is the payload or the body, not both")
		}
		payload, err := readPayload(cmd, args[1])
		if err != nil {
			return err
		}
		c.arg("payload", "jsonb", payload)
	}
	if f.Changed("body") {
		b, err := readAll(cmd, body)
		if err != nil {
			return err
		}
		c.arg("body", "bytea", b)
	}
	return show(cmd, c, view{one: true})
}

// readPayload gives the JSON of the argument, or of stdin.
func readPayload(cmd *cobra.Command, arg string) (string, error) {
	if arg != "-" {
		if err := checkJSON([]byte(arg)); err != nil {
			return "", usage("the payload is not JSON: %v (text needs quotes: '\"text\"')", err)
		}
		return arg, nil
	}
	b, err := readAll(cmd, arg)
	if err != nil {
		return "", err
	}
	if err := checkJSON(b); err != nil {
		return "", &placeError{"stdin", fmt.Errorf("not a JSON value: %w", err)}
	}
	return string(b), nil
}

func checkJSON(b []byte) error {
	var v json.RawMessage
	return json.Unmarshal(b, &v)
}

// open opens a file to read; - is stdin.
func open(cmd *cobra.Command, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(cmd.InOrStdin()), nil
	}
	return os.Open(name)
}

func readAll(cmd *cobra.Command, name string) ([]byte, error) {
	in, err := open(cmd, name)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	if b == nil {
		b = []byte{} // a body of no bytes is one
	}
	return b, err
}

// headers gives the headers as a JSON object, "" where there are none.
func headers(f *pflag.FlagSet) (string, error) {
	pairs, _ := f.GetStringArray("header")
	if len(pairs) == 0 {
		return "", nil
	}
	object := map[string]string{}
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return "", usage("--header is %q: write name=value", pair)
		}
		object[name] = value
	}
	b, err := json.Marshal(object)
	return string(b), err
}
