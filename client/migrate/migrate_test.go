package migrate

import (
	"io"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

func files(extra map[string]string) fstest.MapFS {
	all := map[string]string{
		"migrations/001_tables.sql":    "create schema workq;",
		"migrations/002_functions.sql": "{{ .functions }}",
		"functions/install.sql":        `{{ template "one.sql" . }}{{ template "_two.sql" . }}`,
		"functions/one.sql":            "select 'one';\n",
		"functions/_two.sql":           "select 'two' -- no semicolon",
	}
	for name, body := range extra {
		all[name] = body
	}
	fsys := fstest.MapFS{}
	for name, body := range all {
		fsys[name] = &fstest.MapFile{Data: []byte(body)}
	}
	return fsys
}

func TestFunctionsAndSnapshotsBecomeMigrations(t *testing.T) {
	m, err := loadFrom(t.Context(), nil, files(map[string]string{
		"migrations/003_released.sql":                `{{ install_snapshot "0.1.0" }}`,
		"migrations/snapshots/0.1.0/install.sql":     `{{ template "released.sql" . }}`,
		"migrations/snapshots/0.1.0/released.sql":    "select 'released';",
		"migrations/004_reversible.sql":              "select 4;\n---- create above / drop below ----\ndrop schema workq cascade;",
		"migrations/README.md":                       "not a migration",
		"migrations/snapshots/0.1.0/sub/ignored.txt": "",
	}))
	require.NoError(t, err)
	require.Len(t, m.Migrations, 4)
	require.Equal(t, "select 'one';\nselect 'two' -- no semicolon", m.Migrations[1].UpSQL)
	require.Contains(t, m.Migrations[2].UpSQL, "select 'released';")
	require.Equal(t, "select 4;\n", m.Migrations[3].UpSQL+"\n")
	for _, step := range m.Migrations {
		require.Empty(t, step.DownSQL, "there is no way down")
	}
}

func TestPrintedMigrationsEndTheirStatements(t *testing.T) {
	m, err := loadFrom(t.Context(), nil, files(nil))
	require.NoError(t, err)
	var out strings.Builder
	require.NoError(t, writeSQL(&out, m.Migrations, 0))
	require.Contains(t, out.String(), "-- no semicolon\n;\n", "a comment at the end swallows nothing")
	require.Equal(t, 2, strings.Count(out.String(), "\ncommit;\n"))

	out.Reset()
	require.NoError(t, writeSQL(&out, m.Migrations, 1))
	require.NotContains(t, out.String(), "create schema workq")
	require.NotContains(t, out.String(), "create table if not exists")
	require.Contains(t, out.String(), "this migration needs version 1")
	require.ErrorContains(t, writeSQL(io.Discard, m.Migrations, 3), "choose 0 to 2")
	require.ErrorContains(t, writeSQL(io.Discard, m.Migrations, -1), "choose 0 to 2")
}

func TestPrintRefusesWhatPsqlCannotDoSafely(t *testing.T) {
	m, err := loadFrom(t.Context(), nil, files(map[string]string{
		"migrations/003_concurrently.sql": "---- tern: disable-tx ----\ncreate index concurrently on x (y);",
	}))
	require.NoError(t, err)
	require.ErrorContains(t, writeSQL(io.Discard, m.Migrations, 0), "use workq migrate")
	require.NoError(t, writeSQL(io.Discard, m.Migrations, 3))
}

func TestHashSeesEveryFileNameAndByte(t *testing.T) {
	base, err := hashFiles(files(nil))
	require.NoError(t, err)
	again, err := hashFiles(files(nil))
	require.NoError(t, err)
	require.Equal(t, base, again)
	for name, extra := range map[string]map[string]string{
		"a changed byte":          {"functions/_two.sql": "select 'two' -- no semicolon."},
		"a new file":              {"functions/three.sql": ""},
		"a file in a subfolder":   {"migrations/snapshots/0.1.0/install.sql": "select 1;"},
		"a byte that moved along": {"functions/one.sql": "select 'one';", "functions/_two.sql": "\nselect 'two' -- no semicolon"},
	} {
		other, err := hashFiles(files(extra))
		require.NoError(t, err)
		require.NotEqual(t, base, other, name)
	}
	embedded, err := Hash()
	require.NoError(t, err)
	require.Len(t, embedded, 64)
}
