package partitions

import (
	"context"
	"time"
)

// MoveAtMost sets the maximum number of rows of a table that one transaction moves.
func (s *Service) MoveAtMost(n int) { s.most = n }

// Learn does once what Run does every ten minutes.
func (s *Service) Learn(ctx context.Context) error {
	_, err := s.learn(ctx)
	return err
}

// NextPause returns the pause after partitions were read on request.
func NextPause(last time.Duration, same bool) time.Duration { return nextPause(last, same) }
