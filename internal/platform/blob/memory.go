package blob

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"time"
)

// memory is an in-memory store, for tests and for trying out Postrider.
type memory struct {
	mu    sync.RWMutex
	blobs map[string]memoryBlob // blobs by key; nil once the store is closed
}

var errClosed = errors.New("the store is closed")

type memoryBlob struct {
	content  []byte // never changes
	modified time.Time
}

func openMemory() *Store {
	return &Store{b: &memory{blobs: map[string]memoryBlob{}}}
}

func (m *memory) put(_ context.Context, key string, r *source) (int64, error) {
	content, err := io.ReadAll(r)
	if err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blobs == nil {
		return 0, errClosed
	}
	m.blobs[key] = memoryBlob{content, time.Now()}
	return r.n, nil
}

func (m *memory) get(_ context.Context, key string) (io.ReadCloser, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.blobs == nil {
		return nil, errClosed
	}
	b, ok := m.blobs[key]
	if !ok {
		return nil, ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(b.content)), nil
}

func (m *memory) remove(_ context.Context, key string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.blobs == nil {
		return errClosed
	}
	delete(m.blobs, key)
	return nil
}

// list calls fn without holding the lock, because fn may delete blobs.
func (m *memory) list(ctx context.Context, prefix string, fn func(Info) error) error {
	m.mu.RLock()
	if m.blobs == nil {
		m.mu.RUnlock()
		return errClosed
	}
	var found []Info
	for key, b := range m.blobs {
		if strings.HasPrefix(key, prefix) {
			found = append(found, Info{Key: key, Size: int64(len(b.content)), Modified: b.modified})
		}
	}
	m.mu.RUnlock()
	for _, info := range found {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := fn(info); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (m *memory) close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.blobs = nil
	return nil
}
