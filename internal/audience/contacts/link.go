package contacts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// linkPurpose makes the token of an unsubscribe link invalid for any other purpose.
const linkPurpose = "unsubscribe"

// Link is what an unsubscribe link carries.
type Link struct {
	TeamID  string
	EmailID string // the email that has it, which may have been deleted since
	TopicID string // of that email; "" if it has none
	// ContactID is the contact that the email was sent to by a broadcast or an automation, which may have another address
	// by now; "" for other emails.
	ContactID string
	Address   string // of the email's recipient, in lower case
}

// Token returns the signed token of a link. It never expires: somebody may want to leave years later.
func (s *Service) Token(l Link) string {
	parts := []string{pack(l.TeamID), pack(l.EmailID), pack(l.TopicID), l.Address}
	if l.ContactID != "" {
		parts = append(parts, pack(l.ContactID))
	}
	return s.keys.Sign(linkPurpose, time.Time{}, parts...)
}

// ReadToken returns the link of a token. A token that was not made here or was altered is a NotFound fault.
func (s *Service) ReadToken(token string) (Link, error) {
	parts, err := s.keys.Verify(linkPurpose, token, time.Time{})
	if err != nil || len(parts) < 4 || len(parts) > 5 || parts[0] == "" || parts[3] == "" {
		return Link{}, fault.NotFoundf("There is nothing at this address.")
	}
	l := Link{TeamID: unpack(parts[0]), EmailID: unpack(parts[1]), TopicID: unpack(parts[2]), Address: parts[3]}
	if len(parts) == 5 {
		l.ContactID = unpack(parts[4])
	}
	return l, nil
}

// pack shortens an id to its 16 octets: links are long enough. What is no id is none.
func pack(text string) string {
	u, err := uuid.Parse(text)
	if err != nil {
		return ""
	}
	return string(u[:])
}

func unpack(octets string) string {
	u, err := uuid.FromBytes([]byte(octets))
	if err != nil {
		return ""
	}
	return u.String()
}

// Preferences is what the owner of a link may see and choose.
type Preferences struct {
	Unsubscribed bool
	Topics       []TopicSubscription // the link's own first

	hidden []TopicSubscription

	// What the owner of the link refuses, also where others had noted it before: an import undoes only what others noted.
	refusesAll bool
	refuses    []string // ids of topics, also of hidden ones
}

// topic returns a topic, nil if it is not among those to choose from, and whether the team has it at all.
func (p *Preferences) topic(topicID string) (t *TopicSubscription, exists bool) {
	for i := range p.Topics {
		if p.Topics[i].ID == topicID {
			return &p.Topics[i], true
		}
	}
	return nil, slices.ContainsFunc(p.hidden, func(t TopicSubscription) bool { return t.ID == topicID })
}

// Preferences returns what holds for the owner of a link: for the contact that its email was sent to, under whatever
// address, or else for the address.
func (s *Service) Preferences(ctx context.Context, l Link) (Preferences, error) {
	var at Contact
	err := noContact()
	if l.ContactID != "" {
		at, err = contactByID(ctx, s.d.Reader, l.TeamID, l.ContactID)
	}
	if fault.KindOf(err) == fault.NotFound {
		at, err = contactByAddress(ctx, s.d.Reader, l.TeamID, l.Address)
	}
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return Preferences{}, err
	}
	return preferences(ctx, s.d.Reader, l, &at)
}

// owner is a contact, or an address that may become one, for which the owner of a link chooses.
type owner struct {
	Contact
	found bool
}

// lockOwners returns for whom a link chooses, and keeps other transactions from changing them: the contact that its
// email was sent to, and the address of the email where that is not the contact's any more. Of a contact that was
// deleted, and of an email that was sent to none, the address alone is left.
func lockOwners(ctx context.Context, tx *db.Tx, l Link) (all []owner, err error) {
	if l.ContactID != "" {
		at, err := lockByID(ctx, tx, l.TeamID, l.ContactID)
		if err == nil {
			all = append(all, owner{at, true})
		} else if fault.KindOf(err) != fault.NotFound {
			return nil, err
		}
	}
	if len(all) > 0 && all[0].Address == l.Address {
		return all, nil
	}
	at, found, err := lockContact(ctx, tx, l.TeamID, l.Address)
	return append(all, owner{at, found}), err
}

// preferences returns what holds for a contact; the zero Contact is an address that is none.
func preferences(ctx context.Context, r db.Reader, l Link, at *Contact) (Preferences, error) {
	p := Preferences{Unsubscribed: at.Unsubscribed}
	all, err := subscriptions(ctx, r, l.TeamID, at.ID)
	if err != nil {
		return p, fmt.Errorf("read the subscriptions of a contact: %w", err)
	}
	for _, t := range all {
		switch {
		case !t.selectable():
			p.hidden = append(p.hidden, t)
		case t.ID == l.TopicID:
			p.Topics = slices.Insert(p.Topics, 0, t)
		default:
			p.Topics = append(p.Topics, t)
		}
	}
	return p, nil
}

// selectable reports whether a contact may choose the topic through a link.
func (t *TopicSubscription) selectable() bool {
	return t.Visibility == Public || t.Subscription == OptIn || t.chosen == OptOut && t.source != ""
}

