package devpg

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// EnvBinDir names the environment variable that holds the folder of the server binaries,
// for a server that is not found by itself.
const EnvBinDir = "WORKQ_PG_BINDIR"

// ErrNoServer is found by errors.Is when no fitting server binaries are on the machine.
var ErrNoServer = errors.New("no PostgreSQL server binaries")

// Binaries is a set of server programs: at least postgres and initdb.
type Binaries struct {
	Dir     string // the folder that holds them
	Major   int    // 15
	Version string // "15.18"
}

// FindBinaries looks for server binaries: in opts.BinDir or $WORKQ_PG_BINDIR alone, when one of
// them is given, else in opts.SearchDirs, PATH, `pg_config --bindir`, the folders of the Debian and
// Red Hat packages, Homebrew and Postgres.app. The first folder with the wanted major is taken;
// with Major 0, the newest. The error matches ErrNoServer and says what to do.
func FindBinaries(opts Options) (Binaries, error) {
	dirs := candidateDirs(opts)
	var best Binaries
	var seen []string
	for _, dir := range dirs {
		b, ok := inspect(dir)
		if !ok {
			continue
		}
		if opts.Major != 0 && b.Major != opts.Major {
			seen = append(seen, b.Version+" in "+b.Dir)
			continue
		}
		if opts.Major != 0 {
			return b, nil
		}
		if b.Major > best.Major {
			best = b
		}
	}
	if best.Major != 0 {
		return best, nil
	}
	return Binaries{}, notFound(opts, seen)
}

func notFound(opts Options, seen []string) error {
	what, setup := "", "make setup"
	if opts.Major != 0 {
		what = fmt.Sprintf(" of major version %d", opts.Major)
		setup = fmt.Sprintf("make setup PG=%d", opts.Major)
	}
	found := "found none at all"
	if len(seen) > 0 {
		found = "found only " + strings.Join(seen, ", ")
	}
	return fmt.Errorf("%w%s (initdb and postgres): %s; run `%s`, or set %s to their folder, or set DATABASE_URL to a server that runs",
		ErrNoServer, what, found, setup, EnvBinDir)
}

func candidateDirs(opts Options) []string {
	if opts.BinDir != "" {
		return []string{opts.BinDir}
	}
	if dir := os.Getenv(EnvBinDir); dir != "" {
		return []string{dir}
	}
	dirs := append([]string(nil), opts.SearchDirs...)
	if p, err := exec.LookPath("postgres"); err == nil {
		// The link in PATH may stand alone, its target has initdb beside it.
		if real, err := filepath.EvalSymlinks(p); err == nil {
			dirs = append(dirs, filepath.Dir(real))
		}
	}
	if out, err := exec.Command("pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range []string{
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql*/bin",
		"/usr/local/opt/postgresql*/bin",
		"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",
		"/Applications/Postgres.app/Contents/Versions/*/bin",
	} {
		found, _ := filepath.Glob(pattern) // the only error is a bad pattern
		dirs = append(dirs, found...)
	}
	return dirs
}

var versionPattern = regexp.MustCompile(`\b(\d+)(\.\d+|devel|beta\d+|rc\d+)`)

func inspect(dir string) (Binaries, bool) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Binaries{}, false
	}
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return Binaries{}, false
	}
	out, err := exec.Command(filepath.Join(dir, "postgres"), "--version").Output()
	if err != nil {
		return Binaries{}, false
	}
	m := versionPattern.FindStringSubmatch(string(out))
	if m == nil {
		return Binaries{}, false
	}
	major, err := strconv.Atoi(m[1])
	if err != nil {
		return Binaries{}, false
	}
	return Binaries{Dir: dir, Major: major, Version: m[0]}, true
}
