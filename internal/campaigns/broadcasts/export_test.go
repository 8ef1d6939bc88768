package broadcasts

import "time"

// SetAudienceTimeout sets the time limit within which Send searches for the first contact in the audience.
func (s *Service) SetAudienceTimeout(d time.Duration) { s.audienceTimeout = d }

// Best returns the winner of an A/B test and whether it is significant.
func Best(all []Tally, by Metric) (winner int, yes bool) {
	winner, s := best(all, by)
	return winner, s == significant
}
