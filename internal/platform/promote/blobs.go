package promote

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/postrider/postrider/internal/platform/blob"
)

const (
	blobTries = 5  // maximum number of passes before the pause
	fewBlobs  = 50 // number of new blobs in a pass that is small enough to pause the node
)

// copyBlobs copies the blobs to the new store, until few new ones come.
func (m *move) copyBlobs(ctx context.Context) error {
	if m.NewBlobs == nil {
		return nil
	}
	m.known = map[string]int64{}
	err := m.NewBlobs.List(ctx, "", func(i blob.Info) error {
		m.known[i.Key] = i.Size
		return nil
	})
	if err != nil {
		return fmt.Errorf("list the blobs in the new place: %w", err)
	}
	for range blobTries {
		before := m.report.Blobs
		if err := m.copyNewBlobs(ctx); err != nil {
			return err
		}
		if m.report.Blobs-before < fewBlobs {
			break
		}
	}
	m.Say("%d blobs are in the new place", len(m.known))
	return nil
}

// copyNewBlobs copies the blobs that the new store does not have.
func (m *move) copyNewBlobs(ctx context.Context) error {
	if m.NewBlobs == nil {
		return nil
	}
	said := time.Now()
	return m.Blobs.List(ctx, "", func(i blob.Info) error {
		if size, ok := m.known[i.Key]; ok && size == i.Size {
			return nil
		}
		size, err := m.copyBlob(ctx, i.Key)
		if errors.Is(err, blob.ErrNotFound) {
			return nil // it was deleted meanwhile
		}
		if err != nil {
			return fmt.Errorf("copy blob %s: %w", i.Key, err)
		}
		m.known[i.Key] = size
		m.report.Blobs++
		if time.Since(said) > sayEvery {
			m.Say("copied %d blobs", m.report.Blobs)
			said = time.Now()
		}
		return nil
	})
}

// copyBlob copies a blob, reads the copy, and compares the checksums.
func (m *move) copyBlob(ctx context.Context, key string) (int64, error) {
	r, err := m.Blobs.Get(ctx, key)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	wrote, read := sha256.New(), sha256.New()
	size, err := m.NewBlobs.Put(ctx, key, io.TeeReader(r, wrote))
	if err != nil {
		return 0, err
	}
	copied, err := m.NewBlobs.Get(ctx, key)
	if err != nil {
		return 0, fmt.Errorf("read the copy: %v", err) // not ErrNotFound, which means that the original is gone
	}
	defer copied.Close()
	if _, err := io.Copy(read, copied); err != nil {
		return 0, fmt.Errorf("read the copy: %w", err)
	}
	if string(wrote.Sum(nil)) != string(read.Sum(nil)) {
		return 0, errors.New("the copy differs from the original")
	}
	return size, nil
}
