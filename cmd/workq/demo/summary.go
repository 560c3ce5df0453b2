package demo

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// summary says what was found: for people, or as JSON.
func (d *demo) summary(out io.Writer, v verdict) error {
	if d.json {
		return json.NewEncoder(out).Encode(map[string]any{
			"files": v.files, "results": v.results, "lost": len(v.lost), "wrong": len(v.wrong),
			"twice": len(v.twice), "of_no_file": len(v.strange),
			"leases_of_killed_worker": v.killedLeases, "redelivered": v.redelivered,
			"messages_per_second": rate(v.first, v.firstSpan), "seconds": v.span.Seconds(),
			"p50_seconds": v.percentile(50).Seconds(), "p99_seconds": v.percentile(99).Seconds(),
			"ok": v.err() == nil,
		})
	}
	line := func(name, value, remark string) {
		if remark != "" {
			remark = "  " + remark
		}
		fmt.Fprintf(out, "  %-15s %10s%s\n", name, value, remark)
	}
	fmt.Fprintf(out, "\nEvery result was compared with the file it is about:\n\n")
	line("files", thousands(v.files), "")
	line("results", thousands(v.results), "")
	line("lost", thousands(len(v.lost)), "")
	line("wrong", thousands(len(v.wrong)), "")
	if len(v.twice)+len(v.strange) > 0 {
		line("twice", thousands(len(v.twice)), "")
		line("of no file", thousands(len(v.strange)), "")
	}
	line("redelivered", thousands(v.redelivered), fmt.Sprintf("the killed worker held %d leases, which ran out after %s", v.killedLeases, seconds(visibility)))
	line("messages/s", thousands(rate(v.first, v.firstSpan)), fmt.Sprintf("by %d worker processes, the redelivered ones aside", d.options.workers))
	line("all of it", seconds(v.span), "from the first enqueue to the last ack")
	line("enqueue to ack", seconds(v.percentile(50)), "p50: all are enqueued at once, so this is the time in line")
	line("", seconds(v.percentile(99)), "p99")

	id := int64(1)
	if len(v.example) > 0 {
		id = v.example[0].ID
		fmt.Fprintf(out, "\nOne of the redelivered, message %d (%s):\n\n", id, v.examplePath)
		for _, a := range v.example {
			fmt.Fprintf(out, "  attempt %d  %s  %-8s after %s\n", a.Number, a.Worker, a.Outcome, seconds(a.Finished.Sub(a.Started)))
		}
	}

	fmt.Fprintf(out, `
SQL to look around`)
	if !d.keep {
		fmt.Fprintf(out, " (--keep keeps the server: make demo ARGS=--keep)")
	}
	fmt.Fprintf(out, `

  select * from workq.stats('%[1]s');
  select state, attempt, worker, result, payload from workq.get('%[1]s', %[2]d);
  select attempt, outcome, worker, result from workq.history('%[1]s', %[2]d);
`, queue, id)
	if err := v.err(); err == nil {
		fmt.Fprintf(out, "\nNothing lost, nothing wrong.\n")
	}
	return nil
}

func rate(n int, span time.Duration) int {
	if span <= 0 {
		return 0
	}
	return int(float64(n) / span.Seconds())
}
