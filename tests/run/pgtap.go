package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
)

var tapTotals = regexp.MustCompile(`(?m)^Files=(\d+), Tests=(\d+),`)

// runPgTAP runs pgtap/*.sql, each in a transaction that it rolls back itself.
func runPgTAP(ctx context.Context, db *database) (report, error) {
	files, err := filepath.Glob("pgtap/*.sql")
	if err != nil {
		return report{}, err
	}
	if len(files) == 0 {
		return report{}, errors.New("there are no files pgtap/*.sql: run it from the top of the tree")
	}
	if err := installPgTAP(ctx, db); err != nil {
		return report{}, err
	}
	prove, err := exec.LookPath("pg_prove")
	if err != nil {
		return report{}, fmt.Errorf("find pg_prove: %w; run `make setup`", err)
	}
	var seen bytes.Buffer
	cmd := exec.CommandContext(ctx, prove, append([]string{"--failures", "--comments"}, files...)...)
	cmd.Env = db.env()
	cmd.Stdout, cmd.Stderr = io.MultiWriter(os.Stdout, &seen), os.Stderr
	runErr := cmd.Run()
	m := tapTotals.FindStringSubmatch(seen.String())
	if m == nil {
		return report{}, fmt.Errorf("pg_prove ended without totals: %w", errors.Join(runErr, ctx.Err()))
	}
	summary := fmt.Sprintf("pgTAP %s assertions in %s files", m[2], m[1])
	if runErr != nil {
		summary += " (some failed)"
	}
	return report{summary: summary, ok: runErr == nil}, nil
}

// installPgTAP creates the extension, or loads its plain SQL where the server has no such package.
func installPgTAP(ctx context.Context, db *database) error {
	var packaged bool
	err := db.conn.QueryRow(ctx, "select exists (select from pg_available_extensions where name = 'pgtap')").Scan(&packaged)
	if err != nil {
		return fmt.Errorf("look for pgTAP: %w", err)
	}
	if packaged {
		if _, err := db.conn.Exec(ctx, "create extension pgtap"); err != nil {
			return fmt.Errorf("install pgTAP: %w", err)
		}
		return nil
	}
	file, err := pgTAPFile()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-f", file)
	cmd.Env = append(db.env(), "PGOPTIONS=-c client_min_messages=warning")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("load %s with psql: %w\n%s", file, err, out)
	}
	return nil
}

// pgTAPFile is the newest full script of the extension that any installed server has.
func pgTAPFile() (string, error) {
	var full []string
	for _, pattern := range []string{"/usr/share/postgresql/*/extension", "/opt/homebrew/share/postgresql*/extension", "/usr/local/share/postgresql*/extension"} {
		found, err := filepath.Glob(pattern + "/pgtap--*.sql")
		if err != nil {
			return "", err
		}
		for _, file := range found {
			if strings.Count(filepath.Base(file), "--") == 1 { // with two it is an upgrade
				full = append(full, file)
			}
		}
	}
	if len(full) == 0 {
		return "", errors.New("pgTAP is not installed: run `make setup`")
	}
	sort.Slice(full, func(i, j int) bool { return filepath.Base(full[i]) < filepath.Base(full[j]) })
	return full[len(full)-1], nil
}
