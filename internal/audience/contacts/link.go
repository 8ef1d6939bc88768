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

// linkPurpose is part of the signature, so that an unsubscribe token is not valid for any other purpose.
const linkPurpose = "unsubscribe"

// Link is the content of an unsubscribe link.
type Link struct {
	TeamID  string
	EmailID string // id of the email that contains the link; the email may have been deleted
	TopicID string // topic of that email; "" if the email has none
	// ContactID is the id of the contact that a broadcast or automation sent the email to; "" for other emails. The
	// contact's address may have changed after the email was sent.
	ContactID string
	Address   string // the address of the email's recipient, in lower case
}

// Token returns a link's signed token. The token never expires, because the recipient may want to unsubscribe years
// later.
func (s *Service) Token(l Link) string {
	parts := []string{pack(l.TeamID), pack(l.EmailID), pack(l.TopicID), l.Address}
	if l.ContactID != "" {
		parts = append(parts, pack(l.ContactID))
	}
	return s.Keys.Sign(linkPurpose, time.Time{}, parts...)
}

// ReadToken verifies a token and returns its link. If this installation did not sign the token, ReadToken returns a
// NotFound fault.
func (s *Service) ReadToken(token string) (Link, error) {
	parts, err := s.Keys.VerifyLasting(linkPurpose, token)
	if err != nil || len(parts) < 4 || len(parts) > 5 || parts[0] == "" || parts[3] == "" {
		return Link{}, fault.NotFoundf("There is nothing at this address.")
	}
	l := Link{TeamID: unpack(parts[0]), EmailID: unpack(parts[1]), TopicID: unpack(parts[2]), Address: parts[3]}
	if len(parts) == 5 {
		l.ContactID = unpack(parts[4])
	}
	return l, nil
}

// pack encodes an id in 16 bytes to keep links short. If its argument is not an id, pack returns "".
func pack(text string) string {
	u, err := uuid.Parse(text)
	if err != nil {
		return ""
	}
	return string(u[:])
}

func unpack(packed string) string {
	u, err := uuid.FromBytes([]byte(packed))
	if err != nil {
		return ""
	}
	return u.String()
}

// Preferences are the subscriptions that the holder of an unsubscribe link sees and can change.
type Preferences struct {
	Unsubscribed bool
	Topics       []TopicSubscription // starts with the link's own topic

	hidden []TopicSubscription

	// The fields refusesAll and refuses contain opt-outs that the holder of the link confirmed, including those that
	// the team had already recorded. An import cannot undo these opt-outs.
	refusesAll bool
	refuses    []string // topic ids, including hidden topics
}

// topic returns a topic, or nil if the holder of the link may not choose that topic. The boolean result reports whether
// the team has the topic at all.
func (p *Preferences) topic(topicID string) (t *TopicSubscription, exists bool) {
	for i := range p.Topics {
		if p.Topics[i].ID == topicID {
			return &p.Topics[i], true
		}
	}
	return nil, slices.ContainsFunc(p.hidden, func(t TopicSubscription) bool { return t.ID == topicID })
}

// Preferences returns the preferences of the contact that the link's email was sent to, even if the contact's address
// has changed. If there is no such contact, Preferences returns the preferences of the address that the email was sent
// to.
func (s *Service) Preferences(ctx context.Context, l Link) (Preferences, error) {
	var at Contact
	err := noContact()
	if l.ContactID != "" {
		at, err = contactByID(ctx, s.DB.Reader, l.TeamID, l.ContactID)
	}
	if fault.KindOf(err) == fault.NotFound {
		at, err = contactByAddress(ctx, s.DB.Reader, l.TeamID, l.Address)
	}
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return Preferences{}, err
	}
	return preferences(ctx, s.DB.Reader, l, &at)
}

// owner is a contact whose subscriptions the holder of a link can change. If the address has no contact yet, found is
// false.
type owner struct {
	Contact
	found bool
}

// lockOwners locks and returns the contacts that a link acts on. The first is the contact that the email was sent to.
// If that contact's address has changed, the second is the contact that now has the email's address. If the first
// contact has been deleted or the email was not sent to a contact, lockOwners returns only the contact that has the
// address.
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

// preferences returns a contact's preferences. For an address without a contact, callers pass the zero Contact.
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

// selectable reports whether a contact may subscribe to the topic or unsubscribe from it through a link.
func (t *TopicSubscription) selectable() bool {
	return t.Visibility == Public || t.Subscription == OptIn || t.chosen == OptOut && t.source != ""
}

// optedOutByTeam reports whether the contact was opted out by the team or an import rather than by its own choice.
func (t *TopicSubscription) optedOutByTeam() bool { return t.chosen == OptOut && t.source == "" }

// recordsRefusal reports whether the holder of the link confirms an opt-out that the team had already recorded.
func (p *Preferences) recordsRefusal(t *TopicSubscription) bool {
	return t.optedOutByTeam() && slices.Contains(p.refuses, t.ID)
}

// Selection is what the holder of a link chose on the unsubscribe page: which of the shown topics to subscribe to.
// Subscriptions to topics that were not shown do not change.
type Selection struct {
	Shown        []string
	Wanted       []string
	Unsubscribed bool
}

// Select saves a selection and returns the preferences before and after the change. Topics that the holder of the link
// may not choose are ignored.
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

// Unsubscribe opts the holder of a link out of the link's topic and returns the preferences before and after the
// change. If the link has no topic, or the topic has been deleted, Unsubscribe unsubscribes the contact from
// everything. Only a topic could identify similar emails. Repeated calls to Unsubscribe change nothing.
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

// choose applies its callback to the preferences of a link's owners and writes the changes. If the address has no
// contact and something changes, choose creates the contact. If the contact has opted in too often within the last
// hour, choose writes only opt-outs and returns a TooFast fault.
//
// If the contact's address has changed since the email was sent, opt-outs apply to both the old and the new address.
// Opt-ins apply only to the contact's new address, because the old address may now belong to another person.
func (s *Service) choose(ctx context.Context, l Link, decide func(*Preferences)) (before, after Preferences,
	err error) {
	counted, refused := false, false // not reset if the transaction is retried
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
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

// change returns the difference between the earlier preferences and p as a Change. The parameter source is the id of
// the email whose link unsubscribed the contact from everything, or "" if no link did.
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

// leaves reports whether a change unsubscribes the contact or opts it out of a topic.
func (c *Change) leaves() bool {
	return c.Unsubscribed != nil && *c.Unsubscribed ||
		slices.ContainsFunc(c.Topics, func(t Choice) bool { return t.Subscription == OptOut })
}
