// Package blob stores raw messages and attachments: bytes under a key, in a folder or in a bucket.
//
// # Invariants
//
// After Put has returned without an error, the blob survives a power failure. For a bucket, this guarantee depends on
// the storage service. Readers never see a partially written blob. A Put to an existing key replaces the blob
// atomically. After concurrent Puts to the same key, the blob from one of them is stored in full. Only the owner of a
// store's folder can read the blobs in it.
//
// # Failures
//
// A failed Put stores nothing and leaves any existing blob with that key unchanged. The last step of a Put is the sync
// of a folder or the completion of an upload. If only this step fails, the new blob may be visible but may not survive
// a power failure.
//
// Errors of the store itself are marked as outages (fault.IsOutage), so that jobs wait for its return. Missing blobs
// and errors of the reader that was passed to Put are not. An error may concern one blob only, such as a file that
// cannot be read; callers find out with [Store.Probe]. The queue treats outages of over a day like other errors.
//
// [ErrFull] means that the disk is full or a quota is used up. Servers that accept mail report ErrFull to their clients
// as a temporary error.
//
// A crash may leave temporary files, which Open deletes once they are a day old. A crash may also undo a Delete, so
// callers must be able to repeat a Delete.
//
// # Out of scope
//
// The package does not decide who may read a blob, how long blobs are stored, or how large they may be. Callers limit
// the size of the content that they pass to Put. The package does not encrypt blobs.
//
// # Memory and time
//
// A Put to a bucket needs at most 5 MiB of memory, the size of an upload part. It briefly needs 2.5 MiB more while its
// buffer grows. A Put of a small blob needs 64 KiB of memory.
//
// A bucket request that fails with a temporary error is attempted up to four times. A bucket request that gets no
// response fails after a minute. If an upload fails, the store deletes its uploaded parts. After a crash, the parts of
// an unfinished upload remain until the bucket's lifecycle rule deletes them.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// ErrNotFound means that the store has no blob with this key.
var ErrNotFound = errors.New("blob not found")

// ErrFull means that the disk is full or a quota is used up. Nothing was stored.
var ErrFull = errors.New("no space left for blobs")

// MaxKey is the maximum length of a key. A key of this length fits into a file name on every system.
const MaxKey = 240

// Info describes a blob that List found.
type Info struct {
	Key      string
	Size     int64 // bytes
	Modified time.Time
}

// Store keeps blobs in a folder, in a bucket or in memory. A Store is safe for concurrent use.
type Store struct {
	b        backend
	failures failures
}

// backend is a folder, a bucket or a memory store. Store calls the methods of a backend only with valid keys.
type backend interface {
	put(ctx context.Context, key string, r *source) (int64, error)
	get(ctx context.Context, key string) (io.ReadCloser, error)
	remove(ctx context.Context, key string) error
	list(ctx context.Context, prefix string, fn func(Info) error) error
	close() error
}

// Open opens a store. A plain path or a file:// URL names a folder; Open creates the folder if it does not exist.
// s3://BUCKET is an S3 bucket; docs/operating/storage.md lists the query parameters, such as region, endpoint and prefix. A
// bucket's credentials are looked up when the first request is made. mem:// opens a store in memory, which loses its
// blobs when it is closed.
func Open(_ context.Context, where string) (*Store, error) { return openStore(where, openFolder) }

// OpenExisting is Open, but does not create a folder. The methods of a store whose folder does not exist return errors.
func OpenExisting(_ context.Context, where string) (*Store, error) {
	return openStore(where, func(root string) (*Store, error) {
		root, err := filepath.Abs(root)
		if err != nil {
			return nil, fmt.Errorf("blob folder: %w", err)
		}
		if _, err := os.Lstat(root); errors.Is(err, fs.ErrNotExist) {
			return &Store{b: &folder{root: root}}, nil
		}
		return openFolder(root)
	})
}

