package migrate

import (
	"context"
	"fmt"
	"io"
	"strings"

	tern "github.com/jackc/tern/v2/migrate"
)

// ternLock is the advisory lock that tern holds while it migrates. The printed SQL takes
// the same one, so that it and a running Up wait for each other.
const ternLock = "9628173550095224"

// SQL is WriteSQL from an empty database.
func SQL() (string, error) {
	var b strings.Builder
	if err := WriteSQL(&b, 0); err != nil {
		return "", err
	}
	return b.String(), nil
}

// WriteSQL writes the migrations after version from (0: all of them) as one script for
// plain psql. It is forward only: one transaction for each migration, guarded by the version
// table, which ends as tern would leave it, so that Up can take over later. Run against a
// database at another version, or for a second time, the script stops at its first guard
// with an error that says so, and changes nothing.
func WriteSQL(w io.Writer, from int32) error {
	m, err := load(context.Background(), nil)
	if err != nil {
		return err
	}
	return writeSQL(w, m.Migrations, from)
}

func writeSQL(w io.Writer, steps []*tern.Migration, from int32) error {
	latest := int32(len(steps))
	if from < 0 || from > latest {
		return fmt.Errorf("cannot print migrations from version %d: choose 0 to %d", from, latest)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `-- workq: schema version %[1]d to %[2]d, for psql.
--
--   psql -X -f FILE "$DATABASE_URL"
--
-- Each migration is one transaction and begins with a guard: at another version than the
-- one it follows on, it fails and changes nothing.
\set ON_ERROR_STOP on
`, from, latest)
	if from == latest {
		fmt.Fprintf(&b, "\n-- Nothing to do: version %d is the newest.\n", latest)
	}
	for _, step := range steps[from:] {
		if strings.Contains(step.UpSQL, "---- tern: disable-tx ----") {
			return fmt.Errorf("migration %s runs outside a transaction and cannot be printed: use workq migrate", step.Name)
		}
		if step.UpFunc != nil {
			return fmt.Errorf("migration %s is written in Go and cannot be printed: use workq migrate", step.Name)
		}
		writeStep(&b, step)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeStep(b *strings.Builder, step *tern.Migration) {
	before := step.Sequence - 1
	fmt.Fprintf(b, "\n-- %d: %s\n\nbegin isolation level read committed;\n\n", step.Sequence, step.Name)
	b.WriteString("set local client_encoding = 'UTF8';\n")
	b.WriteString("set local client_min_messages = warning;\n")
	// Inside a do, so that psql prints no empty row.
	b.WriteString("do $workq_lock$ begin perform pg_catalog.pg_advisory_xact_lock(" + ternLock + "); end $workq_lock$;\n\n")
	if before == 0 {
		fmt.Fprintf(b, `create table if not exists %[1]s(version int4 not null primary key);

insert into %[1]s(version)
select 0
where 0 = (select count(*) from %[1]s);

`, VersionTable)
	}
	fmt.Fprintf(b, `do $workq_guard$
declare
  v_version int4;
begin
  if pg_catalog.to_regclass('%[1]s') is null then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = 'workq is not installed in this database',
      hint = 'print the migrations from version 0: workq migrate --print-sql';
  end if;
  select version into v_version from %[1]s;
  if v_version is distinct from %[2]d then
    raise exception using
      errcode = 'object_not_in_prerequisite_state',
      message = pg_catalog.format('workq is at schema version %%s, this migration needs version %[2]d', v_version),
      detail = 'migration %[3]d (%[4]s) was not run, nothing was changed by it',
      hint = pg_catalog.format('print the migrations that follow: workq migrate --print-sql --from %%s', v_version);
  end if;
end
$workq_guard$;

`, VersionTable, before, step.Sequence, step.Name)
	b.WriteString(strings.TrimSpace(step.UpSQL))
	// On a line of its own: the migration may end in a comment.
	fmt.Fprintf(b, "\n;\n\nreset all;\nupdate %s set version = %d;\n\ncommit;\n", VersionTable, step.Sequence)
}
