package contacts

import (
	"cmp"
	"context"
	"time"
)

// SetCountAtOnce sets the size up to which segments are counted on each request.
func (s *Service) SetCountAtOnce(n int) { s.counts.directLimit = n }

// SetParts sets the size of parts, and the cost of sets in parts.
func (s *Service) SetParts(size, worth int) {
	s.limits.partSize, s.limits.comparisons, s.limits.minPart, s.limits.maxRulePart = size, size, size, size
	s.limits.setsCost = worth
}

// SetTimes limits how long requests wait for a slot and may read, and how long background counts may read; 0 keeps a
// limit.
func (s *Service) SetTimes(wait, read, count time.Duration) {
	s.limits.wait, s.limits.read = cmp.Or(wait, s.limits.wait), cmp.Or(read, s.limits.read)
	s.limits.count = cmp.Or(count, s.limits.count)
}

// SetPatience limits how long background work waits for a slot.
func (s *Service) SetPatience(d time.Duration) { s.limits.backgroundWait = d }

// SetPreview limits how long CountRefused may take.
func (s *Service) SetPreview(d time.Duration) { s.limits.preview = d }

// Forgive lets filters that took too long be tried again at once.
func (s *Service) Forgive() {
	for name := range s.slow.until {
		s.slow.until[name] = time.Time{}
	}
}

const CountQueue = countQueue

// RenewNext renews the count of the next segment, as Run does, and returns false if none waits.
func (s *Service) RenewNext(ctx context.Context) bool {
	teamID, segmentID := s.counts.next()
	if segmentID == "" {
		return false
	}
	s.renewCount(ctx, teamID, segmentID)
	return true
}

// Counted returns how many teams have a segment that is being counted or waits for a slot.
func (s *Service) Counted() int {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	return len(s.counts.active)
}

// HoldCounts prevents counts from running until end is called.
func (s *Service) HoldCounts() (end func()) {
	s.counts.running <- struct{}{}
	return func() { <-s.counts.running }
}
