package contacts

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

// Deps are the dependencies of a Service.
type Deps struct {
	DB       *db.DB
	Recorder *events.Recorder
	Keys     *keyring.Keyring // signs unsubscribe links
	Log      *slog.Logger
	// OnUnsubscribe is called when a contact unsubscribes through a link, in the same transaction.
	OnUnsubscribe func(ctx context.Context, tx *db.Tx, l Link) error
}

// Service implements the operations on contacts, properties and topics, and on the members of segments.
type Service struct {
	Deps
	Segments *segments.Service // gives access to teams' segments

	limits limits
	counts *countScheduler
	slow   slowFilters
	optIns optInLimiter
}

// New returns a Service, or an error if a dependency is missing.
func New(d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return newService(d), nil
}

// NewTokens returns a Service that can only sign and verify unsubscribe tokens. All other methods of this Service
// panic.
func NewTokens(keys *keyring.Keyring) *Service { return newService(Deps{Keys: keys}) }

// newService returns a Service without checking its dependencies, for tests that need only some of them.
func newService(d Deps) *Service {
	s := &Service{Deps: d, limits: defaultLimits, counts: newCountScheduler()}
	s.Segments = segments.New(d.DB, s.checkFilter)
	return s
}

// Change describes an update of a contact. If a field is nil, the contact keeps its value.
type Change struct {
	Address      *string // only for Update
	FirstName    *string
	LastName     *string
	Unsubscribed *bool
	Properties   map[string]scalar.Value // by name; a zero Value deletes the value; other values do not change
	Segments     []string                // ids of segments to add the contact to; other memberships do not change
	Topics       []Choice                // subscriptions to other topics do not change
}

// Choice is a contact's decision to opt in to a topic or out of it.
type Choice struct {
	TopicID      string
	Subscription Subscription
}

// Upsert creates the contact with the given address, or updates it if it exists, and reports whether it was created. If
// a field in the change is nil, the contact keeps its value.
func (s *Service) Upsert(ctx context.Context, teamID, address string, c Change) (at Contact, created bool, err error) {
	if _, err := normalizeAddress(address); err != nil {
		return at, false, err
	}
	if err := c.check(); err != nil {
		return at, false, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		at, created, err = s.UpsertIn(ctx, tx, teamID, address, c)
		audit.Target(ctx, at.ID)
		return err
	})
	return at, created, err
}

// Update changes a contact, given by its id or address. If another contact in the team has the new address, Update
// returns an Invalid fault.
func (s *Service) Update(ctx context.Context, teamID, idOrAddress string, c Change) (at Contact, err error) {
	if err := c.check(); err != nil {
		return at, err
	}
	if c.Address != nil {
		if _, err := normalizeAddress(*c.Address); err != nil {
			return at, err
		}
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		at, err = s.UpdateIn(ctx, tx, teamID, idOrAddress, c)
		audit.Target(ctx, at.ID)
		return err
	})
	if s.DB.Violates(err, "contacts_address") {
		err = fault.Invalidf("email", "The `email` field is the address of another contact. Change or delete that one.").
			Because(err)
	}
	return at, err
}

// Delete deletes a contact, given by its id or address, along with its values, memberships and subscriptions.
func (s *Service) Delete(ctx context.Context, teamID, idOrAddress string) (at Contact, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		at, err = s.DeleteIn(ctx, tx, teamID, idOrAddress)
		audit.Target(ctx, at.ID)
		return err
	})
	return at, err
}

// Get returns a contact by its id or its address.
func (s *Service) Get(ctx context.Context, teamID, idOrAddress string) (Contact, error) {
	contactID, address, err := parseName(idOrAddress)
	if err != nil {
		return Contact{}, err
	}
	if contactID != "" {
		return contactByID(ctx, s.DB.Reader, teamID, contactID)
	}
	return contactByAddress(ctx, s.DB.Reader, teamID, address)
}

// Existing returns those of the given ids that belong to contacts of the team.
func (s *Service) Existing(ctx context.Context, teamID string, contactIDs []string) (map[string]bool, error) {
	return existing(ctx, s.DB.Reader, teamID, contactIDs)
}

// Member returns a contact and its values, given its id or address, from a segment or, if segmentID is "", from the
// whole team. If the contact is not in the segment, Member returns a NotFound fault.
func (s *Service) Member(ctx context.Context, teamID, segmentID, idOrAddress string) (m Member, err error) {
	contactID, address, err := parseName(idOrAddress)
	if err != nil {
		return m, err
	}
	of, err := s.audience(ctx, s.DB.Reader, teamID, Audience{SegmentID: segmentID})
	if err != nil {
		return m, err
	}
	if m.Contact, err = contactAmong(ctx, s.DB.Reader, &of, contactID, address); err != nil {
		return m, err
	}
	m.Properties, err = s.Values(ctx, s.DB.Reader, teamID, m.ID)
	return m, err
}

