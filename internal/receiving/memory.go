package receiving

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// errNoMemory says that there was no memory for a large message in time.
var errNoMemory = errors.New("too many large messages are in memory")

// load reads a blob of a known size once there is memory for working on it, which whoever asked gives back. owner is
// for whom: a network or a team, of which none can use up all the memory. It fails with errNoMemory when there is none
// after patience, with the cause of ctx when that ends first, and else with what the blob store said. None of these is
// an answer: who takes mail makes SMTP replies of them, and who reads it faults (see unread).
func (s *Service) load(ctx context.Context, key string, size int64, owner string, patience time.Duration) (
	[]byte, *reserved, error) {
	wait, cancel := context.WithTimeoutCause(ctx, patience, errNoMemory)
	defer cancel()
	m := &reserved{s: s, owner: owner, octets: min(size*memoryFactor, s.c.Memory)}
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

// reserved is memory that somebody has. Nil is none.
type reserved struct {
	s      *Service
	owner  string
	octets int64
}

// shrink gives back what is more than n octets.
func (m *reserved) shrink(n int64) {
	if m != nil && n < m.octets {
		m.s.memory.Release(m.owner, m.octets-n)
		m.octets = n
	}
}

// held is content that takes memory until it is closed.
type held struct {
	io.Reader
	memory *reserved
}

// Close gives the memory back.
func (h held) Close() error { h.memory.shrink(0); return nil }