// CheckURL returns an error if Open would refuse the name of a store. CheckURL opens and creates nothing.
func CheckURL(where string) error {
	_, err := openStore(where, func(string) (*Store, error) { return nil, nil })
	return err
}

func openStore(where string, openFolder func(root string) (*Store, error)) (*Store, error) {
	scheme, _, isURL := strings.Cut(where, "://")
	if !isURL {
		if where == "" {
			return nil, errors.New("blob store: no folder or URL given")
		}
		return openFolder(where)
	}
	switch scheme {
	case "file":
		u, err := url.Parse(where)
		if err != nil {
			return nil, fmt.Errorf("blob store: %w", err)
		}
		if u.Host != "" || u.Path == "" || u.RawQuery != "" {
			return nil, fmt.Errorf("blob store %s: write file:///absolute/path, or a path alone", where)
		}
		return openFolder(u.Path)
	case "s3":
		return openBucket(where)
	case "mem":
		return openMemory(), nil
	}
	return nil, fmt.Errorf("blob store: unknown scheme %q; use a path, file://, s3:// or mem://", scheme)
}

// IsBucket reports whether the blobs are in an S3 bucket.
func (s *Store) IsBucket() bool {
	_, ok := s.b.(*bucket)
	return ok
}

// OpenObject opens the bucket of one object, whose key is the path of the URL: s3://BUCKET/KEY?region=REGION. It returns
// the store and the key. The caller must close the store.
func OpenObject(ctx context.Context, where string) (s *Store, key string, err error) {
	u, err := url.Parse(where)
	if err != nil {
		return nil, "", fmt.Errorf("read the URL of the object: %w", err)
	}
	key, u.Path = strings.TrimPrefix(u.Path, "/"), ""
	if u.Scheme != "s3" || key == "" {
		return nil, "", fmt.Errorf("%s: write s3://BUCKET/KEY?region=REGION", u.Redacted())
	}
	if err := CheckKey(key); err != nil {
		return nil, "", fmt.Errorf("the path of %s: %w", u.Redacted(), err)
	}
	s, err = Open(ctx, u.String())
	return s, key, err
}

// Put reads r to its end, stores the content under key, and returns its size in bytes. Put wraps errors from r.
func (s *Store) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := CheckKey(key); err != nil {
		return 0, err
	}
	n, err := s.b.put(ctx, key, &source{ctx: ctx, r: r})
	if err != nil {
		return 0, fmt.Errorf("put blob %s: %w", key, s.failures.count(&s.failures.puts, unavailable(ctx, err)))
	}
	return n, nil
}

// PutLarge is Put for content of many gigabytes, such as a backup. It needs 32 MiB of memory, and up to 16 MiB more while
// its buffer grows.
func (s *Store) PutLarge(ctx context.Context, key string, r io.Reader) (int64, error) {
	b, ok := s.b.(*bucket)
	if !ok {
		return s.Put(ctx, key, r)
	}
	if err := CheckKey(key); err != nil {
		return 0, err
	}
	n, err := b.putSized(ctx, key, &source{ctx: ctx, r: r}, largePart)
	if err != nil {
		return 0, fmt.Errorf("put blob %s: %w", key, unavailable(ctx, err))
	}
	return n, nil
}

// Has reports whether the store has a blob with this key.
func (s *Store) Has(ctx context.Context, key string) (found bool, err error) {
	if err := CheckKey(key); err != nil {
		return false, err
	}
	err = s.List(ctx, key, func(i Info) error {
		found = found || i.Key == key
		return nil
	})
	return found, err
}

// Get opens a blob for reading; the caller must close the reader. Get returns ErrNotFound if the blob does not exist;
// other errors mean that the store is not available. Replacing or deleting a blob does not affect open readers from a
// folder store, but open readers from a bucket may fail.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	rc, err := s.b.get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get blob %s: %w", key, s.failures.count(&s.failures.gets, unavailable(ctx, err)))
	}
	return newReader(ctx, rc), nil
}

