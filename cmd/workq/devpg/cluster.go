package devpg

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
)

// Superuser is the name of the cluster's superuser.
const Superuser = "postgres"

// maxSocketPath is the shortest limit among the systems for a Unix socket's path, in bytes
// (macOS 104, Linux 108, both with the closing zero).
const maxSocketPath = 103

// Cluster is a throwaway PostgreSQL. Its methods may be called from several goroutines; those
// that start and stop the server wait for each other.
type Cluster struct {
	opts     Options
	bin      Binaries
	dir      string
	owner    owner
	port     int
	password string
	janitor  *janitor

	mu       sync.Mutex // serialises Start, Stop, Kill, Restart, Close
	server   *server    // nil when stopped
	orphans  []int      // backends left by Kill
	settings map[string]string
	closed   bool
}

// Start makes a cluster and starts it. It returns when the server accepts connections, or with
// an error that holds the end of the server's log; then nothing is left behind. The context
// bounds the start only. As root, the server runs as the user postgres, or else nobody.
func Start(ctx context.Context, opts Options) (_ *Cluster, err error) {
	bin, err := FindBinaries(opts)
	if err != nil {
		return nil, err
	}
	who, err := findOwner()
	if err != nil {
		return nil, err
	}
	dir, err := makeDir(opts.Parent, who)
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, bin: bin, dir: dir, owner: who, port: 5432, password: randomHex(16), settings: map[string]string{}}
	for k, v := range opts.Settings {
		c.settings[k] = v
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	if c.janitor, err = startJanitor(dir); err != nil {
		return nil, err
	}
	if c.bin.Dir, err = reachable(bin.Dir, dir, who); err != nil {
		return nil, err
	}
	if err := c.initdb(ctx); err != nil {
		return nil, err
	}
	if !opts.TCP {
		return c, c.Start(ctx)
	}
	// Somebody may take the port between our look and the server's: try another.
	for try := 0; ; try++ {
		if c.port, err = freePort(); err != nil {
			return nil, err
		}
		err = c.Start(ctx)
		if err == nil {
			return c, nil
		}
		if try == 4 || !strings.Contains(err.Error(), "already in use") {
			return nil, err
		}
	}
}

// URL is the connection string of the database as superuser: over TCP if the cluster has it, else
// over the Unix socket. Every libpq program understands it.
func (c *Cluster) URL(db string) string {
	if c.opts.TCP {
		return c.TCPURL(db)
	}
	return c.SocketURL(db)
}

// SocketURL is URL over the Unix socket, where no password is asked for.
func (c *Cluster) SocketURL(db string) string {
	q := url.Values{"host": {c.dir}, "port": {strconv.Itoa(c.port)}, "user": {Superuser}}
	return "postgres:///" + url.PathEscape(db) + "?" + q.Encode()
}

// TCPURL is URL over the loopback. It is of use only in a cluster with TCP.
func (c *Cluster) TCPURL(db string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(Superuser, c.password),
		Host:     net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)),
		Path:     "/" + db,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Port is the port number, of the TCP socket and in the name of the Unix socket.
func (c *Cluster) Port() int { return c.port }

// Password is the superuser's password for TCP.
func (c *Cluster) Password() string { return c.password }

// Dir is the cluster's folder: the Unix socket, postgres.log and the folder data.
func (c *Cluster) Dir() string { return c.dir }

// DataDir is the data directory.
func (c *Cluster) DataDir() string { return filepath.Join(c.dir, "data") }

// Version is the server's version, such as "15.18".
func (c *Cluster) Version() string { return c.bin.Version }

// Major is the server's major version, such as 15.
func (c *Cluster) Major() int { return c.bin.Major }

// BinDir is the folder of the server binaries in use.
func (c *Cluster) BinDir() string { return c.bin.Dir }

// Set changes a server setting; it counts from the next Start or Restart.
func (c *Cluster) Set(name, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settings[name] = value
}

func (c *Cluster) initdb(ctx context.Context) error {
	pwfile := filepath.Join(c.dir, "password")
	if err := writeFile(pwfile, c.password+"\n", c.owner); err != nil {
		return err
	}
	defer os.Remove(pwfile)
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin.Dir, "initdb"),
		"--pgdata", c.DataDir(), "--username", Superuser, "--pwfile", pwfile,
		"--auth-local", "trust", "--auth-host", "scram-sha-256",
		"--encoding", "UTF8", "--no-locale", "--no-sync", "--no-instructions")
	cmd.Dir = c.dir
	cmd.Env = serverEnv()
	cmd.SysProcAttr = sysProcAttr(c.owner)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb of PostgreSQL %s (%s): %w\n%s", c.bin.Version, c.bin.Dir, err, out)
	}
	conf, err := os.OpenFile(filepath.Join(c.DataDir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("configure the cluster: %w", err)
	}
	_, err = io.WriteString(conf, "\ninclude 'devpg.conf'\n")
	return errors.Join(err, conf.Close())
}

// configure writes devpg.conf, which postgresql.conf includes.
func (c *Cluster) configure() error {
	s := map[string]string{
		"listen_addresses":        "",
		"port":                    strconv.Itoa(c.port),
		"unix_socket_directories": c.dir,
		"max_connections":         "200",
		"logging_collector":       "off",
		"log_destination":         "stderr",
		"log_line_prefix":         "%m [%p] %d ",
		"timezone":                "UTC",
	}
	if c.opts.TCP {
		s["listen_addresses"] = "127.0.0.1"
	}
	if !c.opts.Fsync {
		s["fsync"] = "off"
		s["full_page_writes"] = "off"
	}
	for k, v := range c.settings {
		s[k] = v
	}
	names := make([]string, 0, len(s))
	for k := range s {
		names = append(names, k)
	}
	sort.Strings(names)
	var b strings.Builder
	for _, k := range names {
		fmt.Fprintf(&b, "%s = '%s'\n", k, strings.ReplaceAll(s[k], "'", "''"))
	}
	return writeFile(filepath.Join(c.DataDir(), "devpg.conf"), b.String(), c.owner)
}

// makeDir makes the cluster's folder, short enough for a socket's path and owned by who.
func makeDir(parent string, who owner) (string, error) {
	if parent == "" {
		parent = os.TempDir()
		if len(parent)+len("/workq-pg-1234567890/.s.PGSQL.12345") > maxSocketPath {
			parent = "/tmp"
		}
	}
	dir, err := os.MkdirTemp(parent, "workq-pg-")
	if err != nil {
		return "", fmt.Errorf("make a folder for the cluster: %w", err)
	}
	if len(dir)+len("/.s.PGSQL.12345") > maxSocketPath {
		_ = os.Remove(dir)
		return "", fmt.Errorf("the path %s is too long for a Unix socket: set Options.Parent or TMPDIR to a shorter folder", dir)
	}
	if err := who.own(dir); err != nil {
		_ = os.Remove(dir)
		return "", err
	}
	return dir, nil
}

func writeFile(path, body string, who owner) error {
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		return fmt.Errorf("write the cluster's files: %w", err)
	}
	return who.own(path)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	return port, l.Close()
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails, see crypto/rand
	return hex.EncodeToString(b)
}

// serverEnv is our environment without what would change the server: PG* (PGDATA, PGPORT…)
// and the locale.
func serverEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if strings.HasPrefix(kv, "PG") || strings.HasPrefix(kv, "LC_") || strings.HasPrefix(kv, "LANG") {
			continue
		}
		env = append(env, kv)
	}
	return append(env, "LC_ALL=C")
}
