// Package sql hands the SQL of workq to Go: the numbered tern migrations and the
// functions, which are the product. It holds no logic; package client/migrate runs it.
package sql

import "embed"

// Files holds two folders.
//
//   - migrations: tern migrations, numbered from 001 without a gap. Below it
//     snapshots/VERSION, the functions as they were released. Nothing released changes.
//   - functions: a tern code package (install.sql names the files in order), the only
//     place in which functions are edited.
//
// The patterns carry "all:", without which files that begin with "_" or "." are left out.
//
//go:embed all:migrations all:functions
var Files embed.FS
