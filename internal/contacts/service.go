package contacts

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/message"
)

// Service implements the operations on contacts and topics.
type Service struct {
	d        *db.DB
	recorder *events.Recorder
	keys     *keyring.Keyring
}

// New returns the service. keys sign the links; a service without them makes and reads none.
func New(d *db.DB, recorder *events.Recorder, keys *keyring.Keyring) *Service {
	return &Service{d, recorder, keys}
}

// Change is what to write of a contact. What is nil stays as it is.
type Change struct {
	FirstName    *string
	LastName     *string
	Unsubscribed *bool
	Topics       []Choice
}

// Choice is a subscription to a topic.
type Choice struct {
	TopicID      string
	Subscription Subscription
}

// Upsert writes the contact with an address, and creates it when there is none. It reports whether it did. What is not
// named in c keeps its value.
func (s *Service) Upsert(ctx context.Context, teamID, address string, c Change) (at Contact, created bool, err error) {
	key, err := normal(address)
	if err != nil {
		return at, false, err
	}
	if err := c.check(); err != nil {
		return at, false, err
	}
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		if err := known(ctx, tx.Reader, teamID, c.Topics); err != nil {
			return err
		}
		var found bool
		if at, found, err = lockContact(ctx, tx, teamID, key); err != nil {
			return err
		}
		created, err = s.write(ctx, tx, &at, found, c, "")
		return err
	})
	return at, created, err
}

// Get returns a contact by its id or its address.
func (s *Service) Get(ctx context.Context, teamID, idOrAddress string) (Contact, error) {
	if id.Valid(idOrAddress) {
		return contactByID(ctx, s.d.Reader, teamID, strings.ToLower(idOrAddress))
	}
	key, err := normal(idOrAddress)
	if err != nil {
		return Contact{}, err
	}
	return contactByAddress(ctx, s.d.Reader, teamID, key)
}

// Subscriptions returns all topics of a team, oldest first, with what holds for one of its contacts.
func (s *Service) Subscriptions(ctx context.Context, teamID, contactID string) ([]Subscribed, error) {
	if _, err := contactByID(ctx, s.d.Reader, teamID, contactID); err != nil {
		return nil, err
	}
	return subscriptions(ctx, s.d.Reader, teamID, contactID)
}

// Subscribe writes what a contact is subscribed to. Topics that are not named stay as they are.
func (s *Service) Subscribe(ctx context.Context, teamID, contactID string, topics []Choice) error {
	c := Change{Topics: topics}
	if err := c.check(); err != nil {
		return err
	}
	return s.d.Update(ctx, func(tx *db.Tx) error {
		if err := known(ctx, tx.Reader, teamID, topics); err != nil {
			return err
		}
		of, err := contactByID(ctx, tx.Reader, teamID, contactID)
		if err != nil {
			return err
		}
		at, found, err := lockContact(ctx, tx, teamID, of.Address)
		if err == nil && !found {
			err = noContact()
		}
		if err != nil {
			return err
		}
		_, err = s.write(ctx, tx, &at, true, c, "")
		return err
	})
}

// write writes what c changes in a contact, which found says is there and locked, and records the event. source is the
// email by whose link it was chosen.
func (s *Service) write(ctx context.Context, tx *db.Tx, at *Contact, found bool, c Change, source string) (created bool,
	err error) {
	if !found {
		at.ID, at.CreatedAt, at.UpdatedAt = id.At(tx.Now()), tx.Now(), tx.Now()
		at.apply(c, source)
		if created, err = insertContact(ctx, tx, at); err != nil {
			return false, err
		}
		if !created { // another transaction has just done so, and has ended
			again, _, err := lockContact(ctx, tx, at.TeamID, at.Address)
			if err != nil {
				return false, err
			}
			*at = again
		}
	}
	var chosen []Subscribed
	if !created && len(c.Topics) > 0 {
		if chosen, err = subscriptions(ctx, tx.Reader, at.TeamID, at.ID); err != nil {
			return false, err
		}
	}
	changed := at.apply(c, source)
	for _, t := range c.Topics {
		same := func(k Subscribed) bool { return k.ID == t.TopicID && k.chosen == t.Subscription }
		if slices.ContainsFunc(chosen, same) {
			continue
		}
		setSubscription(ctx, tx, at, t, source)
		changed = true
	}
	kind := events.ContactCreated
	if !created {
		if !changed {
			return false, nil
		}
		kind, at.UpdatedAt = events.ContactUpdated, tx.Now()
		updateContact(ctx, tx, at)
	}
	return created, s.recorder.Record(ctx, tx, events.Event{TeamID: at.TeamID, Type: kind, Data: at.event()})
}

