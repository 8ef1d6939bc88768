package broadcasts

import "time"

// SetAudienceTimeout sets the time limit for the search in Send for the first contact in the audience.
func (s *Service) SetAudienceTimeout(d time.Duration) { s.audienceTimeout = d }
