package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgworkq/workq/client/migrate"
	"github.com/pgworkq/workq/cmd/workq/devpg"
)

// target says where to measure.
type target struct {
	url    string
	major  int
	binDir string
}

// bed is a migrated database to measure in.
type bed struct {
	pool    *pgxpool.Pool
	cluster *devpg.Cluster // nil when the database was given
	version string
}

// open starts a cluster with fsync on and settings of a small production server, or connects to the
// database given, and migrates it.
func (t *target) open(ctx context.Context, connections int) (_ *bed, err error) {
	b := &bed{}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	url := t.url
	if url == "" {
		b.cluster, err = devpg.Start(ctx, devpg.Options{
			Major: t.major, BinDir: t.binDir, Fsync: true,
			Settings: map[string]string{
				"shared_buffers": "1GB", "max_wal_size": "8GB", "max_connections": "200", "checkpoint_timeout": "15min",
			},
		})
		if err != nil {
			return nil, err
		}
		url = b.cluster.URL("postgres")
	}
	if err := migrate.Up(ctx, url); err != nil {
		return nil, err
	}
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(connections + 4)
	if b.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, err
	}
	return b, b.pool.QueryRow(ctx, "select current_setting('server_version')").Scan(&b.version)
}

func (b *bed) close() {
	if b.pool != nil {
		b.pool.Close()
	}
	if b.cluster != nil {
		_ = b.cluster.Close()
	}
}

// queue makes a queue of a name that is not taken.
func (b *bed) queue(ctx context.Context, name string) (string, error) {
	name = fmt.Sprintf("bench-%s-%d", name, time.Now().UnixNano())
	_, err := b.pool.Exec(ctx, "select workq.create_queue($1)", name)
	return name, err
}

// fill enqueues n messages of about 200 bytes.
func (b *bed) fill(ctx context.Context, queue string, n int) error {
	for ; n > 0; n -= 1000 {
		if _, err := b.pool.Exec(ctx, "select count(*) from workq.enqueue_many($1, array_fill($2::jsonb, array[$3::int]))",
			queue, payload, min(n, 1000)); err != nil {
			return err
		}
	}
	return nil
}

// payload is JSON of about 200 bytes.
var payload = `{"to": "someone@example.org", "template": "welcome", "text": "` + strings.Repeat("workq ", 20) + `"}`

// cpu is the processor time that the server's processes have used so far.
// It is only known for a cluster of our own, on Linux.
func (b *bed) cpu() (time.Duration, error) {
	if b.cluster == nil {
		return 0, fmt.Errorf("the server's processor time is only known for a throwaway cluster: leave out --database")
	}
	postmaster := b.cluster.PID()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	var ticks int64
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it ended just now
		}
		// pid (name) state ppid …; utime is the 14th, then stime, cutime (of ended children), cstime.
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		ppid, _ := strconv.Atoi(fields[1])
		last := 13
		if pid == postmaster {
			last = 15
		} else if ppid != postmaster {
			continue
		}
		for _, field := range fields[11:last] {
			n, err := strconv.ParseInt(field, 10, 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			ticks += n
		}
	}
	return time.Duration(ticks) * time.Second / 100, nil
}

// rest lets the server come to rest between two measurements: dead rows gone, buffers written.
func (b *bed) rest(ctx context.Context) error {
	for _, sql := range []string{"vacuum (analyze) workq.delivery", "checkpoint"} {
		if _, err := b.pool.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}
