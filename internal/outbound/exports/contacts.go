package exports

import (
	"context"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
)

// ContactRow is a contact with all that a team has noted of it.
type ContactRow struct {
	ID           string         `json:"id"`
	Email        string         `json:"email"`
	FirstName    *string        `json:"first_name"`
	LastName     *string        `json:"last_name"`
	Unsubscribed bool           `json:"unsubscribed"`
	CreatedAt    string         `json:"created_at"`
	UpdatedAt    string         `json:"updated_at"`
	Properties   map[string]any `json:"properties" doc:"The values that it has, strings and numbers, by the keys of the properties."`
	Segments     []NamedRow     `json:"segments" doc:"Those that it was added to."`
	Topics       []TopicRow     `json:"topics" doc:"Those that it opted in to or out of."`

	values []scalar.Value // in the order of the columns
}

// NamedRow is a segment.
type NamedRow struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// TopicRow is what a contact chose of a topic.
type TopicRow struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Subscription string `json:"subscription" enum:"opt_in,opt_out"`
}

// lines writes the columns by the names that imports know, then the properties by their keys, and then the columns
// whose names no property can have.
func (c *ContactRow) lines(w *table) {
	w.text(c.Email)
	w.text(orNone(c.FirstName))
	w.text(orNone(c.LastName))
	w.plain(strconv.FormatBool(c.Unsubscribed))
	for _, v := range c.values {
		if v.Type == scalar.Number {
			w.plain(v.Text)
		} else {
			w.text(v.Text)
		}
	}
	w.plain(c.CreatedAt)
	w.plain(c.UpdatedAt)
	w.plain(list(c.Segments))
	w.plain(list(c.Topics))
	w.plain(c.ID)
	w.end()
}

// list writes a list as JSON, and one without elements as "".
func list[T any](all []T) string {
	if len(all) == 0 {
		return ""
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // Structures of strings can be encoded.
	}
	return string(text)
}

// A part of contacts has a number of rows by which its text has about partOctets, because a contact may have a megabyte
// of values.
const (
	partOctets  = 1 << 20
	contactsMin = 10
	contactsMax = 500
)

// Contacts is the list of a team's contacts in a segment, or of all if segmentID is "", as of now, oldest first. The
// segment must be the team's, or the export fails with a NotFound fault.
func (s *Service) Contacts(ctx context.Context, teamID, segmentID string) (*Export, error) {
	names, err := s.contacts.PropertyNames(ctx, teamID)
	if err != nil {
		return nil, err
	}
	e := &Export{Name: "contacts", columns: []string{"email", "first_name", "last_name", "unsubscribed"}}
	e.columns = append(e.columns, names...)
	e.columns = append(e.columns, "contact.created_at", "contact.updated_at", "contact.segments", "contact.topics",
		"contact.id")
	of := s.contacts.AudienceNow(segmentID)
	of.Properties = names
	limit := contactsMin
	e.part = func(ctx context.Context, after string) ([]row, string, error) {
		some, more, err := s.contacts.Profiles(ctx, teamID, of, after, limit)
		next := ""
		if more {
			next = some[len(some)-1].ID
		}
		octets := 0
		rows, next, err := rowsOf(some, next, err, func(p *contacts.Profile) row {
			c := contactRow(p, names)
			octets += c.size()
			return c
		})
		fits := partOctets * max(len(some), 1) / max(octets, 1)
		limit = max(contactsMin, min(fits, 2*limit, contactsMax))
		return rows, next, err
	}
	return e, nil
}

// size is about how many octets a contact has in a file.
func (c *ContactRow) size() int {
	n := 300 + len(c.Email) + 100*len(c.Segments) + 100*len(c.Topics)
	for _, v := range c.values {
		n += len(v.Text) + 1
	}
	return n
}

func contactRow(p *contacts.Profile, names []string) *ContactRow {
	c := &ContactRow{ID: p.ID, Email: p.Address, FirstName: orNull(p.FirstName), LastName: orNull(p.LastName),
		Unsubscribed: p.Unsubscribed, CreatedAt: stamp(p.CreatedAt), UpdatedAt: stamp(p.UpdatedAt),
		Properties: map[string]any{}, Segments: []NamedRow{}, Topics: []TopicRow{},
		values: make([]scalar.Value, len(names))}
	for i, name := range names {
		v := p.Properties[name]
		switch c.values[i] = v; v.Type {
		case scalar.String:
			c.Properties[name] = v.Text
		case scalar.Number:
			c.Properties[name] = v.Number()
		}
	}
	for _, g := range p.Segments {
		c.Segments = append(c.Segments, NamedRow{g.ID, g.Name})
	}
	for _, t := range p.Topics {
		c.Topics = append(c.Topics, TopicRow{t.TopicID, t.Name, string(t.Subscription)})
	}
	return c
}
