// Package customevents stores the events that a team defines and accepts the events that it sends (API reference
// section 23). docs/custom-events.md describes them for users.
//
// # Words
//
// A definition is the name of an event and an optional schema, which gives the types of members of the payload. Events
// can be sent without a definition. An occurrence is an event that was sent. It belongs to a contact, or to an address
// for which no contact exists yet.
//
// # Invariants
//
// A team defines each name at most once; the index custom_events_name enforces it. Names with the prefix of system
// events, in any case, can be neither defined nor sent, so callers cannot forge system events. A name is never a UUID,
// because a definition can be addressed by its id or its name.
//
// A payload is a JSON object of limited size and depth without duplicate names. A member that the schema names has the
// type in the schema, or is null or absent. Other members may have any type.
//
// Send calls Deps.OnEvent with the occurrence in one transaction, together with everything that follows from the
// event, before the caller gets an answer. The occurrence itself is not stored.
//
// # Errors
//
// A violated rule is an Invalid fault that names the field, such as payload.plan, and nothing changes. A contact that
// does not exist is a NotFound fault. If the database is lost during the commit, the error says that the event may have
// been accepted.
//
// # Limits of this package
//
// The package begins no runs of automations; OnEvent does. It creates no contacts.
package customevents

import (
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
)

// Limits of custom events.
const (
	MaxName   = events.MaxName // characters of a name
	MaxFields = 100            // members of a schema
	MaxTeam   = 1000           // definitions of a team
	MaxDepth  = 10             // nested objects and lists in a payload, including the payload itself
	maxKey    = 100            // characters of the name of a schema's field
)

// Type is the type of a member of a payload.
type Type string

// The types. A date is a text in an ISO 8601 format.
const (
	String  Type = "string"
	Number  Type = "number"
	Boolean Type = "boolean"
	Date    Type = "date"
)

// Schema is the types of members of a payload by name. The zero Schema allows every payload.
type Schema map[string]Type

// Definition is an event that a team has defined.
type Definition struct {
	ID        string
	TeamID    string
	Name      string
	Schema    Schema // nil for none
	CreatedAt time.Time
	UpdatedAt time.Time // zero if the definition was never updated
}

// Occurrence is an event that was sent.
type Occurrence struct {
	TeamID    string
	Name      string
	ContactID string // "" if the team has no contact with the address
	Address   string // in the normalized form in which addresses are stored
	Payload   string // a JSON object; "" for none
	At        time.Time
}

// CheckName returns a fault if a text cannot be the name of a custom event. field is the field of the request that has
// it.
func CheckName(field, name string) error {
	if err := events.CheckName(field, name); err != nil {
		return err
	}
	if prefix := events.ReservedPrefix(name); prefix != "" {
		return fault.Invalidf(field, "The `%s` field begins with `%s`, which is reserved for system events. Choose "+
			"another name.", field, prefix)
	}
	return nil
}