// optedOutByTeam reports whether the contact was opted out by its team, or by an import.
func (t *TopicSubscription) optedOutByTeam() bool { return t.chosen == OptOut && t.source == "" }

// recordsRefusal reports whether the owner of the link refuses a topic that others had noted as refused.
func (p *Preferences) recordsRefusal(t *TopicSubscription) bool {
	return t.optedOutByTeam() && slices.Contains(p.refuses, t.ID)
}

// Selection is what the owner of a link chooses: of the topics that were shown, those to be subscribed to. Topics that
// were not shown stay as they are.
type Selection struct {
	Shown        []string
	Wanted       []string
	Unsubscribed bool
}

// Select writes a selection. It returns what held before and what holds now. Topics that the owner of the link may not
// choose are left as they are.
func (s *Service) Select(ctx context.Context, l Link, chosen Selection) (before, after Preferences, err error) {
	return s.choose(ctx, l, func(p *Preferences) {
		p.Unsubscribed, p.refusesAll = chosen.Unsubscribed, chosen.Unsubscribed
		for i := range p.Topics {
			t := &p.Topics[i]
			switch {
			case !slices.Contains(chosen.Shown, t.ID):
			case slices.Contains(chosen.Wanted, t.ID):
				t.Subscription = OptIn
			default:
				t.Subscription, p.refuses = OptOut, append(p.refuses, t.ID)
			}
		}
	})
}

// Unsubscribe opts the owner of a link out of its topic. Without a topic, or if the topic was deleted, the contact is
// unsubscribed from everything: it wants no more emails such as this one, and nothing else says which these are.
// Doing it again changes nothing. It returns what held before and what holds now.
func (s *Service) Unsubscribe(ctx context.Context, l Link) (before, after Preferences, err error) {
	return s.choose(ctx, l, func(p *Preferences) {
		switch t, exists := p.topic(l.TopicID); {
		case t != nil:
			t.Subscription, p.refuses = OptOut, []string{t.ID}
		case exists:
			p.refuses = []string{strings.ToLower(l.TopicID)}
		default:
			p.Unsubscribed, p.refusesAll = true, true
		}
	})
}

// choose writes what decide changes in the preferences of a link's owner, and that they refuse what others had noted
// before as refused. An address that is no contact becomes one if anything changes. If the contact has opted in too often
// lately, only what it opts out of is written, and the error is a TooFast fault.
//
// If the contact has another address than the email was sent to, the person leaves with both, and opts in with the new
// one alone: the old one may be somebody else's by now.
func (s *Service) choose(ctx context.Context, l Link, decide func(*Preferences)) (before, after Preferences,
	err error) {
	counted, refused := false, false // also when the transaction is repeated
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		owners, err := lockOwners(ctx, tx, l)
		if err != nil {
			return err
		}
		left := false
		for i := range owners {
			of := &owners[i]
			had, err := preferences(ctx, tx.Reader, l, &of.Contact)
			if err != nil {
				return err
			}
			now := had
			now.Topics = slices.Clone(had.Topics)
			decide(&now)
			if n := now.countOptIns(&had); i == 0 && n > 0 && !counted {
				counted = true
				refused = !s.optIns.allow(l.TeamID+"\x00"+of.Address, tx.Now(), n, maxOptIns+len(had.Topics))
			}
			if i > 0 || refused {
				now.dropOptIns(&had)
			}
			if i == 0 {
				before, after = had, now
			}
			c := now.change(&had, of.source)
			if c.Unsubscribed == nil && c.Topics == nil {
				continue
			}
			if _, err = s.write(ctx, tx, &of.Contact, of.found, resolved{Change: c}, l.EmailID); err != nil {
				return err
			}
			left = left || c.leaves()
		}
		if !left {
			return nil
		}
		return s.OnUnsubscribe(ctx, tx, l)
	})
	if err == nil && refused {
		err = fault.New(fault.TooFast, "", "You have subscribed again many times, so you are not subscribed to anything "+
			"new at present. What you unsubscribed from is saved. Try again in an hour.")
	}
	return before, after, err
}

// change returns what is to be written of p where before held. source is the email by whose link the contact was
// unsubscribed from everything, "" if that was not done by a link.
func (p *Preferences) change(before *Preferences, source string) (c Change) {
	if p.Unsubscribed != before.Unsubscribed || p.refusesAll && source == "" {
		c.Unsubscribed = &p.Unsubscribed
	}
	for i, t := range p.Topics {
		if had := before.Topics[i]; t.Subscription != had.Subscription || p.recordsRefusal(&had) {
			c.Topics = append(c.Topics, Choice{t.ID, t.Subscription})
		}
	}
	for _, t := range before.hidden {
		if p.recordsRefusal(&t) {
			c.Topics = append(c.Topics, Choice{t.ID, OptOut})
		}
	}
	return c
}

// leaves reports whether a change ends a subscription.
func (c *Change) leaves() bool {
	return c.Unsubscribed != nil && *c.Unsubscribed ||
		slices.ContainsFunc(c.Topics, func(t Choice) bool { return t.Subscription == OptOut })
}
