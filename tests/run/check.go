package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// checkQuery asks plpgsql_check for all it knows about each PL/pgSQL function of workq. A trigger
// function is checked against each table that has it.
const checkQuery = `
select p.oid::regprocedure::text as function, coalesce(c.lineno, 0) as line, c.level, c.message,
       coalesce(c.detail, '') as detail, coalesce(c.hint, '') as hint, coalesce(c.query, '') as query
from pg_proc p
join pg_language l on l.oid = p.prolang and l.lanname = 'plpgsql'
left join pg_trigger t on t.tgfoid = p.oid and p.prorettype = 'trigger'::regtype
cross join lateral plpgsql_check_function_tb(
  p.oid, coalesce(t.tgrelid, 0),
  fatal_errors => false, other_warnings => true, performance_warnings => true,
  extra_warnings => true, security_warnings => true, compatibility_warnings => true) as c
where p.pronamespace = 'workq'::regnamespace and p.prokind in ('f', 'p')
order by 1, 2`

type finding struct {
	Function string
	Line     int
	Level    string
	Message  string
	Detail   string
	Hint     string
	Query    string
}

// tolerated are kinds of findings that are wrong in general. A single one that is meant is switched off in its
// function, with the reason beside it: -- @plpgsql_check_options: security_warnings = off
var tolerated = []struct{ level, message, why string }{
	{"performance", "routine is marked as VOLATILE, should be",
		"volatile is often meant: each statement sees what was committed before it, and dynamic SQL is not looked into"},
	{"warning extra", "is maybe unmodified",
		"return query execute fills the columns of a result, unseen"},
}

// runCheck fails on any finding of plpgsql_check, performance included.
func runCheck(ctx context.Context, db *database) (report, error) {
	if _, err := db.conn.Exec(ctx, "create extension plpgsql_check"); err != nil {
		return report{}, fmt.Errorf("install plpgsql_check (PostgreSQL 15 has it after `make setup`): %w", err)
	}
	var functions int
	err := db.conn.QueryRow(ctx, `select count(*) from pg_proc p join pg_language l on l.oid = p.prolang
		where l.lanname = 'plpgsql' and p.pronamespace = 'workq'::regnamespace`).Scan(&functions)
	if err != nil {
		return report{}, fmt.Errorf("count the functions: %w", err)
	}
	rows, err := db.conn.Query(ctx, checkQuery)
	if err != nil {
		return report{}, fmt.Errorf("run plpgsql_check: %w", err)
	}
	findings, err := pgx.CollectRows(rows, pgx.RowToStructByPos[finding])
	if err != nil {
		return report{}, fmt.Errorf("run plpgsql_check: %w", err)
	}
	count := 0
	for _, f := range findings {
		if f.tolerated() {
			continue
		}
		count++
		fmt.Printf("%s line %d: %s: %s\n", f.Function, f.Line, f.Level, f.Message)
		for _, more := range []string{f.Detail, f.Hint, f.Query} {
			if more != "" {
				fmt.Println("    " + strings.ReplaceAll(strings.TrimSpace(more), "\n", "\n    "))
			}
		}
	}
	if functions == 0 {
		return report{summary: "plpgsql_check found no function to look at"}, nil
	}
	return report{
		summary: fmt.Sprintf("plpgsql_check %d findings in %d functions", count, functions),
		ok:      count == 0,
	}, nil
}

func (f finding) tolerated() bool {
	for _, t := range tolerated {
		if f.Level == t.level && strings.Contains(f.Message, t.message) {
			return true
		}
	}
	return false
}
