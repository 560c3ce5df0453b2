// Package devpg runs a throwaway PostgreSQL: a cluster of its own in a temporary folder, on
// a Unix socket and, when asked, on a loopback port. It is what `workq dev`, `make demo` and the
// tests use when DATABASE_URL is not set. It is not for data that anybody wants to keep.
//
//	pg, err := devpg.Start(ctx, devpg.Options{})
//	if err != nil { … }
//	defer pg.Close()
//	conn, err := pgx.Connect(ctx, pg.URL("postgres"))
//
// The server ends with the process that started it, however that ends: on Linux the kernel
// tells it, and a small shell waits beside it to end it and to remove the folder.
package devpg
