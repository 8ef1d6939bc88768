package contacts

import (
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/db"
)

// UnsubscribedAmong returns those of some addresses, in lower case, whose contacts are unsubscribed from broadcasts,
// each with the reason for which it is not mailed.
func (s *Service) UnsubscribedAmong(ctx context.Context, r db.Reader, teamID string, addresses []string) (
	map[string]Refusal, error) {
	refused := map[string]Refusal{}
	for some := range slices.Chunk(addresses, 500) {
		if err := unsubscribedAmong(ctx, r, teamID, some, refused); err != nil {
			return nil, err
		}
	}
	return refused, nil
}

// CountRefused counts the contacts of an audience by why they would not be mailed about a topic, or by a broadcast
// without one if topicID is ""; "" is who would be. It reads the whole audience. A topic that the team does not have is
// an Invalid fault for the field topic_id.
func (s *Service) CountRefused(ctx context.Context, r db.Reader, teamID string, a Audience, topicID string) (
	map[string]int64, error) {
	of, err := s.audience(ctx, r, teamID, a)
	if err != nil {
		return nil, err
	}
	byDefault := OptIn
	if topicID = strings.ToLower(topicID); topicID != "" {
		if byDefault, _, err = chosenAmong(ctx, r, teamID, topicID, nil); err != nil {
			return nil, err
		}
	}
	all, err := countChoices(ctx, r, of, topicID)
	if err != nil {
		return nil, err
	}
	found := map[string]int64{}
	for _, c := range all {
		why := string(refusal(byDefault, c.chosen, c.unsubscribed))
		if c.suppressed {
			why = "suppressed"
		}
		found[why] += c.n
	}
	return found, nil
}
