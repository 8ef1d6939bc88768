// Package blob keeps raw messages and attachments: bytes under a key, in a folder or in a bucket.
//
// Invariants: when Put has returned, the blob survives a power cut. A blob is whole or absent: a reader never sees part
// of one. Putting a key again replaces the blob at once; of concurrent Puts of one key, one wins whole. Blobs
// of a folder can be read by its owner only.
//
// Failure: a Put that fails leaves the key as it was. ErrFull says that the disk is full or a quota is used up:
// whoever accepts mail answers "later" then. A crash may leave temporary files, which Open sweeps after a day, and may
// undo a Delete: who deletes must be able to do so again.
//
// Not here: who may read what, for how long a blob is kept, sizes allowed (the caller bounds its reader), encryption.
//
// The folder is our own and not gocloud.dev's, which does not fsync and so may lose what was accepted.
package blob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"
)

// ErrNotFound says that there is no blob of the key.
var ErrNotFound = errors.New("blob not found")

// ErrFull says that the disk is full or the quota used up. Nothing was stored.
var ErrFull = errors.New("no space left for blobs")

// MaxKey is the greatest length of a key: it fits into a file name everywhere.
const MaxKey = 240

// Info describes a blob that List found.
type Info struct {
	Key      string
	Size     int64 // bytes
	Modified time.Time
}

// Store is an open folder or bucket. It is safe for concurrent use.
type Store struct {
	b backend
}

// backend is a folder or a bucket. Keys are valid when they get here.
type backend interface {
	put(ctx context.Context, key string, r *source) (int64, error)
	get(ctx context.Context, key string) (io.ReadCloser, error)
	remove(ctx context.Context, key string) error
	list(ctx context.Context, prefix string, fn func(Info) error) error
	close() error
}

// Open opens a place for blobs. A plain path or a file:// URL is a folder, made when it is absent; s3://bucket is an
// S3 bucket, with region, endpoint, prefix and the like as query parameters as gocloud.dev/blob/s3blob has them; mem://
// forgets all when it is closed.
func Open(ctx context.Context, where string) (*Store, error) {
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
	case "s3", "mem":
		return openBucket(ctx, where)
	}
	return nil, fmt.Errorf("blob store: unknown scheme %q; use a path, file://, s3:// or mem://", scheme)
}

// Put stores what r gives under key, and returns how many bytes that were. An error of r comes back wrapped.
func (s *Store) Put(ctx context.Context, key string, r io.Reader) (int64, error) {
	if err := CheckKey(key); err != nil {
		return 0, err
	}
	n, err := s.b.put(ctx, key, &source{ctx: ctx, r: r})
	if err != nil {
		return 0, fmt.Errorf("put blob %s: %w", key, err)
	}
	return n, nil
}

// Get opens a blob for reading, or returns ErrNotFound; other errors say that the store is away. The caller closes it.
// Replacing or deleting the blob meanwhile does not disturb a reader of a folder; one of a bucket may fail.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	rc, err := s.b.get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("get blob %s: %w", key, err)
	}
	return rc, nil
}

// Delete removes a blob. That there is none is no error: deleting twice is the same as once.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := s.b.remove(ctx, key); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("delete blob %s: %w", key, err)
	}
	return nil
}

// List calls fn for each blob whose key begins with prefix, in no particular order, until fn fails, and returns that
// error. fn may delete blobs. A folder is walked as a whole whatever the prefix: List is for sweeping, not for requests.
func (s *Store) List(ctx context.Context, prefix string, fn func(Info) error) error {
	if err := checkRunes(prefix); err != nil {
		return err
	}
	return s.b.list(ctx, prefix, fn)
}

// sweepPage is how many keys Sweep asks about at once.
const sweepPage = 500

// Sweep deletes the blobs whose key begins with prefix, that were written before a time, and that nobody uses. used
// returns those of its keys, at most 500, that are in use; it is asked once for each page of blobs, and not for each
// blob. Whoever writes a blob and says only later that it is used needs a time that is long before the present.
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

// Close lets go of the store; readers that are open stay usable for a folder only.
func (s *Store) Close() error { return s.b.close() }

// CheckKey reports what is wrong with a key: it has 1 to MaxKey characters of a-z, 0-9, "_", "-", "." and "/", which
// parts it; no part is empty or begins with a dot.
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

// source is the reader of a Put. It ends with the context, counts, and marks its errors as its own, so that a full
// disk somewhere else is not taken for ours.
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
