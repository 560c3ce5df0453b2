// Package migrate installs workq in a database and brings it up to date.
//
//	err := migrate.Up(ctx, os.Getenv("DATABASE_URL"))
//
// It is a package of its own, so that a program that only enqueues and works does not
// carry the migration library.
//
// The role that migrates needs CREATE on the database (for the schema workq) and on the
// schema public (for the version table); it need not be a superuser. It owns everything
// that is made. Use a direct connection or a session pooler: the lock that keeps two
// migrations apart belongs to a session, and a transaction pooler would lose it.
package migrate
