package receiving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errNoMemory means that a large message got no memory in time.
var errNoMemory = errors.New("too many large messages are in memory")

// load reads a blob of a known size when there is memory for processing it. The caller releases that memory. owner is
// the network or team that the memory counts for; no owner can use all of it. load fails with errNoMemory after
// patience, with the cause of ctx, or with the error of the blob store. Callers convert these errors: to SMTP replies
// when receiving, and to faults when reading (see readError).
func (s *Service) load(ctx context.Context, key string, size int64, owner string, patience time.Duration) (
	[]byte, *reservation, error) {
	wait, cancel := context.WithTimeoutCause(ctx, patience, errNoMemory)
	defer cancel()
	m := &reservation{s: s, owner: owner, bytes: min(size*memoryFactor, s.c.Memory)}
	if err := s.memory.Acquire(wait, owner, m.bytes); err != nil {
		return nil, nil, fmt.Errorf("wait for memory for raw message %s: %w", key, err)
	}
	raw := make([]byte, size)
	rc, err := s.p.Blobs.Get(ctx, key)
	if err == nil {
		defer rc.Close()
		_, err = io.ReadFull(rc, raw)
	}
	if err != nil {
		m.shrink(0)
		return nil, nil, fmt.Errorf("read raw message %s: %w", key, err)
	}
	return raw, m, nil
}

// reservation is acquired memory. A nil *reservation holds none.
type reservation struct {
	s     *Service
	owner string
	bytes int64
}

// shrink releases all but n bytes.
func (m *reservation) shrink(n int64) {
	if m != nil && n < m.bytes {
		m.s.memory.Release(m.owner, m.bytes-n)
		m.bytes = n
	}
}

// downloadBody is content that occupies memory until it is closed.
type downloadBody struct {
	io.Reader
	memory *reservation
}

// Close releases the memory.
func (h downloadBody) Close() error { h.memory.shrink(0); return nil }
