package templates

// Held returns how many bytes the unclosed results of a team occupy.
func (s *Service) Held(teamID string) int64 {
	return s.memory.stored.Held(teamID) + s.memory.rendered.Held(teamID)
}

// MemoryCost is the memory reserved for one byte of large texts.
const MemoryCost = memoryCost
