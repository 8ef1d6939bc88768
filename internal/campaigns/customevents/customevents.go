// Package customevents keeps what callers define of their own events, and takes in those that they send (API reference
// section 23). docs/custom-events.md describes them for users.
//
// # Words
//
// A definition is the name of an event and, if it has one, a schema: the types of members of the payload. An event need
// not be defined to be sent. An occurrence is an event that was sent; it happened to a contact of the team, or at an
// address that is none yet.
//
// # Invariants
//
// A name is one definition of a team at most, which the index custom_events_name decides. Names that begin as those of
// system events do, in any case, are neither defined nor sent, so nobody can pretend that the platform saw something. A
// name is never a UUID: whoever names a definition means its id then.
//
// A payload is a JSON object of bounded size and depth without repeated names. Where there is a schema, a member that
// it names has the type that it says, or is null or absent. Others are of any type.
//
// An occurrence is told to Service.Happened in one transaction, with all that follows from it, before the caller gets
// an answer. It is kept nowhere else.
//
// # When it fails
//
// What breaks a rule is an Invalid fault that names the field, such as payload.plan, and nothing happens. A contact
// that does not exist is a NotFound fault. If the database is lost during the commit, the error says that the event may
// have been accepted.
//
// # What it does not do
//
// It starts no automations: Happened does. It creates no contacts.
package customevents

import (
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
)

// Limits of custom events.
const (
	MaxName   = events.MaxName // characters of a name
	MaxFields = 100            // of a schema
	MaxTeam   = 1000           // definitions of a team
	MaxDepth  = 10             // objects and lists within each other in a payload, itself included
	maxKey    = 100            // characters of the name of a schema's field
)

// Type is the type of a member of a payload.
type Type string

// The types. A date is a text in a form of ISO 8601.
const (
	String  Type = "string"
	Number  Type = "number"
	Boolean Type = "boolean"
	Date    Type = "date"
)

// Schema has the types of members of a payload by their names. The zero Schema is none.
type Schema map[string]Type

// Definition is an event that a team has defined.
type Definition struct {
	ID        string
	TeamID    string
	Name      string
	Schema    Schema // nil for none
	CreatedAt time.Time
	UpdatedAt time.Time // zero when it was never updated
}

// Occurrence is an event that was sent.
type Occurrence struct {
	TeamID    string
	Name      string
	ContactID string // "" if the team has no contact with the address
	Address   string // in the form in which addresses are stored
	Payload   string // a JSON object; "" for none
	At        time.Time
}

// CheckName refuses what cannot be the name of a custom event. field is that of the request.
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
