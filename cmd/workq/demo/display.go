package demo

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/progress"
)

// display shows how far it is. Its methods may be called from several goroutines.
type display interface {
	enqueued(more int)
	done(n int)
	say(line string)
	stop()
}

func newDisplay(out io.Writer, total int) display {
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			return newBars(out, total)
		}
	}
	return &lines{out: out, total: total, last: time.Now()}
}

// bars is the display on a terminal.
type bars struct {
	writer   progress.Writer
	enqueue  *progress.Tracker
	work     *progress.Tracker
	finished chan struct{}
}

func newBars(out io.Writer, total int) *bars {
	b := &bars{
		writer:   progress.NewWriter(),
		enqueue:  &progress.Tracker{Message: "enqueued     ", Total: int64(total), Units: progress.Units{Formatter: func(n int64) string { return thousands(int(n)) }}},
		work:     &progress.Tracker{Message: "hashed, acked", Total: int64(total), Units: progress.Units{Formatter: func(n int64) string { return thousands(int(n)) }}},
		finished: make(chan struct{}),
	}
	b.writer.SetOutputWriter(out)
	b.writer.SetAutoStop(false)
	b.writer.SetTrackerLength(40)
	b.writer.SetUpdateFrequency(100 * time.Millisecond)
	b.writer.SetStyle(progress.StyleBlocks)
	b.writer.SetTrackerPosition(progress.PositionRight)
	b.writer.Style().Visibility.Time = false
	b.writer.Style().Options.PercentFormat = "%3.0f %%"
	b.writer.Style().Options.DoneString = "all"
	b.writer.Style().Options.Separator = " "
	b.writer.AppendTracker(b.enqueue)
	b.writer.AppendTracker(b.work)
	go func() {
		defer close(b.finished)
		b.writer.Render()
	}()
	return b
}

func (b *bars) enqueued(more int) { b.enqueue.Increment(int64(more)) }
func (b *bars) done(n int)        { b.work.SetValue(int64(n)) }
func (b *bars) say(line string)   { b.writer.Log("%s", line) }

func (b *bars) stop() {
	b.writer.Stop()
	<-b.finished
}

// lines is the display in a file or a pipe: a line now and then.
type lines struct {
	out   io.Writer
	total int

	mu   sync.Mutex
	fed  int
	n    int
	last time.Time
}

func (l *lines) enqueued(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fed += more
	l.print(l.fed == l.total)
}

func (l *lines) done(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	changed := l.n != n
	l.n = n
	l.print(changed && n == l.total)
}

func (l *lines) print(now bool) {
	if !now && time.Since(l.last) < time.Second {
		return
	}
	l.last = time.Now()
	fmt.Fprintf(l.out, "enqueued %3d %%, done %3d %% (%s of %s)\n",
		l.fed*100/l.total, l.n*100/l.total, thousands(l.n), thousands(l.total))
}

func (l *lines) say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(l.out, line)
}

func (l *lines) stop() {}

// thousands is the number with commas: 11,479.
func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// seconds is the duration for people: 1.2 s, 350 ms.
func seconds(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}
