package devpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// StopMode says how a server is stopped.
type StopMode int

const (
	// Fast ends all sessions and writes everything out (SIGINT).
	Fast StopMode = iota
	// Immediate ends at once, the next start recovers from the log (SIGQUIT).
	Immediate
)

// stopPatience is how long a server may take to stop before it is killed.
const stopPatience = 30 * time.Second

// server is one running postmaster.
type server struct {
	pid  int
	done chan struct{} // closed when it ended
	err  error         // how, after done
}

// Start starts a stopped cluster again, on the same data and port. It returns when the server
// accepts connections. Starting a running cluster does nothing.
func (c *Cluster) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.start(ctx)
}

func (c *Cluster) start(ctx context.Context) error {
	if c.closed {
		return errors.New("the cluster is closed")
	}
	if c.running() {
		return nil
	}
	if err := c.configure(); err != nil {
		return err
	}
	// After a Kill the orphaned backends hold the shared memory for a moment, and a new
	// server refuses to start until they have noticed.
	deadline := time.Now().Add(stopPatience)
	for {
		err := c.launch(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) || !strings.Contains(err.Error(), "shared memory block") {
			return err
		}
		wait(ctx, 50*time.Millisecond)
	}
}

func (c *Cluster) launch(ctx context.Context) error {
	log, err := os.OpenFile(filepath.Join(c.dir, "postgres.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	defer log.Close()
	begin, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("open the server's log: %w", err)
	}
	cmd := exec.Command(filepath.Join(c.bin.Dir, "postgres"), "-D", c.DataDir())
	cmd.Dir = c.dir
	cmd.Env = serverEnv()
	cmd.SysProcAttr = sysProcAttr(c.owner)
	// A plain file is inherited; with another writer Wait would also wait for every backend to
	// let go of a pipe.
	cmd.Stdout, cmd.Stderr = log, log
	s := &server{done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		// The kernel's death signal follows the thread that started the child, not the process:
		// keep this thread until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			s.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			s.err = cmd.Wait()
			close(s.done)
		}
	}()
	if err := <-started; err != nil {
		return fmt.Errorf("start PostgreSQL %s: %w", c.bin.Version, err)
	}
	c.server = s
	if err := c.awaitReady(ctx, s); err != nil {
		err = errors.Join(err, c.stop(Immediate))
		return fmt.Errorf("start PostgreSQL %s: %w\n%s", c.bin.Version, err, c.logSince(begin))
	}
	return nil
}

// awaitReady waits for the word "ready" in postmaster.pid, as pg_ctl does: it is the eighth
// line, below the number of the very process that we started.
func (c *Cluster) awaitReady(ctx context.Context, s *server) error {
	for {
		select {
		case <-s.done:
			return fmt.Errorf("the server ended at once: %w", exitError(s.err))
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready yet: %w", context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
		body, err := os.ReadFile(filepath.Join(c.DataDir(), "postmaster.pid"))
		if err != nil {
			continue
		}
		lines := strings.Split(string(body), "\n")
		if len(lines) >= 8 && strings.TrimSpace(lines[0]) == strconv.Itoa(s.pid) && strings.TrimSpace(lines[7]) == "ready" {
			return nil
		}
	}
}

// Stop stops the server and waits for its end. The data stay; Start goes on with them.
// Stopping a stopped cluster does nothing.
func (c *Cluster) Stop(mode StopMode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stop(mode)
}

func (c *Cluster) stop(mode StopMode) error {
	if !c.running() {
		c.server = nil
		return nil
	}
	sig := syscall.SIGINT
	if mode == Immediate {
		sig = syscall.SIGQUIT
	}
	s := c.server
	if err := signal(s.pid, sig); err != nil {
		return fmt.Errorf("stop the server: %w", err)
	}
	select {
	case <-s.done:
	case <-time.After(stopPatience):
		return errors.Join(fmt.Errorf("the server did not stop within %s and was killed", stopPatience), c.kill())
	}
	c.server = nil
	return nil
}

// Kill ends the postmaster with SIGKILL, as an out-of-memory killer would, and waits for its end.
// Its backends notice by themselves, a little later. Start recovers.
func (c *Cluster) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.kill()
}

func (c *Cluster) kill() error {
	if !c.running() {
		c.server = nil
		return nil
	}
	c.orphans = append(c.orphans, children(c.server.pid)...)
	if err := signal(c.server.pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	<-c.server.done
	c.server = nil
	return nil
}

// Restart is Stop and Start.
func (c *Cluster) Restart(ctx context.Context, mode StopMode) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stop(mode); err != nil {
		return err
	}
	return c.start(ctx)
}

// Running says whether the server runs.
func (c *Cluster) Running() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.running()
}

// PID is the postmaster's process id, 0 when it is stopped.
func (c *Cluster) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.running() {
		return 0
	}
	return c.server.pid
}

func (c *Cluster) running() bool {
	if c.server == nil {
		return false
	}
	select {
	case <-c.server.done:
		return false
	default:
		return true
	}
}

// Close stops the server at once and removes the folder. A second Close does nothing.
func (c *Cluster) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	err := c.stop(Immediate)
	c.closed = true
	killOrphans(c.orphans, c.dir)
	if rmErr := removeAll(c.dir); rmErr != nil {
		err = errors.Join(err, fmt.Errorf("remove the cluster's folder: %w", rmErr))
	}
	if c.janitor != nil {
		c.janitor.finish()
	}
	return err
}

// removeAll is os.RemoveAll, again while a dying backend still writes its last files.
func removeAll(dir string) error {
	var err error
	for range 50 {
		if err = os.RemoveAll(dir); err == nil {
			return nil
		}
		wait(context.Background(), 20*time.Millisecond)
	}
	return err
}

// signal is kill(2); a process that is gone already is no error.
func signal(pid int, sig syscall.Signal) error {
	if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

func exitError(err error) error {
	if err == nil {
		return errors.New("exit status 0")
	}
	return err
}

func (c *Cluster) logSince(begin int64) string {
	body, err := os.ReadFile(filepath.Join(c.dir, "postgres.log"))
	if err != nil || int64(len(body)) < begin {
		return ""
	}
	tail := body[begin:]
	if len(tail) > 4096 {
		tail = tail[len(tail)-4096:]
	}
	return strings.TrimSpace(string(tail))
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
