package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/postrider/postrider/internal/lib/config"
)

// ErrFolderInUse means that another process has locked data_dir.
var ErrFolderInUse = errors.New("another node uses the folder")

// errLocked means that another process has a lock.
var errLocked = errors.New("another process has the lock")

// LockFolder locks data_dir until the result is closed or the process ends, so that no second node can use it. With
// SQLite, only one job runner may use the database.
func LockFolder(c config.Config) (*Lock, error) {
	f, err := lockFile(c.DataDir, "lock")
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("%w %s; stop it, or set database_url to share a PostgreSQL database", ErrFolderInUse,
			c.DataDir)
	}
	if err != nil {
		return nil, fmt.Errorf("lock data_dir: %w", err)
	}
	return f, nil
}

// lockFile opens or creates a file in a folder, and locks it until the result is closed or the process ends. The file
// belongs to the owner of the folder, also if root creates it: the node's user must be able to open it later.
func lockFile(folder, name string) (*Lock, error) {
	path := filepath.Join(folder, name)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: the file belongs to another user, perhaps because a command ran as root: run `chown "+
			"--reference=%s %s` as root", err, folder, path)
	}
	if err != nil {
		return nil, err
	}
	err = giveTo(f, folder)
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return &Lock{f}, nil
}

// Lock is a locked file.
type Lock struct{ file *os.File }

// Close ends the lock. A child process that is just being started may have a copy of the descriptor, so closing the
// file alone would keep the lock for a moment.
func (l *Lock) Close() error {
	return errors.Join(syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN), l.file.Close())
}

// giveTo gives a file to the owner of a folder if this process runs as root.
func giveTo(f *os.File, folder string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(folder)
	if err != nil {
		return err
	}
	if of, ok := info.Sys().(*syscall.Stat_t); ok {
		err = f.Chown(int(of.Uid), int(of.Gid))
	}
	if errors.Is(err, fs.ErrPermission) { // root of a container may lack the capability, and then is the node's user
		return nil
	}
	return err
}
