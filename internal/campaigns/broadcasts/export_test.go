package broadcasts

import "time"

// SetAudienceTimeout sets how long Send may look for a contact of the audience.
func (s *Service) SetAudienceTimeout(d time.Duration) { s.audienceTimeout = d }
