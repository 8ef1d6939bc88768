package receiving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errNoMemory means that there was no memory for a large message in time.
var errNoMemory = errors.New("too many large messages are in memory")

// load reads a blob of a known size once there is memory for working on it. The caller releases that memory. owner is
// the network or the team that it counts for; none of them can use all of it. load fails with errNoMemory after
// patience, with the cause of ctx if that ends first, or with the error of the blob store. Callers must convert these
// errors: to SMTP replies when receiving, and to faults when reading (see unread).
func (s *Service) load(ctx context.Context, key string, size int64, owner string, patience time.Duration) (
	[]byte, *reservation, error) {
	wait, cancel := context.WithTimeoutCause(ctx, patience, errNoMemory)
	defer cancel()
	m := &reservation{s: s, owner: owner, octets: min(size*memoryFactor, s.c.Memory)}
	if err := s.memory.Acquire(wait, owner, m.octets); err != nil {
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

// reservation is memory that was acquired. A nil *reserved holds none.
type reservation struct {
	s      *Service
	owner  string
	octets int64
}

// shrink releases what exceeds n octets.
func (m *reservation) shrink(n int64) {
	if m != nil && n < m.octets {
		m.s.memory.Release(m.owner, m.octets-n)
		m.octets = n
	}
}

// downloadBody is content that occupies memory until it is closed.
type downloadBody struct {
	io.Reader
	memory *reservation
}

// Close releases the memory.
func (h downloadBody) Close() error { h.memory.shrink(0); return nil }
