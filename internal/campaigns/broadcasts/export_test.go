package broadcasts

import "time"

// SetLook limits how long Send looks for a contact.
func (s *Service) SetLook(d time.Duration) { s.look = d }