// Subscriptions returns all of a team's topics, oldest first, with the subscriptions of one contact, given by its id or
// address.
func (s *Service) Subscriptions(ctx context.Context, teamID, idOrAddress string) ([]TopicSubscription, error) {
	of, err := s.Get(ctx, teamID, idOrAddress)
	if err != nil {
		return nil, err
	}
	return subscriptions(ctx, s.DB.Reader, teamID, of.ID)
}

// ListSubscriptions returns a page of a team's topics, newest first, with the subscriptions of one contact.
func (s *Service) ListSubscriptions(ctx context.Context, teamID, idOrAddress string, p page.Page) (
	[]TopicSubscription, bool, error) {
	of, err := s.Get(ctx, teamID, idOrAddress)
	if err != nil {
		return nil, false, err
	}
	return listSubscriptions(ctx, s.DB.Reader, teamID, of.ID, p)
}

// Subscribe changes a contact's subscriptions to the given topics. Subscriptions to other topics do not change.
func (s *Service) Subscribe(ctx context.Context, teamID, idOrAddress string, topics []Choice) error {
	_, err := s.Update(ctx, teamID, idOrAddress, Change{Topics: topics})
	return err
}

// resolved is a validated change together with the objects that it names.
type resolved struct {
	Change
	address string // normalized; "" keeps the address
	values  []propertyValue
}

// propertyValue is a property together with a contact's new value for it.
type propertyValue struct {
	Property
	value scalar.Value
}

// resolve validates a change and looks up the topics, segments and properties that it names. If one of these objects
// does not exist in the team, resolve returns an Invalid fault.
func resolve(ctx context.Context, r db.Reader, teamID string, c Change) (to resolved, err error) {
	if err := c.check(); err != nil {
		return to, err
	}
	to.Change = c
	if err := checkTopics(ctx, r, teamID, c.Topics); err != nil {
		return to, err
	}
	if to.Segments, err = segments.CheckManual(ctx, r, teamID, c.Segments); err != nil {
		return to, err
	}
	to.values, err = resolveValues(ctx, r, teamID, c.Properties)
	return to, err
}

// createTries is how many times an insert is tried when other transactions create and delete the same contact.
const createTries = 10

func errContested() error {
	return fmt.Errorf("create a contact: other requests created and deleted it %d times during this one", createTries)
}

