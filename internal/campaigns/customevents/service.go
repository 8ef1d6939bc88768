package customevents

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
)

// Deps are the dependencies of a Service.
type Deps struct {
	DB       *db.DB
	Contacts *contacts.Service
	// BeforeEvent runs before the transaction of an event of an existing contact. It makes the look-ups that OnEvent must
	// not make inside the transaction.
	BeforeEvent func(ctx context.Context, teamID, event, contactID string) error
	// OnEvent runs in the transaction that accepts an event.
	OnEvent func(ctx context.Context, tx *db.Tx, o Occurrence) error
}

// Service implements the operations on custom events.
type Service struct {
	Deps
}

// New returns the service. New fails if a dependency is missing.
func New(d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return &Service{Deps: d}, nil
}

// Create defines an event; spaces around the name are removed. Create returns an Invalid fault if the team has already
// defined the name.
func (s *Service) Create(ctx context.Context, teamID, name string, schema Schema) (Definition, error) {
	name = events.TrimName(name)
	def := Definition{TeamID: teamID, Name: name, Schema: schema}
	if err := CheckName("name", name); err != nil {
		return def, err
	}
	if err := schema.check(); err != nil {
		return def, err
	}
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		// The lock prevents concurrent requests from exceeding the limit on the number of definitions.
		if err := tx.Serialize(ctx, "custom events of "+teamID); err != nil {
			return err
		}
		n, err := count(ctx, tx.Reader, teamID)
		if err != nil {
			return err
		}
		if n >= MaxTeam {
			return fault.Invalidf("", "A team defines at most %d events. Delete one that is not needed; events can "+
				"be sent without being defined.", MaxTeam)
		}
		def.ID, def.CreatedAt = id.At(tx.Now()), tx.Now()
		audit.Target(ctx, def.ID)
		return insert(ctx, tx, &def)
	})
	if s.DB.Violates(err, nameIndex) {
		err = fault.Invalidf("name", "The `name` field is %.100q, which is an event already.", name).Because(err)
	}
	return def, err
}

// Get returns the definition with the given id or name.
func (s *Service) Get(ctx context.Context, teamID, idOrName string) (Definition, error) {
	return get(ctx, s.DB.Reader, teamID, idOrName)
}

// List returns a page of a team's definitions, newest first.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Definition, bool, error) {
	return list(ctx, s.DB.Reader, teamID, p)
}

// SetSchema replaces the schema of the definition with the given id or name. If schema is nil, SetSchema removes the
// definition's schema. Events that have already been sent are not validated again.
func (s *Service) SetSchema(ctx context.Context, teamID, idOrName string, schema Schema) (def Definition, err error) {
	if err := schema.check(); err != nil {
		return def, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if def, err = get(ctx, tx.Reader, teamID, idOrName); err != nil {
			return err
		}
		def.Schema, def.UpdatedAt = schema, tx.Now()
		audit.Target(ctx, def.ID)
		return update(ctx, tx, &def)
	})
	return def, err
}

// Delete deletes the definition with the given id or name. Events with the deleted name can still be sent.
func (s *Service) Delete(ctx context.Context, teamID, idOrName string) (def Definition, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if def, err = get(ctx, tx.Reader, teamID, idOrName); err != nil {
			return err
		}
		remove(ctx, tx, &def)
		audit.Target(ctx, def.ID)
		return nil
	})
	return def, err
}

// EraseTeam deletes a team's definitions.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	if err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return erase(ctx, tx, teamID) }); err != nil {
		return fmt.Errorf("erase the custom events of team %s: %w", teamID, err)
	}
	return nil
}

// NewEvent is an event that a caller sends. Exactly one of ContactID and Address must be set.
type NewEvent struct {
	Event     string
	ContactID string
	Address   string // address of the contact; the contact need not exist
	Payload   []byte // JSON object; empty or null for none

	// If Also is not nil, Send calls it in the transaction that accepts the event.
	Also func(ctx context.Context, tx *db.Tx) error
}

// Send removes the spaces around the event's name, accepts the event and calls OnEvent. If Send returns an error, the
// event was not accepted, unless the error says that the event may have been accepted.
func (s *Service) Send(ctx context.Context, teamID string, in NewEvent) error {
	in.Event = events.TrimName(in.Event)
	o := Occurrence{TeamID: teamID, Name: in.Event}
	if err := CheckName("event", in.Event); err != nil {
		return err
	}
	if (in.ContactID == "") == (in.Address == "") {
		return fault.Invalidf("contact_id", "The request must have exactly one of the fields `contact_id` and `email`.")
	}
	def, err := getIfDefined(ctx, s.DB.Reader, teamID, in.Event)
	if err != nil {
		return err
	}
	if o.Payload, err = checkPayload(in.Payload, in.Event, def.Schema); err != nil {
		return err
	}
	if o.ContactID, o.Address, err = s.resolveContact(ctx, teamID, in); err != nil {
		return err
	}
	if o.ContactID != "" {
		if err := s.BeforeEvent(ctx, teamID, o.Name, o.ContactID); err != nil {
			return err
		}
	}
	// Use a separate transaction, because OnEvent locks rows of the contact. Shared transactions with events for the same
	// contacts would deadlock.
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		o.At = tx.Now()
		if err := s.OnEvent(ctx, tx, o); err != nil {
			return fmt.Errorf("deliver the event: %w", err)
		}
		if in.Also != nil {
			return in.Also(ctx, tx)
		}
		return nil
	})
	if errors.Is(err, db.ErrUnknown) {
		err = fault.New(fault.Unavailable, "", "The event may have been accepted: the database was lost before it "+
			"answered. With an idempotency key the request can be repeated safely.").Because(err)
	}
	return err
}

// resolveContact returns the id and the address of an event's contact. If the contact does not exist, the id is "".
func (s *Service) resolveContact(ctx context.Context, teamID string, in NewEvent) (contactID, address string,
	err error) {
	if in.ContactID != "" {
		if !id.Valid(in.ContactID) {
			return "", "", fault.New(fault.BadID, "contact_id", "The `contact_id` must be a valid UUID.")
		}
		of, err := s.Contacts.Get(ctx, teamID, in.ContactID)
		return of.ID, of.Address, err
	}
	a, err := message.ParseAddress(in.Address)
	if err != nil {
		return "", "", fault.Invalidf("email", "Invalid `email` field: %s. Use `email@example.com`.",
			strings.TrimSuffix(err.Error(), ".")).Because(err)
	}
	of, err := s.Contacts.Get(ctx, teamID, a.Key())
	if fault.KindOf(err) == fault.NotFound {
		return "", a.Key(), nil
	}
	return of.ID, a.Key(), err
}
