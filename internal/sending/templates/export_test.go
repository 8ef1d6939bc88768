package templates

// Held returns the number of bytes reserved for a team's results that have not been closed yet.
func (s *Service) Held(teamID string) int64 {
	return s.memory.stored.Held(teamID) + s.memory.rendered.Held(teamID)
}

// MemoryCost is the number of bytes of memory reserved per byte of a large text.
const MemoryCost = memoryCost