// write applies a change to a contact and records the event. The parameter found says whether the contact already
// exists, in which case the caller has locked it. The parameter source is the id of the email whose link was used, or
// "" if no link was used.
func (s *Service) write(ctx context.Context, tx *db.Tx, at *Contact, found bool, to resolved, source string) (
	created bool, err error) {
	for try := 0; !found && !created; try++ {
		if try == createTries {
			return false, errContested()
		}
		at.ID, at.CreatedAt, at.UpdatedAt = id.At(tx.Now()), tx.Now(), tx.Now()
		at.apply(to, source)
		if created, err = insertContact(ctx, tx, at); err != nil {
			return false, err
		}
		if !created { // another transaction created the contact; a third transaction may have deleted it
			if *at, found, err = lockContact(ctx, tx, at.TeamID, at.Address); err != nil {
				return false, err
			}
		}
	}
	had := &relations{}
	if !created {
		if had, err = relationsOf(ctx, tx.Reader, at, to); err != nil {
			return false, err
		}
	}
	unsubscribed := !created && at.Unsubscribed
	changed := at.apply(to, source)
	if had.add(ctx, tx, at, to, source) {
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
	data := at.event(had.segments)
	data.Switched, data.Topics = at.Unsubscribed != unsubscribed, had.newly
	return created, s.Recorder.Record(ctx, tx, events.Event{TeamID: at.TeamID, Type: kind, Data: data})
}

// relations holds a contact's segments, and the subscriptions and values that a change affects.
type relations struct {
	topics   []TopicSubscription
	values   map[string]scalar.Value
	segments []string // ids of all segments that the contact was added to

	newly []events.TopicChange // topic changes that add recorded
}

func relationsOf(ctx context.Context, r db.Reader, of *Contact, to resolved) (*relations, error) {
	had := &relations{}
	var err error
	if len(to.Topics) > 0 {
		if had.topics, err = subscriptions(ctx, r, of.TeamID, of.ID); err != nil {
			return nil, err
		}
	}
	if len(to.values) > 0 {
		values, err := valuesOf(ctx, r, of.TeamID, []string{of.ID}, slices.Sorted(maps.Keys(to.Properties)),
			math.MaxInt)
		if err != nil {
			return nil, err
		}
		had.values = values[of.ID]
	}
	had.segments, err = segments.IDsOf(ctx, r, of.TeamID, of.ID)
	return had, err
}

// add writes those subscriptions, values and memberships that the contact does not have yet, and reports whether it
// wrote any. add also records new segments and subscriptions in h.
func (h *relations) add(ctx context.Context, tx *db.Tx, of *Contact, to resolved, source string) (changed bool) {
	for _, t := range to.Topics {
		i := slices.IndexFunc(h.topics, func(k TopicSubscription) bool {
			return k.ID == t.TopicID && k.chosen == t.Subscription
		})
		if i < 0 {
			h.newly = append(h.newly, events.TopicChange{TopicID: t.TopicID, In: t.Subscription == OptIn})
		}
		if i < 0 || source != "" && h.topics[i].optedOutByTeam() {
			setSubscription(ctx, tx, of, t, source)
			changed = true
		}
	}
	for _, v := range to.values {
		if h.values[v.Name] != v.value {
			setValue(ctx, tx, of, v)
			changed = true
		}
	}
	for _, segmentID := range to.Segments {
		if !slices.Contains(h.segments, segmentID) {
			segments.AddMember(ctx, tx, of.TeamID, segmentID, of.ID)
			h.segments, changed = append(h.segments, segmentID), true
		}
	}
	return changed
}

// apply changes a contact's fields and reports whether any of them changed.
func (c *Contact) apply(to resolved, source string) (changed bool) {
	if to.address != "" && c.Address != to.address {
		c.Address, changed = to.address, true
	}
	for _, f := range []struct {
		dst *string
		to  *string
	}{{&c.FirstName, to.FirstName}, {&c.LastName, to.LastName}} {
		if f.to != nil && *f.dst != *f.to {
			*f.dst, changed = *f.to, true
		}
	}
	confirms := c.Unsubscribed && c.source == "" && source != ""
	if to.Unsubscribed != nil && (c.Unsubscribed != *to.Unsubscribed || confirms) {
		c.Unsubscribed, c.source, changed = *to.Unsubscribed, source, true
	}
	return changed
}

// check validates a change and converts ids to lower case.
func (c *Change) check() error {
	for field, text := range map[string]*string{"first_name": c.FirstName, "last_name": c.LastName} {
		if text != nil {
			if err := scalar.CheckLine(field, *text, maxName); err != nil {
				return err
			}
		}
	}
	c.Topics = slices.Clone(c.Topics) // the slice belongs to the caller and must not be changed
	for i := range c.Topics {
		t := &c.Topics[i]
		t.TopicID = strings.ToLower(t.TopicID)
		if err := checkSubscription(fmt.Sprintf("topics[%d].subscription", i), t.Subscription); err != nil {
			return err
		}
	}
	return nil
}

// parseName parses a string that is either the id or the address of a contact, and returns the id or address in
// normalized form.
func parseName(idOrAddress string) (contactID, address string, err error) {
	switch {
	case id.Valid(idOrAddress):
		return strings.ToLower(idOrAddress), "", nil
	case !strings.Contains(idOrAddress, "@"):
		return "", "", fault.New(fault.BadID, "contact", "The contact must be named by a valid UUID or an email address.")
	}
	address, err = normalizeAddress(idOrAddress)
	return "", address, err
}

// lockNamed locks and returns a contact, given by its id or address. lockNamed returns a NotFound fault if the contact
// does not exist.
func lockNamed(ctx context.Context, tx *db.Tx, teamID, idOrAddress string) (Contact, error) {
	contactID, address, err := parseName(idOrAddress)
	if err != nil {
		return Contact{}, err
	}
	if contactID != "" {
		return lockByID(ctx, tx, teamID, contactID)
	}
	at, found, err := lockContact(ctx, tx, teamID, address)
	if err == nil && !found {
		err = noContact()
	}
	return at, err
}

func checkSubscription(field string, s Subscription) error {
	if s != OptIn && s != OptOut {
		return fault.Invalidf(field, "The `%s` field must be `opt_in` or `opt_out`.", field)
	}
	return nil
}

// normalizeAddress parses an address and returns the normalized form in which addresses are stored.
func normalizeAddress(text string) (string, error) {
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

// checkTopics returns an Invalid fault if one of the topics does not exist in the team, or if the list contains a topic
// twice.
func checkTopics(ctx context.Context, r db.Reader, teamID string, topics []Choice) error {
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