// Delete removes a blob. Deleting a blob that does not exist is not an error.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := s.b.remove(ctx, key); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete blob %s: %w", key, s.failures.count(&s.failures.deletes, unavailable(ctx, err)))
	}
	return nil
}

// List calls fn for each blob whose key begins with prefix, in no particular order. List stops at the first error from
// fn and returns that error. The function fn may delete blobs. In a folder, List reads the names of all blobs,
// regardless of the prefix, so List is too slow for use in requests.
func (s *Store) List(ctx context.Context, prefix string, fn func(Info) error) error {
	if err := checkRunes(prefix); err != nil {
		return err
	}
	return s.b.list(ctx, prefix, fn)
}

// sweepPage is the maximum number of keys that Sweep passes to its callback in one call.
const sweepPage = 500

// Sweep deletes unused blobs that were written before the given time and whose keys begin with prefix. Sweep passes up
// to 500 keys at a time to its callback, which returns the keys that are in use. If callers record the use of a blob
// only after they write it, the given time must be far enough in the past.
func (s *Store) Sweep(ctx context.Context, prefix string, before time.Time,
	used func(ctx context.Context, keys []string) ([]string, error)) error {
	var page []string
	sweep := func() error {
		kept, err := used(ctx, page)
		if err != nil {
			return fmt.Errorf("look for who uses %d blobs: %w", len(page), err)
		}
		for _, key := range page {
			if slices.Contains(kept, key) {
				continue
			}
			if err := s.Delete(ctx, key); err != nil {
				return err
			}
		}
		page = page[:0]
		return nil
	}
	err := s.List(ctx, prefix, func(b Info) error {
		if !b.Modified.Before(before) {
			return nil
		}
		if page = append(page, b.Key); len(page) < sweepPage {
			return nil
		}
		return sweep()
	})
	if err != nil || len(page) == 0 {
		return err
	}
	return sweep()
}

// probeKey is the key of the small blob that Probe stores.
const probeKey = "probe"

// Probe stores and reads a small blob, and returns an error if the store does not answer. After another blob could not
// be read, Probe tells whether only that blob is affected.
func (s *Store) Probe(ctx context.Context) error {
	if _, err := s.Put(ctx, probeKey, strings.NewReader(probeKey)); err != nil {
		return err
	}
	r, err := s.Get(ctx, probeKey)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

// Close closes the store. Close invalidates open readers from a bucket, but not open readers from a folder store.
func (s *Store) Close() error { return s.b.close() }

// CheckKey returns an error unless key is valid: 1 to MaxKey characters of a-z, 0-9, "_", "-", "." and "/". No path
// segment of a key may be empty or begin with a dot.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("blob key has %d characters, must have 1 to %d", len(key), MaxKey)
	}
	if err := checkRunes(key); err != nil {
		return err
	}
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part[0] == '.' {
			return fmt.Errorf("blob key %q has a part that is empty or begins with a dot", key)
		}
	}
	return nil
}

func checkRunes(key string) error {
	for _, c := range key {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("_-./", c) {
			return fmt.Errorf("blob key %.300q has the character %q; only a-z, 0-9, _, -, . and / may be used", key, c)
		}
	}
	return nil
}

// source wraps the reader that was passed to Put. A source counts bytes, and its Read fails when the context ends.
// Errors from the wrapped reader are marked, so that an ENOSPC error from that reader is not mistaken for a full disk
// in the store.
type source struct {
	ctx context.Context
	r   io.Reader
	n   int64
}

func (s *source) Read(p []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, &sourceError{err}
	}
	n, err := s.r.Read(p)
	s.n += int64(n)
	if err != nil && err != io.EOF {
		err = &sourceError{err}
	}
	return n, err
}

type sourceError struct{ err error }

func (e *sourceError) Error() string { return "read content: " + e.err.Error() }
func (e *sourceError) Unwrap() error { return e.err }
