// Package customevents stores the definitions of a team's custom events and accepts the events that the team sends (API
// reference section 23). The user documentation for custom events is docs/custom-events.md.
//
// # Words
//
// A definition consists of the name of an event and an optional schema, which contains the types of the payload's
// members. Events can be sent without a definition. An occurrence is an event that was sent. Each occurrence belongs to
// a contact, or to an address for which no contact exists yet.
//
// # Invariants
//
// A team can define each event name only once; the unique index custom_events_name enforces this. Event names with the
// prefix of system events (in upper or lower case) can be neither defined nor sent, so callers cannot forge system
// events. An event name must not be a UUID, because API requests identify a definition by its id or its name.
//
// A payload is a JSON object without duplicate names, of limited size and depth. A payload member that is named in the
// schema must have the type given in the schema, or be null or absent. Other payload members may have any type.
//
// Send calls Deps.OnEvent in a transaction that also contains all effects of the event. Send returns after the
// transaction has committed. The occurrence itself is not stored.
//
// # Failures
//
// If an event violates a rule, Send changes nothing and returns an Invalid fault that names the field, such as
// payload.plan. If the contact does not exist, Send returns a NotFound fault. If the connection to the database is lost
// during the commit, the error says that the event may have been accepted.
//
// # Out of scope
//
// Package customevents does not begin runs of automations or create contacts; OnEvent does.
package customevents

import (
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
)

// Limits on custom events.
const (
	MaxName   = events.MaxName // maximum length of a name, in characters
	MaxFields = 100            // maximum number of members per schema
	MaxTeam   = 1000           // maximum number of definitions per team
	MaxDepth  = 10             // maximum nesting depth of a payload; the payload itself counts as one level
	maxKey    = 100            // maximum length of a schema member's name, in characters
)

// Type is the type of a payload member.
type Type string

// The types of payload members. A date is a string in an ISO 8601 format.
const (
	String  Type = "string"
	Number  Type = "number"
	Boolean Type = "boolean"
	Date    Type = "date"
)

// Schema maps the names of payload members to their types. The zero Schema allows every payload.
type Schema map[string]Type

// Definition is a team's definition of a custom event.
type Definition struct {
	ID        string
	TeamID    string
	Name      string
	Schema    Schema // nil for none
	CreatedAt time.Time
	UpdatedAt time.Time // zero if the definition has never been updated
}

// Occurrence is a custom event that a team has sent.
type Occurrence struct {
	TeamID    string
	Name      string
	ContactID string // "" if the team has no contact with the address
	Address   string // normalized in the same way as stored contact addresses
	Payload   string // a JSON object; "" for none
	At        time.Time
}

// CheckName returns a fault if a string cannot be the name of a custom event. The parameter field is the name of the
// request field that contains the event name.
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
