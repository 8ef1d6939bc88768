package blob

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/private"
)

const (
	holdName = ".hold" // locked by whoever holds the blobs, and shared by those that delete one
	keptName = ".kept" // what is deleted while somebody holds the blobs

	holdPoll = 10 * time.Millisecond
)

// ErrNoFolder says that blobs are in a bucket, which cannot be held.
var ErrNoFolder = errors.New("only blobs in a folder can be held")

// Held is a folder of which nothing goes away, although other processes and this one go on deleting from it.
type Held struct {
	f      *folder
	unlock func()
}

// File is a blob as it lies in the folder.
type File struct {
	Path string // to read it
	Name string // where it belongs, relative to the folder, with slashes
}

// Hold has what is deleted from now on kept until it is let go: for a copy of the folder that has all that a copy of
// the database made meanwhile refers to. Deleting does not wait for it. A process that ends lets go. One holds at a
// time; others wait, until ctx ends. Of a bucket the error is ErrNoFolder.
func (s *Store) Hold(ctx context.Context) (*Held, error) {
	f, ok := s.b.(*folder)
	if !ok {
		return nil, ErrNoFolder
	}
	tick := time.NewTicker(holdPoll)
	defer tick.Stop()
	for {
		unlock, held, err := f.lock(syscall.LOCK_EX)
		if err == nil && !held {
			if err = f.emptyKept(); err == nil {
				return &Held{f, unlock}, nil
			}
			unlock()
		}
		if err != nil {
			return nil, fmt.Errorf("hold the blobs: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-tick.C:
		}
	}
}

// Release lets go, and removes what was kept.
func (h *Held) Release() error {
	err := h.f.emptyKept()
	h.unlock()
	return err
}

// Each calls fn for each blob that was there when it was held, and for others that came since, in no particular
// order. A blob may be given twice, and one may be gone from its path when fn looks; it is given again then.
func (h *Held) Each(ctx context.Context, fn func(File) error) error {
	err := h.f.list(ctx, "", func(i Info) error { return fn(h.f.file(h.f.path(i.Key), i.Key)) })
	if err != nil {
		return err
	}
	// What was deleted before its shard was read is here by now.
	kept := filepath.Join(h.f.root, keptName)
	return listShard(ctx, kept, "", func(i Info) error {
		return fn(h.f.file(filepath.Join(kept, strings.ReplaceAll(i.Key, "/", slash)), i.Key))
	})
}

func (f *folder) file(path, key string) File {
	name, _ := filepath.Rel(f.root, f.path(key)) // it cannot fail: the one begins with the other
	return File{path, filepath.ToSlash(name)}
}

// lock tries to lock the folder, and reports whether somebody else has it in a way that excludes this one.
func (f *folder) lock(how int) (unlock func(), held bool, err error) {
	file, err := os.OpenFile(filepath.Join(f.root, holdName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("lock the blobs: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
	if err == nil {
		return func() { file.Close() }, false, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, true, nil
	}
	return nil, false, fmt.Errorf("lock the blobs: %w", err)
}

// dropKept removes what a holder that was killed has left.
func (f *folder) dropKept() error {
	if err := mkdir(filepath.Join(f.root, keptName)); err != nil {
		return err
	}
	if err := private.File(filepath.Join(f.root, holdName)); err != nil {
		return err
	}
	unlock, held, err := f.lock(syscall.LOCK_EX)
	if err != nil || held {
		return err
	}
	defer unlock()
	return f.emptyKept()
}

func (f *folder) emptyKept() error {
	dir := filepath.Join(f.root, keptName)
	left, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range left {
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
