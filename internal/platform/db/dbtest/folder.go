package dbtest

import (
	"cmp"
	"os"
	"path/filepath"
	"syscall"
)

// MemoryFolder returns a folder whose files are kept in memory, or "" if the system has no such folder with enough
// space. Creating a database in memory takes a tenth of the time that it takes on disk.
func MemoryFolder() string {
	const path, space = "/dev/shm", 2 << 30
	var fs syscall.Statfs_t
	if syscall.Statfs(path, &fs) != nil || fs.Bavail*uint64(fs.Bsize) < space {
		return ""
	}
	return path
}

// folder is a temporary folder. A lock on the folder tells other test processes that the folder is in use.
type folder struct {
	path string
	lock *os.File
}

const (
	folderPrefix = "postrider-test-"
	lockName     = "lock"
)

// newFolder creates a folder in dir, or in the system's folder for temporary files if dir is empty. The newFolder
// function also removes folders that killed processes left behind.
func newFolder(dir, name string) (*folder, error) {
	dir = cmp.Or(dir, os.TempDir())
	removeUnused(dir)
	path, err := os.MkdirTemp(dir, folderPrefix+name+"-")
	if err != nil {
		return nil, err
	}
	f := &folder{path: path}
	unlocked := filepath.Join(path, "unlocked") // the file is renamed to its final name once it is locked
	if f.lock, err = os.Create(unlocked); err == nil {
		err = syscall.Flock(int(f.lock.Fd()), syscall.LOCK_EX)
	}
	if err == nil {
		err = os.Rename(unlocked, filepath.Join(path, lockName))
	}
	if err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

func removeUnused(dir string) {
	all, _ := filepath.Glob(filepath.Join(dir, folderPrefix+"*", lockName))
	for _, path := range all {
		lock, err := os.Open(path)
		if err != nil {
			continue // skip the folder, because another process is removing it
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			os.RemoveAll(filepath.Dir(path))
		}
		lock.Close()
	}
}

func (f *folder) remove() {
	os.RemoveAll(f.path)
	f.lock.Close()
}

// useMemory keeps this process's temporary files in memory, unless TMPDIR names another folder. useMemory returns nil
// if the files stay in the system's folder for temporary files.
func useMemory() *folder {
	dir := MemoryFolder()
	if dir == "" || os.Getenv("TMPDIR") != "" {
		return nil
	}
	f, err := newFolder(dir, "tmp")
	if err != nil {
		return nil
	}
	os.Chmod(f.path, 0o711) // NewServer may start a server in this folder as another user
	os.Setenv("TMPDIR", f.path)
	return f
}
