package contacts

import (
	"context"
	"math"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// The methods in this file whose names end in "In" run in the caller's transaction. Each of these methods does the same
// as the method without "In" in its name, and holds the lock on the contact's row until the transaction ends.
//
// If a method returns an Invalid or a NotFound fault, it has written nothing. It looks up the contact and all names in
// a change before it writes. After an Invalid or a NotFound fault, the caller may continue the transaction. After any
// other error, the caller must roll back the transaction.

// UpsertIn is [Service.Upsert] in the caller's transaction.
func (s *Service) UpsertIn(ctx context.Context, tx *db.Tx, teamID, address string, c Change) (
	at Contact, created bool, err error) {
	key, err := normalizeAddress(address)
	if err != nil {
		return at, false, err
	}
	to, err := resolve(ctx, tx.Reader, teamID, c)
	if err != nil {
		return at, false, err
	}
	at, found, err := lockContact(ctx, tx, teamID, key)
	if err != nil {
		return at, false, err
	}
	created, err = s.write(ctx, tx, &at, found, to, "")
	return at, created, err
}

// UpdateIn is [Service.Update] in the caller's transaction. If another contact has the new address, UpdateIn returns no
// fault; instead, the transaction fails with a violation of the unique index contacts_address ([db.DB.Violates]).
func (s *Service) UpdateIn(ctx context.Context, tx *db.Tx, teamID, idOrAddress string, c Change) (
	at Contact, err error) {
	var address string
	if c.Address != nil {
		if address, err = normalizeAddress(*c.Address); err != nil {
			return at, err
		}
	}
	to, err := resolve(ctx, tx.Reader, teamID, c)
	if err != nil {
		return at, err
	}
	to.address = address
	if at, err = lockNamed(ctx, tx, teamID, idOrAddress); err != nil {
		return at, err
	}
	_, err = s.write(ctx, tx, &at, true, to, "")
	return at, err
}

// DeleteIn is [Service.Delete] in the caller's transaction.
func (s *Service) DeleteIn(ctx context.Context, tx *db.Tx, teamID, idOrAddress string) (Contact, error) {
	at, err := lockNamed(ctx, tx, teamID, idOrAddress)
	if err != nil {
		return at, err
	}
	inSegments, err := segments.IDsOf(ctx, tx.Reader, teamID, at.ID)
	if err != nil {
		return at, err
	}
	deleteContacts(ctx, tx, teamID, []string{at.ID})
	return at, s.Recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.ContactDeleted,
		Data: at.event(inSegments)})
}

// AddToSegmentIn is [Service.AddToSegment] in the caller's transaction.
func (s *Service) AddToSegmentIn(ctx context.Context, tx *db.Tx, teamID, idOrAddress, segmentID string) (
	at Contact, err error) {
	g, err := segments.Manual(ctx, tx.Reader, teamID, segmentID)
	if err != nil {
		return at, err
	}
	if at, err = lockNamed(ctx, tx, teamID, idOrAddress); err != nil {
		return at, err
	}
	_, err = s.write(ctx, tx, &at, true, resolved{Change: Change{Segments: []string{g.ID}}}, "")
	return at, err
}

// MemberIn returns the contact with the given id, with its values and, for properties without a value, the fallbacks.
// MemberIn does not lock the contact.
func (s *Service) MemberIn(ctx context.Context, r db.Reader, teamID, contactID string) (m Member, err error) {
	if m.Contact, err = contactByID(ctx, r, teamID, contactID); err != nil {
		return m, err
	}
	properties, err := propertiesNamed(ctx, r, teamID, nil)
	if err != nil {
		return m, err
	}
	values, err := valuesAmong(ctx, r, teamID, []string{m.ID}, properties, math.MaxInt)
	if err != nil {
		return m, err
	}
	m.Properties, m.Fallbacks = withFallbacks(values[m.ID], properties)
	return m, nil
}

// withFallbacks adds the fallbacks of the properties that have no value or an empty one, and returns the names of
// those properties.
func withFallbacks(values map[string]scalar.Value, of []Property) (map[string]scalar.Value, map[string]bool) {
	if values == nil {
		values = map[string]scalar.Value{}
	}
	added := map[string]bool{}
	for _, p := range of {
		if values[p.Name].Text == "" && p.Fallback != (scalar.Value{}) {
			values[p.Name], added[p.Name] = p.Fallback, true
		}
	}
	return values, added
}
