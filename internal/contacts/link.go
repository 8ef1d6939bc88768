package contacts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
)

// linkPurpose makes the token of an unsubscribe link invalid for any other purpose.
const linkPurpose = "unsubscribe"

// Link is what an unsubscribe link carries.
type Link struct {
	TeamID  string
	EmailID string // the email that has it, which may have been deleted since
	TopicID string // of that email; "" if it has none
	Address string // of the email's recipient, in lower case
}

// Token returns the signed token of a link. It never expires: somebody may want to leave years later.
func (s *Service) Token(l Link) string {
	return s.keys.Sign(linkPurpose, time.Time{}, pack(l.TeamID), pack(l.EmailID), pack(l.TopicID), l.Address)
}

// ReadToken returns the link of a token. A token that was not made here or was altered is a NotFound fault.
func (s *Service) ReadToken(token string) (Link, error) {
	parts, err := s.keys.Verify(linkPurpose, token, time.Time{})
	if err != nil || len(parts) != 4 || parts[0] == "" || parts[3] == "" {
		return Link{}, fault.NotFoundf("There is nothing at this address.")
	}
	return Link{TeamID: unpack(parts[0]), EmailID: unpack(parts[1]), TopicID: unpack(parts[2]), Address: parts[3]}, nil
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
	Topics       []Subscribed // the link's own first

	hidden []Subscribed

	// What the owner of the link refuses, also where others had noted it before: an import undoes only what others noted.
	refusesAll bool
	refuses    []string // ids of topics, also of hidden ones
}

// topic returns a topic, nil if it is not among those to choose from, and whether the team has it at all.
func (p *Preferences) topic(topicID string) (t *Subscribed, exists bool) {
	for i := range p.Topics {
		if p.Topics[i].ID == topicID {
			return &p.Topics[i], true
		}
	}
	return nil, slices.ContainsFunc(p.hidden, func(t Subscribed) bool { return t.ID == topicID })
}

// Preferences returns what holds for the owner of a link.
func (s *Service) Preferences(ctx context.Context, l Link) (Preferences, error) {
	at, err := contactByAddress(ctx, s.d.Reader, l.TeamID, l.Address)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return Preferences{}, err
	}
	return preferences(ctx, s.d.Reader, l, &at)
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
		case !t.offered():
			p.hidden = append(p.hidden, t)
		case t.ID == l.TopicID:
			p.Topics = slices.Insert(p.Topics, 0, t)
		default:
			p.Topics = append(p.Topics, t)
		}
	}
	return p, nil
}

// offered reports whether a contact may choose the topic through a link.
func (t *Subscribed) offered() bool {
	return t.Visibility == Public || t.Subscription == OptIn || t.chosen == OptOut && t.source != ""
}

// outOtherwise reports whether the contact was opted out by its team, or by an import.
func (t *Subscribed) outOtherwise() bool { return t.chosen == OptOut && t.source == "" }

// confirms reports whether the owner of the link refuses a topic that others had noted as refused.
func (p *Preferences) confirms(t *Subscribed) bool {
	return t.outOtherwise() && slices.Contains(p.refuses, t.ID)
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
func (s *Service) choose(ctx context.Context, l Link, decide func(*Preferences)) (before, after Preferences,
	err error) {
	counted, refused := false, false // also when the transaction is repeated
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		at, found, err := lockContact(ctx, tx, l.TeamID, l.Address)
		if err != nil {
			return err
		}
		if before, err = preferences(ctx, tx.Reader, l, &at); err != nil {
			return err
		}
		after = before
		after.Topics = slices.Clone(before.Topics)
		decide(&after)
		if n := after.optIns(&before); n > 0 && !counted {
			counted = true
			refused = !s.again.take(l.TeamID+"\x00"+l.Address, tx.Now(), n, againMax+len(before.Topics))
		}
		if refused {
			after.onlyOut(&before)
		}
		var c Change
		if after.Unsubscribed != before.Unsubscribed || after.refusesAll && at.source == "" {
			c.Unsubscribed = &after.Unsubscribed
		}
		for i, t := range after.Topics {
			if had := before.Topics[i]; t.Subscription != had.Subscription || after.confirms(&had) {
				c.Topics = append(c.Topics, Choice{t.ID, t.Subscription})
			}
		}
		for _, t := range before.hidden {
			if after.confirms(&t) {
				c.Topics = append(c.Topics, Choice{t.ID, OptOut})
			}
		}
		if c.Unsubscribed == nil && c.Topics == nil {
			return nil
		}
		if _, err = s.write(ctx, tx, &at, found, resolved{Change: c}, l.EmailID); err != nil || s.Left == nil ||
			!c.leaves() {
			return err
		}
		return s.Left(ctx, tx, l)
	})
	if err == nil && refused {
		err = fault.New(fault.TooFast, "", "You have subscribed again many times, so you are not subscribed to anything "+
			"new at present. What you unsubscribed from is saved. Try again in an hour.")
	}
	return before, after, err
}

// leaves reports whether a change ends a subscription.
func (c *Change) leaves() bool {
	return c.Unsubscribed != nil && *c.Unsubscribed ||
		slices.ContainsFunc(c.Topics, func(t Choice) bool { return t.Subscription == OptOut })
}
