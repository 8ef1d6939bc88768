package contacts

import (
	"cmp"
	"context"
	"time"
)

// SetCountAtOnce sets the largest segment size that is counted on each request.
func (s *Service) SetCountAtOnce(n int) { s.counts.directLimit, s.counts.usageLimit = n, n }

// SetParts sets the number of contacts in a part, and the estimated cost, in parts, of finding contacts through the
// indexes on values.
func (s *Service) SetParts(size, worth int) {
	s.limits.partSize, s.limits.comparisons, s.limits.minPart, s.limits.maxRulePart = size, size, size, size
	s.limits.setsCost = worth
}

// SetTimes sets how long requests may wait for a read slot, how long they may read, and how long background counts may
// read; 0 keeps the current limit.
func (s *Service) SetTimes(wait, read, count time.Duration) {
	s.limits.wait, s.limits.read = cmp.Or(wait, s.limits.wait), cmp.Or(read, s.limits.read)
	s.limits.count = cmp.Or(count, s.limits.count)
}

// SetPatience limits how long background work waits for a read slot.
func (s *Service) SetPatience(d time.Duration) { s.limits.backgroundWait = d }

// SetPreview limits how long CountRefused may take.
func (s *Service) SetPreview(d time.Duration) { s.limits.preview = d }

// Forgive lets filters that took too long be tried again immediately.
func (s *Service) Forgive() {
	for name := range s.slow.until {
		s.slow.until[name] = time.Time{}
	}
}

const CountQueue = countQueue

// RenewNext counts the next queued segment, as Run does, and returns false if no segment is queued.
func (s *Service) RenewNext(ctx context.Context) bool {
	teamID, segmentID := s.counts.next()
	if segmentID == "" {
		return false
	}
	s.renewCount(ctx, teamID, segmentID)
	return true
}

// Counted returns the number of teams that have a segment being counted or waiting for a read slot.
func (s *Service) Counted() int {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	return len(s.counts.active)
}

// HoldCounts keeps background counts from running until the returned function is called.
func (s *Service) HoldCounts() (end func()) {
	s.counts.running <- struct{}{}
	return func() { <-s.counts.running }
}
