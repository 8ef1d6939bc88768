package broadcasts

import "time"

// SetAudienceTimeout sets the time limit within which Send searches for the first contact in the audience.
func (s *Service) SetAudienceTimeout(d time.Duration) { s.audienceTimeout = d }
