package broadcasts

import "time"

// SetAudienceTimeout sets the time limit within which Send searches for the first contact in the audience.
func (s *Service) SetAudienceTimeout(d time.Duration) { s.audienceTimeout = d }

// Best returns the winner of an A/B test and whether it is significant.
func Best(all []Tally, by Metric) (winner int, yes bool) {
	winner, s := best(all, by)
	return winner, s == significant
}

// StateName returns the state of a recipient that a number in the database stands for.
func StateName(number int16) (string, error) {
	name, err := states.Name(number)
	return string(name), err
}

// Numbers returns the numbers that the database has for states and types of bounces.
func Numbers() map[string]int16 {
	all := map[string]int16{}
	for _, s := range []state{waiting, sent, delivered, bounced, failed, suppressed, canceled, leftOut} {
		all[string(s)] = states.Number(s)
	}
	for _, b := range []string{"", "permanent", "transient", "undetermined"} {
		all["bounce "+b] = bounceTypes.Number(b)
	}
	return all
}
