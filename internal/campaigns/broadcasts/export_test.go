package broadcasts

import "time"

// SetAudienceTimeout sets the maximum time that Send searches for a first contact of the audience.
func (s *Service) SetAudienceTimeout(d time.Duration) { s.audienceTimeout = d }
