package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// event is a line of `go test -json`.
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

// runGo runs the Go tests with the race detector, prints what failed, and counts. A skipped test is
// a failure: what does not run proves nothing.
func runGo(ctx context.Context, cfg config) (report, error) {
	args := []string{"test", "-race", "-count=1", "-timeout=15m", "-json"}
	if cfg.run != "" {
		args = append(args, "-run", cfg.run)
	}
	args = append(args, strings.Fields(cfg.args)...)
	cmd := exec.CommandContext(ctx, "go", append(args, "./...")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Env = append(os.Environ(), "PG="+strconv.Itoa(cfg.major))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return report{}, err
	}
	if err := cmd.Start(); err != nil {
		return report{}, fmt.Errorf("run go test: %w", err)
	}
	c := counter{output: map[string][]string{}}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			fmt.Println(lines.Text())
			continue
		}
		c.add(e)
	}
	scanErr := lines.Err()
	if err := cmd.Wait(); err != nil && c.failed == 0 {
		c.failed++
		fmt.Println("go test:", err)
	}
	if scanErr != nil {
		return report{}, fmt.Errorf("read the output of go test: %w", scanErr)
	}
	summary := fmt.Sprintf("go tests %d passed", c.passed)
	if c.failed > 0 {
		summary += fmt.Sprintf(", %d failed", c.failed)
	}
	if c.skipped > 0 {
		summary += fmt.Sprintf(", %d skipped", c.skipped)
	}
	return report{summary: summary, ok: c.failed == 0 && c.skipped == 0 && (c.passed > 0 || cfg.run != "")}, nil
}

// counter counts tests without their subtests, and keeps what each printed until it is known
// whether anybody wants to read it.
type counter struct {
	passed, failed, skipped int
	output                  map[string][]string
}

func (c *counter) add(e event) {
	top, sub, _ := strings.Cut(e.Test, "/")
	key := e.Package + " " + top
	switch e.Action {
	case "build-output":
		fmt.Print(e.Output)
	case "output":
		c.output[key] = append(c.output[key], e.Output)
	case "pass", "fail", "skip":
		switch {
		case e.Test == "":
			c.finish(e, key)
		case sub != "" && e.Action != "skip":
			return
		case e.Action == "pass":
			c.passed++
		case e.Action == "fail":
			c.failed++
			fmt.Print(strings.Join(c.output[key], ""))
		default:
			c.skipped++
			fmt.Printf("--- SKIP: %s %s (nothing is skipped here)\n", e.Package, e.Test)
		}
		if sub == "" {
			delete(c.output, key)
		}
	}
}

// finish is the end of a package.
func (c *counter) finish(e event, key string) {
	switch e.Action {
	case "pass":
		fmt.Printf("ok    %-50s %6.1fs\n", e.Package, e.Elapsed)
	case "fail":
		if c.failed == 0 { // it failed outside of its tests: a build, a panic, TestMain
			c.failed++
		}
		fmt.Print(strings.Join(c.output[key], ""))
		fmt.Printf("FAIL  %-50s %6.1fs\n", e.Package, e.Elapsed)
	}
}
