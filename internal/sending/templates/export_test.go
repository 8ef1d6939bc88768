package templates

// Held returns how many bytes a team's results occupy that were not closed.
func (s *Service) Held(teamID string) int64 {
	return s.memory.stored.Held(teamID) + s.memory.rendered.Held(teamID)
}

// MemoryCost is the memory that is reserved for one byte of large texts.
const MemoryCost = memoryCost
