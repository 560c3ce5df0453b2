package demo

import (
	"fmt"
	"time"
)

func (d *demo) summary(v verdict) {
	line := func(name, value, remark string) {
		if remark != "" {
			remark = "  " + remark
		}
		fmt.Fprintf(d.out, "  %-15s %10s%s\n", name, value, remark)
	}
	fmt.Fprintf(d.out, "\nEvery result was compared with the file it is about:\n\n")
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
		fmt.Fprintf(d.out, "\nOne that the killed worker held, message %d (%s):\n\n", id, v.examplePath)
		for _, a := range v.example {
			fmt.Fprintf(d.out, "  attempt %d  %s  %-8s after %s\n", a.Number, a.Worker, a.Outcome, seconds(a.Finished.Sub(a.Started)))
		}
	}

	fmt.Fprintf(d.out, `
SQL to look around`)
	if !d.keep {
		fmt.Fprintf(d.out, ", on a server that stays: make demo ARGS=--keep, or workq dev")
	}
	fmt.Fprintf(d.out, `

  select * from workq.stats('%[1]s');
  select state, attempt, worker, result, payload from workq.get('%[1]s', %[2]d);
  select attempt, outcome, worker, result from workq.history('%[1]s', %[2]d);
`, queue, id)
	if err := v.err(); err == nil {
		fmt.Fprintf(d.out, "\nNothing lost, nothing wrong.\n")
	}
}

func rate(n int, span time.Duration) int {
	if span <= 0 {
		return 0
	}
	return int(float64(n) / span.Seconds())
}
