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

	"github.com/postrider/postrider/internal/lib/fileperm"
)

const (
	holdName = ".hold" // lock file: Hold takes an exclusive lock, and Delete takes a shared lock
	keptName = ".kept" // folder that receives the blobs deleted during a Hold

	holdPoll = 10 * time.Millisecond
)

// ErrNoFolder means that the blobs are in a bucket, which does not support Hold.
var ErrNoFolder = errors.New("only blobs in a folder can be held")

// Held is a store's folder whose files stay readable while this process and other processes delete blobs.
type Held struct {
	f      *folder
	unlock func()
}

// File describes the file that stores a blob.
type File struct {
	Path string // path at which the file can currently be read
	Name string // relative path of the file in a folder store, with slashes
}

// Hold keeps the files of blobs that are deleted between this call and the call to Release. If the folder and the
// database are copied during the hold, the copied folder contains every blob that the copied database refers to. Delete
// does not wait for the end of a hold. When a process ends, its hold is released. Only one hold can exist at a time;
// other callers of Hold wait for its release until their ctx ends. If the store is a bucket, Hold returns ErrNoFolder.
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

// Release ends the hold and deletes the files that were kept.
func (h *Held) Release() error {
	err := h.f.emptyKept()
	h.unlock()
	return err
}

// Each calls fn, in no particular order, for every blob that existed when the hold began and possibly for blobs that
// were added later. The Each method may report a blob twice. If a blob's file is moved before fn reads it, Each reports
// the blob again.
func (h *Held) Each(ctx context.Context, fn func(File) error) error {
	err := h.f.list(ctx, "", func(i Info) error { return fn(h.f.file(h.f.path(i.Key), i.Key)) })
	if err != nil {
		return err
	}
	// The keptName folder contains the blobs that were deleted before their shard was read.
	kept := filepath.Join(h.f.root, keptName)
	return listShard(ctx, kept, "", func(i Info) error {
		return fn(h.f.file(filepath.Join(kept, strings.ReplaceAll(i.Key, "/", slash)), i.Key))
	})
}

// KeyOf returns the key of the blob that a folder stores in the file with the given name (see [File]).
func KeyOf(name string) (key string, err error) {
	_, base, _ := strings.Cut(name, "/")
	key = strings.ReplaceAll(base, slash, "/")
	return key, CheckKey(key)
}

func (f *folder) file(path, key string) File {
	name, _ := filepath.Rel(f.root, f.path(key)) // Rel cannot fail, because the path begins with the root
	return File{path, filepath.ToSlash(name)}
}

// lock tries to lock the folder without waiting, and returns held == true if a conflicting lock exists.
func (f *folder) lock(how int) (unlock func(), held bool, err error) {
	file, err := os.OpenFile(filepath.Join(f.root, holdName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("lock the blobs: %w", err)
	}
	err = syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
	if err == nil {
		return func() {
			// A child process that is just being started may have a copy of the descriptor, which would keep the lock.
			syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
			file.Close()
		}, false, nil
	}
	file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, true, nil
	}
	return nil, false, fmt.Errorf("lock the blobs: %w", err)
}

// dropKept deletes the files that a process kept before it was killed during a Hold.
func (f *folder) dropKept() error {
	if err := mkdir(filepath.Join(f.root, keptName)); err != nil {
		return err
	}
	if err := fileperm.File(filepath.Join(f.root, holdName)); err != nil {
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
