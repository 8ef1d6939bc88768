package blob

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/postrider/postrider/internal/lib/fileperm"
)

const (
	shards = 256
	// tmpName is the folder for files that are being written. The .tmp folder is inside the store's folder, so that a
	// rename never crosses file systems. The .tmp folder is not inside a shard, so that leftover files are found
	// without listing all blobs.
	tmpName = ".tmp"
	tmpAge  = 24 * time.Hour
	// slash replaces "/" in file names. Keys of blobs never contain "=".
	slash = "="
)

// folder is a store in a folder. A blob is stored in the file <root>/<two hexadecimal digits>/<key with "=" for "/">.
// The two-digit folders are called shards. The digits are derived from the key's hash. If the digits were the key's
// first characters, keys that begin with a time would fill one shard after another. Opening the store creates all
// shards and syncs them to disk, so that no Put has to create a shard. The root also contains the tmpName folder, and
// the holdName and keptName entries for Hold.
type folder struct {
	root string
}

func openFolder(root string) (*Store, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("blob folder: %w", err)
	}
	f := &folder{root: root}
	if err := f.prepare(); err != nil {
		return nil, fmt.Errorf("prepare blob folder %s: %w", root, err)
	}
	return &Store{b: f}, nil
}

// prepare creates the folders and deletes leftover files from interrupted Puts. Only old files are deleted, because
// another process may be writing to the same folder.
func (f *folder) prepare() error {
	if err := makeRoot(f.root); err != nil {
		return err
	}
	if err := fileperm.Mend(f.root); err != nil {
		return err
	}
	for i := range shards {
		if err := mkdir(filepath.Join(f.root, fmt.Sprintf("%02x", i))); err != nil {
			return err
		}
	}
	tmp := filepath.Join(f.root, tmpName)
	if err := mkdir(tmp); err != nil {
		return err
	}
	left, err := os.ReadDir(tmp)
	if err != nil {
		return err
	}
	for _, e := range left {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > tmpAge {
			// A missing file is not an error, because another process may be deleting the same files.
			if err := os.Remove(filepath.Join(tmp, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	if err := f.dropKept(); err != nil {
		return err
	}
	return syncDir(f.root)
}

// makeRoot creates the root and its missing parents, and makes each new name durable in its parent.
func makeRoot(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeRoot(filepath.Dir(dir)); err != nil {
			return err
		}
		err = os.Mkdir(dir, 0o700)
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(dir))
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return fileperm.Mend(dir)
}

func (f *folder) path(key string) string {
	h := sha256.Sum256([]byte(key))
	return filepath.Join(f.root, hex.EncodeToString(h[:1]), strings.ReplaceAll(key, "/", slash))
}

func (f *folder) put(_ context.Context, key string, r *source) (int64, error) {
	tmp, err := os.CreateTemp(filepath.Join(f.root, tmpName), "put-*") // CreateTemp creates the file with mode 0600
	if err != nil {
		return 0, full(err)
	}
	n, err := fill(tmp, r)
	if err == nil {
		path := f.path(key)
		if err = os.Rename(tmp.Name(), path); err == nil {
			return n, full(syncDir(filepath.Dir(path)))
		}
	}
	return 0, full(errors.Join(err, os.Remove(tmp.Name())))
}

// fill writes all of r to a file, syncs it, and always closes it.
func fill(f *os.File, r io.Reader) (int64, error) {
	n, err := io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	return n, errors.Join(err, f.Close())
}

// full wraps a disk-full error with ErrFull, unless the error comes from the reader that was passed to Put.
func full(err error) error {
	if _, theirs := errors.AsType[*sourceError](err); theirs {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrFull, err)
	}
	return err
}

func (f *folder) get(_ context.Context, key string) (io.ReadCloser, error) {
	path := f.path(key)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		// Open created the shard's folder, so if that folder is missing, the whole store is missing, for example because it
		// is not mounted.
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return nil, err
		}
		return nil, ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f *folder) remove(_ context.Context, key string) error {
	unlock, held, err := f.lock(syscall.LOCK_SH)
	if err != nil {
		return err
	}
	if held {
		err = os.Rename(f.path(key), filepath.Join(f.root, keptName, filepath.Base(f.path(key))))
	} else {
		err = os.Remove(f.path(key))
		unlock()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return ErrNotFound
	}
	return err
}

func (f *folder) list(ctx context.Context, prefix string, fn func(Info) error) error {
	prefix = strings.ReplaceAll(prefix, "/", slash)
	for i := range shards {
		if err := listShard(ctx, filepath.Join(f.root, fmt.Sprintf("%02x", i)), prefix, fn); err != nil {
			return err
		}
	}
	return nil
}

// listShard reads a folder a thousand names at a time, to limit its memory use.
func listShard(ctx context.Context, dir, prefix string, fn func(Info) error) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("list blobs: %w", err)
	}
	defer d.Close()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := d.ReadDir(1000)
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		for _, e := range entries {
			if !strings.HasPrefix(e.Name(), prefix) || !e.Type().IsRegular() {
				continue
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue // The file was deleted after its name was read.
			}
			if err != nil {
				return fmt.Errorf("list blobs: %w", err)
			}
			key := strings.ReplaceAll(e.Name(), slash, "/")
			if err := fn(Info{Key: key, Size: info.Size(), Modified: info.ModTime()}); err != nil {
				return err
			}
		}
	}
}

func (f *folder) close() error { return nil }

// syncDir syncs a folder, so that the file names in it survive a power failure.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
