package contacts

import (
	"cmp"
	"context"
	"time"
)

// SetCountAtOnce has segments of more than n contacts counted rarely.
func (s *Service) SetCountAtOnce(n int) { s.counts.directLimit = n }

// SetParts has contacts gone through in parts of some size, and sets looked for where they are worth some parts.
func (s *Service) SetParts(size, worth int) {
	s.limits.partSize, s.limits.comparisons, s.limits.minPart, s.limits.maxRulePart = size, size, size, size
	s.limits.setsCost = worth
}

// SetTimes limits how long requests wait for a place and may then read, and how long counts beside them may; 0 leaves
// it as it is.
func (s *Service) SetTimes(wait, read, count time.Duration) {
	s.limits.wait, s.limits.read = cmp.Or(wait, s.limits.wait), cmp.Or(read, s.limits.read)
	s.limits.count = cmp.Or(count, s.limits.count)
}

// SetPatience limits how long what nobody waits for waits for a place.
func (s *Service) SetPatience(d time.Duration) { s.limits.backgroundWait = d }

// SetPreview limits how long it may take to count who of an audience is mailed.
func (s *Service) SetPreview(d time.Duration) { s.limits.preview = d }

// Forgive has the filters that took too long tried again, as when the time of their rest is over.
func (s *Service) Forgive() {
	for name := range s.slow.until {
		s.slow.until[name] = time.Time{}
	}
}

const CountQueue = countQueue

// RenewNext renews the count of the next segment, as Run does, and reports false if there is none.
func (s *Service) RenewNext(ctx context.Context) bool {
	teamID, segmentID := s.counts.next()
	if segmentID == "" {
		return false
	}
	s.renewCount(ctx, teamID, segmentID)
	return true
}

// Counted is how many teams' segments are counted now, or wait for a place.
func (s *Service) Counted() int {
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	return len(s.counts.active)
}

// HoldCounts keeps counts from running until end is called.
func (s *Service) HoldCounts() (end func()) {
	s.counts.running <- struct{}{}
	return func() { <-s.counts.running }
}
