package contacts

import (
	"context"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// AudienceMember is the state of a contact at the time when an email to the contact is enqueued.
type AudienceMember struct {
	ID, Address string
	Refused     Refusal // why it may not be mailed; "" if it may
}

// AudienceMembers returns a map, by id, of the given contacts that still exist, with their addresses and whether they
// may be mailed. The parameter topicID is the email's topic, or "" for a broadcast or automation without a topic. A
// transaction calls AudienceMembers when it enqueues emails to contacts that were read earlier. If the team has no such
// topic but at least one of the contacts exists, AudienceMembers returns an Invalid fault for the topic_id field.
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

// RefusedContact is like [Service.Refused], but for an email that was enqueued for a contact. The parameter topicID is
// "" for a broadcast or automation without a topic.
//
// If the contact exists, its own subscriptions determine whether it may be mailed, even if its address has changed. If
// another contact now has one of the addresses and is unsubscribed or opted out, that address is also refused. If the
// contact has been deleted, every address is refused, even if a new contact has it, because the choices of the
// deleted contact are no longer known. If contactID is "", only the contacts that have the addresses count.
func (s *Service) RefusedContact(ctx context.Context, r db.Reader, teamID, topicID, contactID string,
	addresses []string) (map[string]Refusal, error) {
	if topicID = strings.ToLower(topicID); topicID != "" && !id.Valid(topicID) {
		return nil, UnknownTopic()
	}
	if contactID == "" && topicID != "" {
		return s.Refused(ctx, r, teamID, topicID, addresses)
	}
	all, err := mailabilityAt(ctx, r, teamID, topicID, contactID, addresses)
	if err != nil {
		return nil, err
	}
	refused := map[string]Refusal{}
	at := slices.IndexFunc(all, func(c mailability) bool { return c.id == contactID })
	if at < 0 && contactID != "" {
		for _, address := range addresses {
			refused[address] = Deleted
		}
		return refused, nil
	}
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
