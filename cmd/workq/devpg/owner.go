package devpg

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// owner is the user as whom the server runs. PostgreSQL refuses to run as root.
type owner struct {
	switchUser bool // we are root and become somebody else
	uid, gid   int
}

func findOwner() (owner, error) {
	if os.Geteuid() != 0 {
		return owner{uid: os.Geteuid(), gid: os.Getegid()}, nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.Atoi(u.Uid)
		gid, err2 := strconv.Atoi(u.Gid)
		if err := errors.Join(err1, err2); err != nil {
			return owner{}, fmt.Errorf("read the ids of user %s: %w", name, err)
		}
		return owner{switchUser: true, uid: uid, gid: gid}, nil
	}
	return owner{}, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as: " +
		"run `make setup`, or run this as an ordinary user")
}

// own gives the file to the owner.
func (o owner) own(path string) error {
	if !o.switchUser {
		return nil
	}
	if err := os.Lchown(path, o.uid, o.gid); err != nil {
		return fmt.Errorf("give %s to the user of the server: %w", path, err)
	}
	return nil
}

func (o owner) credential() *syscall.Credential {
	if !o.switchUser {
		return nil
	}
	return &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid)}
}

// reachable gives a folder with the binaries that the owner can run. Root's own folder, say, is
// closed to others: then the installation (the parent of bin) is copied into dir.
func reachable(bin, dir string, who owner) (string, error) {
	if !who.switchUser {
		return bin, nil
	}
	probe := exec.Command(filepath.Join(bin, "postgres"), "--version")
	probe.Dir = dir
	probe.SysProcAttr = &syscall.SysProcAttr{Credential: who.credential()}
	if probe.Run() == nil {
		return bin, nil
	}
	from, to := filepath.Dir(bin), filepath.Join(dir, "server")
	if err := copyTree(from, to); err != nil {
		return "", fmt.Errorf("copy the server to where its user can run it: %w", err)
	}
	return filepath.Join(to, filepath.Base(bin)), nil
}

// copyTree copies folders, files and symbolic links, readable for everybody.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		switch {
		case d.IsDir():
			return os.MkdirAll(target, 0o755)
		case d.Type()&fs.ModeSymlink != 0:
			link, err := os.Readlink(path)
			if err != nil {
				return err
			}
			if strings.HasPrefix(link, from+string(filepath.Separator)) {
				link = to + strings.TrimPrefix(link, from)
			}
			return os.Symlink(link, target)
		default:
			info, err := d.Info()
			if err != nil {
				return err
			}
			body, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(target, body, info.Mode().Perm()|0o444)
		}
	})
}
