package partitions

// MoveAtMost sets the maximum number of rows of a table that one transaction moves.
func (s *Service) MoveAtMost(n int) { s.most = n }
