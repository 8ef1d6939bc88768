package contacts

import (
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Current is what a contact is when an email is entered for it.
type AudienceMember struct {
	ID, Address string
	Refused     Refusal // why it may not be mailed, "" if it may
}

// AudienceMembers returns those of some contacts that the team still has, by their ids, and whether they may be mailed about a
// topic, or by a broadcast or an automation without one if topicID is "". It is for transactions that enter emails for
// contacts that were read before. Nobody else has the address of one then, because each is one contact's. A topic that
// the team does not have is an Invalid fault for the field topic_id, unless the team has none of the contacts either.
func (s *Service) AudienceMembers(ctx context.Context, r db.Reader, teamID, topicID string, contactIDs []string) (
	map[string]AudienceMember, error) {
	found := make(map[string]AudienceMember, len(contactIDs))
	topicID = strings.ToLower(topicID)
	for some := range slices.Chunk(contactIDs, 500) {
		all, err := mailabilityByID(ctx, r, teamID, topicID, some)
		if err != nil {
			return nil, err
		}
		for _, c := range all {
			if c.byDefault == "" {
				return nil, UnknownTopic()
			}
			found[c.id] = AudienceMember{c.id, c.address, refusal(c.byDefault, c.chosen, c.unsubscribed)}
		}
	}
	return found, nil
}

// RefusedContact is [Service.Refused] for an email that was entered for a contact, about a topic or, if topicID is "",
// by a broadcast or an automation without one. As long as the contact exists it decides, whatever its address is by now;
// but who has one of the addresses now, and is unsubscribed or has opted out, is not mailed there either. Once the
// contact was deleted, or if contactID is "", the addresses decide.
func (s *Service) RefusedContact(ctx context.Context, r db.Reader, teamID, topicID, contactID string,
	addresses []string) (map[string]Refusal, error) {
	if topicID = strings.ToLower(topicID); topicID != "" && !id.Valid(topicID) {
		return nil, UnknownTopic()
	}
	all, err := mailabilityAt(ctx, r, teamID, topicID, contactID, addresses)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(all, func(c mailability) bool { return c.id == contactID })
	if at < 0 && topicID != "" {
		return s.Refused(ctx, r, teamID, topicID, addresses)
	}
	refused := map[string]Refusal{}
	for _, c := range all {
		switch {
		case c.byDefault == "":
			return nil, UnknownTopic()
		case c.id == contactID:
		case c.unsubscribed:
			refused[c.address] = Unsubscribed
		case c.chosen == OptOut:
			refused[c.address] = OptedOut
		}
	}
	if at < 0 {
		return refused, nil
	}
	if why := refusal(all[at].byDefault, all[at].chosen, all[at].unsubscribed); why != "" {
		for _, address := range addresses {
			refused[address] = why
		}
	}
	return refused, nil
}
