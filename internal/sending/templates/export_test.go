package templates

// Held returns the number of bytes reserved for results of a team that are not closed yet.
func (s *Service) Held(teamID string) int64 {
	return s.memory.stored.Held(teamID) + s.memory.rendered.Held(teamID)
}

// MemoryCost is the number of bytes of memory reserved for each byte of a large text.
const MemoryCost = memoryCost
