package domains

// SetZonesMax sets the number of domains that may have names in zones.
func (s *Service) SetZonesMax(n int) { s.zonesMax = n }