// apply changes the fields of a contact, and reports whether any changed.
func (c *Contact) apply(to Change, source string) (changed bool) {
	for _, f := range []struct {
		dst *string
		to  *string
	}{{&c.FirstName, to.FirstName}, {&c.LastName, to.LastName}} {
		if f.to != nil && *f.dst != *f.to {
			*f.dst, changed = *f.to, true
		}
	}
	if to.Unsubscribed != nil && c.Unsubscribed != *to.Unsubscribed {
		c.Unsubscribed, c.source, changed = *to.Unsubscribed, source, true
	}
	return changed
}

func (c *Change) check() error {
	for field, text := range map[string]*string{"first_name": c.FirstName, "last_name": c.LastName} {
		if text != nil {
			if err := checkText(field, *text, maxName); err != nil {
				return err
			}
		}
	}
	for i := range c.Topics {
		t := &c.Topics[i]
		t.TopicID = strings.ToLower(t.TopicID)
		if err := checkSubscription("subscription", t.Subscription); err != nil {
			return err
		}
	}
	return nil
}

func checkSubscription(field string, s Subscription) error {
	if s != OptIn && s != OptOut {
		return fault.Invalidf(field, "The `%s` field must be `opt_in` or `opt_out`.", field)
	}
	return nil
}

// checkText refuses a text that is too long, or that is shown as more than one line.
func checkText(field, text string, limit int) error {
	if !utf8.ValidString(text) || strings.ContainsAny(text, "\r\n\x00") {
		return fault.Invalidf(field, "The `%s` field must be UTF-8 text without line breaks and NUL characters.", field)
	}
	if n := utf8.RuneCountInString(text); n > limit {
		return fault.Invalidf(field, "The `%s` field has %d characters; the limit is %d.", field, n, limit)
	}
	return nil
}

// normal parses an address and returns it in the form in which it is stored.
func normal(text string) (string, error) {
	if text == "" {
		return "", fault.MissingField("email")
	}
	a, err := message.ParseAddress(text)
	if err != nil {
		return "", fault.Invalidf("email", "Invalid `email` field: %s. Use `email@example.com`.",
			strings.TrimSuffix(err.Error(), ".")).Because(err)
	}
	return a.Key(), nil
}

func noContact() error { return fault.NotFoundf("Contact not found") }

// known refuses choices of topics that the team does not have, and of one topic twice.
func known(ctx context.Context, r db.Reader, teamID string, topics []Choice) error {
	if len(topics) == 0 {
		return nil
	}
	var ids []string
	for _, t := range topics {
		if !id.Valid(t.TopicID) {
			return noSuchTopic(t.TopicID)
		}
		if slices.Contains(ids, t.TopicID) {
			return fault.Invalidf("topics", "The `topics` field names the topic %s twice.", t.TopicID)
		}
		ids = append(ids, t.TopicID)
		if len(ids) > MaxTopics {
			return fault.Invalidf("topics", "The `topics` field names more than %d topics.", MaxTopics)
		}
	}
	have, err := topicsAmong(ctx, r, teamID, ids)
	if err != nil {
		return fmt.Errorf("look for topics: %w", err)
	}
	for _, topicID := range ids {
		if !slices.Contains(have, topicID) {
			return noSuchTopic(topicID)
		}
	}
	return nil
}

func noSuchTopic(topicID string) error {
	return fault.Invalidf("topics", "The `topics` field names %.50q, which is no topic of this team.", topicID)
}
