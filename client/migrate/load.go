package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io/fs"

	"github.com/jackc/pgx/v5"
	tern "github.com/jackc/tern/v2/migrate"

	workqsql "github.com/pgworkq/workq/sql"
)

// VersionTable is the table in which tern keeps the number of the last migration.
const VersionTable = "public.workq_schema_version"

// load gives a tern migrator with the embedded migrations. With a nil connection it can
// only be looked at; with a connection it has created the version table.
func load(ctx context.Context, conn *pgx.Conn) (*tern.Migrator, error) {
	return loadFrom(ctx, conn, workqsql.Files)
}

// loadFrom is load over any files of the same layout.
func loadFrom(ctx context.Context, conn *pgx.Conn, files fs.FS) (*tern.Migrator, error) {
	m, err := tern.NewMigrator(ctx, conn, VersionTable)
	if err != nil {
		return nil, fmt.Errorf("create the version table %s: %w", VersionTable, err)
	}
	functions, err := evalFunctions(files)
	if err != nil {
		return nil, fmt.Errorf("read the functions of workq: %w", err)
	}
	// Templates run while migrations are loaded, so the data comes first.
	m.Data["functions"] = functions
	migrations, err := fs.Sub(files, "migrations")
	if err != nil {
		return nil, fmt.Errorf("read the migrations of workq: %w", err)
	}
	if err := m.LoadMigrations(migrations); err != nil {
		return nil, fmt.Errorf("read the migrations of workq: %w", err)
	}
	for _, step := range m.Migrations {
		// Never down, whatever a file says: two processes with different targets would otherwise
		// undo each other, and undoing the first migration drops every message.
		step.DownSQL = ""
	}
	return m, nil
}

func evalFunctions(files fs.FS) (string, error) {
	functions, err := fs.Sub(files, "functions")
	if err != nil {
		return "", err
	}
	pkg, err := tern.LoadCodePackage(functions)
	if err != nil {
		return "", err
	}
	return pkg.Eval(nil)
}

// Latest is the number of the newest migration that this binary holds.
func Latest() (int32, error) {
	m, err := load(context.Background(), nil)
	if err != nil {
		return 0, err
	}
	return int32(len(m.Migrations)), nil
}

// Hash is a fingerprint of every embedded file, by path and content, in hex: two binaries
// with the same hash install the same thing. It suits the Hash of a pgtestdb migrator.
func Hash() (string, error) {
	return hashFiles(workqsql.Files)
}

func hashFiles(files fs.FS) (string, error) {
	sum := sha256.New()
	// A length before each part, so that a byte cannot move from one part to the next unseen.
	add := func(part []byte) {
		var n [8]byte
		binary.BigEndian.PutUint64(n[:], uint64(len(part)))
		sum.Write(n[:])
		sum.Write(part)
	}
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		add([]byte(path))
		add(body)
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("hash the embedded SQL: %w", err)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
