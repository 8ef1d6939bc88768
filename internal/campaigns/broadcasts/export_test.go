package broadcasts

import "time"

// SetAudienceTimeout limits how long Send looks for a contact.
func (s *Service) SetAudienceTimeout(d time.Duration) { s.audienceTimeout = d }
