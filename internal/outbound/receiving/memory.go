package receiving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errNoMemory means that no memory became available in time for a large message.
var errNoMemory = errors.New("too many large messages are in memory")

// load waits for enough memory to process a blob of a known size, and then reads the blob. The caller of load must
// release the memory. The memory is charged to owner, which is a network or team; no owner can use all the memory. If
// not enough memory becomes available within the given time, load fails with errNoMemory. Callers convert load's error
// to an SMTP reply when they receive mail, and to a fault when they read stored mail (see readError).
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

// reservation is memory that was acquired for a large message. A nil *reservation holds no memory.
type reservation struct {
	s     *Service
	owner string
	bytes int64
}

// shrink releases all but n bytes of the reservation.
func (m *reservation) shrink(n int64) {
	if m != nil && n < m.bytes {
		m.s.memory.Release(m.owner, m.bytes-n)
		m.bytes = n
	}
}

// downloadBody is the content of a download; it occupies memory until it is closed.
type downloadBody struct {
	io.Reader
	memory *reservation
}

// Close releases the download's memory.
func (h downloadBody) Close() error { h.memory.shrink(0); return nil }
