package partitions

import "context"

// MoveAtMost sets the maximum number of rows of a table that one transaction moves.
func (s *Service) MoveAtMost(n int) { s.most = n }

// Learn does once what Run does every ten minutes.
func (s *Service) Learn(ctx context.Context) error { return s.learn(ctx) }
