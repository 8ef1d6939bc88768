package blob

import (
	"context"
	"errors"
	"fmt"
	"io"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/memblob" // mem:// URLs.
	_ "gocloud.dev/blob/s3blob"  // s3:// URLs.
	"gocloud.dev/gcerrors"
)

// bucket is a store in a bucket. Whether a write is durable once it is answered depends on the bucket.
type bucket struct {
	b *blob.Bucket
}

func openBucket(ctx context.Context, url string) (*Store, error) {
	b, err := blob.OpenBucket(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("open bucket: %w", err)
	}
	return &Store{b: &bucket{b: b}}, nil
}

// put uploads. Close stores the blob even after a failed write, unless the context has ended; hence the cancel before
// it. (Bucket.Upload lacks this, and stores what was read until the error.)
func (b *bucket) put(ctx context.Context, key string, r *source) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// An explicit content type avoids sniffing; no client reads from the bucket directly.
	w, err := b.b.NewWriter(ctx, key, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		return 0, err
	}
	if _, err := io.Copy(w, r); err != nil {
		cancel()
		return 0, errors.Join(err, ignoreCanceled(w.Close()))
	}
	return r.n, w.Close()
}

// ignoreCanceled drops the error that a writer reports because its context was canceled on purpose.
func ignoreCanceled(err error) error {
	if errors.Is(err, context.Canceled) || gcerrors.Code(err) == gcerrors.Canceled {
		return nil
	}
	return err
}

func (b *bucket) get(ctx context.Context, key string) (io.ReadCloser, error) {
	r, err := b.b.NewReader(ctx, key, nil)
	if err != nil {
		return nil, absent(err)
	}
	return r, nil
}

func (b *bucket) remove(ctx context.Context, key string) error {
	return absent(b.b.Delete(ctx, key))
}

func (b *bucket) list(ctx context.Context, prefix string, fn func(Info) error) error {
	it := b.b.List(&blob.ListOptions{Prefix: prefix})
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		o, err := it.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list blobs: %w", err)
		}
		if err := fn(Info{Key: o.Key, Size: o.Size, Modified: o.ModTime}); err != nil {
			return err
		}
	}
}

func (b *bucket) close() error { return b.b.Close() }

func absent(err error) error {
	if gcerrors.Code(err) == gcerrors.NotFound {
		return ErrNotFound
	}
	return err
}
