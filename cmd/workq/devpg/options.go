package devpg

// Options of Start. The zero value of every field works.
type Options struct {
	// Major is the wanted major version, 14 to 18. Defaults to 0: the newest found.
	Major int
	// BinDir is the folder with postgres and initdb. Defaults to "": see FindBinaries.
	BinDir string
	// SearchDirs are folders to look into before the usual places. Defaults to none.
	SearchDirs []string
	// Settings are server settings, as in postgresql.conf (unquoted: {"work_mem": "8MB"}).
	// They win over those that devpg makes. Defaults to none.
	Settings map[string]string
	// Fsync makes commits durable, as in production. Defaults to false: fsync and
	// full_page_writes are off, which is much faster, survives a crash of the server, and
	// does not survive a crash of the machine.
	Fsync bool
	// TCP makes the server listen on 127.0.0.1 too, at a free port that it keeps over
	// restarts, with a random password. Defaults to false: the Unix socket only.
	TCP bool
	// Parent is the folder in which the cluster's folder is made. Defaults to "": the
	// temporary folder of the system.
	Parent string
}
