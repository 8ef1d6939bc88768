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
	holdName = ".hold" // locked exclusively to hold the blobs, and shared to delete one
	keptName = ".kept" // blobs that are deleted while they are held

	holdPoll = 10 * time.Millisecond
)

// ErrNoFolder means that the blobs are in a bucket, which cannot be held.
var ErrNoFolder = errors.New("only blobs in a folder can be held")

// Held is a folder from which no file disappears, although this process and others go on deleting blobs.
type Held struct {
	f      *folder
	unlock func()
}

// File is the file of a blob.
type File struct {
	Path string // where to read it
	Name string // its regular name relative to the folder, with slashes
}

// Hold keeps the files of blobs that are deleted from now on, until Release. It is for copying the folder so that the
// copy has every blob that a copy of the database made meanwhile refers to. Deleting does not wait for it. The end of
// the process releases the hold. There is one hold at a time; other callers wait until ctx ends. For a bucket it
// returns ErrNoFolder.
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

// Each calls fn for each blob that was there when the hold began, and for some that were added since, in no
// particular order. A blob may occur twice. A file may be gone from its path when fn reads it; the blob then occurs
// again.
func (h *Held) Each(ctx context.Context, fn func(File) error) error {
	err := h.f.list(ctx, "", func(i Info) error { return fn(h.f.file(h.f.path(i.Key), i.Key)) })
	if err != nil {
		return err
	}
	// What was deleted before its shard was read has been moved here.
	kept := filepath.Join(h.f.root, keptName)
	return listShard(ctx, kept, "", func(i Info) error {
		return fn(h.f.file(filepath.Join(kept, strings.ReplaceAll(i.Key, "/", slash)), i.Key))
	})
}

func (f *folder) file(path, key string) File {
	name, _ := filepath.Rel(f.root, f.path(key)) // it cannot fail, because the path begins with the root
	return File{path, filepath.ToSlash(name)}
}

// lock tries to lock the folder. held reports that another lock excludes it.
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

// dropKept deletes what a process that was killed while it held the blobs has left.
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
