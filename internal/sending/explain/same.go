package explain

import (
	"fmt"

	"github.com/postrider/postrider/internal/sending/evidence"
)

// SameAnswer says how many other attempts got the same kind of answer from the same provider or host. The numbers are
// lower bounds, because a node counts only its own attempts since it started.
type SameAnswer struct {
	Own    int    `json:"your_attempts" doc:"The least number of other attempts of your team in the hour before."`
	Others *int   `json:"other_attempts" nullable:"true" doc:"The least number of attempts of other teams in the hour before, rounded down; null if fewer than 10 other teams were concerned."`
	Teams  *int   `json:"other_teams" nullable:"true" doc:"The least number of other teams, rounded down; null if fewer than 10."`
	Says   string `json:"says"`
}

// same returns the numbers that were recorded with the attempt, or nil. The meaning is that of the attempt's reply.
func (t *Try) same(m ReplyMeaning) *SameAnswer {
	if t.Evidence == nil || t.Evidence.Trouble == nil || !t.Evidence.Trouble.Same.Counted {
		return nil
	}
	n := t.Evidence.Trouble.Same
	s := &SameAnswer{Own: n.Own, Says: "No other attempt of your team got the same kind of answer in the hour before."}
	if n.Own > 0 {
		s.Says = fmt.Sprintf("At least %s of your team got the same kind of answer in the hour before.",
			counted(n.Own, "other attempt"))
	}
	if n.Teams >= evidence.OthersMin {
		s.Others, s.Teams = &n.Others, &n.Teams
		s.Says += fmt.Sprintf(" At least %s of %d other teams got it too.", counted(n.Others, "attempt"), n.Teams)
		if m.Blames == BlamesHost || m.Blames == BlamesSource {
			s.Says += " The cause is therefore probably not your email."
		}
	}
	return s
}
