package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
	"golang.org/x/term"
)

// progressBar shows how much of the input has been read, where stderr is a terminal. Elsewhere it does
// nothing.
type progressBar struct {
	writer  progress.Writer // nil where there is no terminal
	tracker *progress.Tracker
	once    sync.Once
}

func newProgress(in io.Reader) *progressBar {
	if !term.IsTerminal(int(os.Stderr.Fd())) {
		return &progressBar{}
	}
	var total int64 // 0: not known
	if f, ok := in.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			total = info.Size()
		}
	}
	p := &progressBar{
		writer:  progress.NewWriter(),
		tracker: &progress.Tracker{Message: "enqueue", Total: total, Units: progress.UnitsBytes, AutoStopDisabled: true},
	}
	p.writer.SetOutputWriter(os.Stderr)
	p.writer.SetUpdateFrequency(100 * time.Millisecond)
	p.writer.SetStyle(progress.StyleBlocks)
	p.writer.Style().Visibility.ETA = total > 0
	p.writer.Style().Visibility.Percentage = total > 0
	p.writer.AppendTracker(p.tracker)
	return p
}

// reader counts what is read from in.
func (p *progressBar) reader(in io.Reader) io.Reader {
	if p.writer == nil {
		return in
	}
	return io.TeeReader(in, p)
}

func (p *progressBar) Write(b []byte) (int, error) {
	p.tracker.Increment(int64(len(b)))
	return len(b), nil
}

// enqueued says how many are in. The bar appears with the first batch, so never on short input that
// is over by then.
func (p *progressBar) enqueued(n int) {
	if p.writer == nil {
		return
	}
	p.once.Do(func() { go p.writer.Render() })
	p.tracker.UpdateMessage(fmt.Sprintf("%d enqueued", n))
}

func (p *progressBar) stop() {
	if p.writer == nil {
		return
	}
	p.tracker.MarkAsDone()
	p.writer.Stop()
	for p.writer.IsRenderInProgress() {
		time.Sleep(10 * time.Millisecond) // until the last line is drawn
	}
}
