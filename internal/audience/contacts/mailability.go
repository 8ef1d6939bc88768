package contacts

import (
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// AudienceMember is a contact at the time when an email to it is enqueued.
type AudienceMember struct {
	ID, Address string
	Refused     Refusal // why it may not be mailed; "" if it may
}

// AudienceMembers returns, by id, which of some contacts still exist, with their address and whether they may be
// mailed. topicID is the topic of the email, "" for a broadcast or an automation without one. It is for transactions
// that enqueue emails to contacts that were read earlier. If the team does not have the topic, it returns an Invalid
// fault for the field topic_id, unless none of the contacts exists.
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

// RefusedContact is [Service.Refused] for an email that was enqueued for a contact. topicID is "" for a broadcast or an
// automation without a topic.
//
// While the contact exists, its own choices decide, whatever its address is now. If another contact has one of the
// addresses now and is unsubscribed or opted out, that address is refused too. If the contact was deleted, or contactID
// is "", the addresses decide.
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
