package contacts

// SetCountAtOnce has segments of more than n contacts counted rarely.
func (s *Service) SetCountAtOnce(n int) { s.counting.atOnce = n }
