package exports

import (
	"context"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
)

// ContactRow is the exported form of a contact with its properties, segments and topics.
type ContactRow struct {
	ID           string         `json:"id"`
	Email        string         `json:"email"`
	FirstName    *string        `json:"first_name"`
	LastName     *string        `json:"last_name"`
	Unsubscribed bool           `json:"unsubscribed"`
	CreatedAt    string         `json:"created_at"`
	UpdatedAt    string         `json:"updated_at"`
	Properties   map[string]any `json:"properties" doc:"The contact's values, strings and numbers, by property key."`
	Segments     []NamedRow     `json:"segments" doc:"The segments that the contact was added to."`
	Topics       []TopicRow     `json:"topics" doc:"The topics that the contact opted in to or out of."`

	values []scalar.Value // in column order
}

// NamedRow is a segment of an exported contact.
type NamedRow struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// TopicRow is an exported contact's choice for a topic.
type TopicRow struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Subscription string `json:"subscription" enum:"opt_in,opt_out"`
}

func (c *ContactRow) at() string { return c.CreatedAt }

// lines writes the columns that imports recognize, then the properties in key order, and then columns whose names no
// property can have.
func (c *ContactRow) lines(w *table) {
	w.text(c.Email)
	w.text(orEmptyString(c.FirstName))
	w.text(orEmptyString(c.LastName))
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

// list encodes a list as JSON, or returns "" if the list is empty.
func list[T any](all []T) string {
	if len(all) == 0 {
		return ""
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic(err) // structs of strings can always be encoded
	}
	return string(text)
}

// Contact exports choose the number of rows per batch so that each batch contains about batchBytes of text. A single
// contact may have a megabyte of property values.
const (
	batchBytes  = 1 << 20
	contactsMin = 10
	contactsMax = 500
)

// Contacts exports the current contacts of a segment, or all contacts of the team if segmentID is "", oldest first. If
// the team does not have the segment, the export fails with a NotFound fault.
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
	e.readBatch = func(ctx context.Context, after string) ([]row, string, error) {
		some, more, err := s.contacts.Profiles(ctx, teamID, of, after, limit)
		next := ""
		if more {
			next = some[len(some)-1].ID
		}
		size := 0
		rows, next, err := toRows(some, next, err, func(p *contacts.Profile) row {
			c := contactRow(p, names)
			size += c.size()
			return c
		})
		fits := batchBytes * max(len(some), 1) / max(size, 1)
		limit = max(contactsMin, min(fits, 2*limit, contactsMax))
		return rows, next, err
	}
	return e, nil
}

// size estimates how many bytes a contact occupies in an export file.
func (c *ContactRow) size() int {
	n := 300 + len(c.Email) + 100*len(c.Segments) + 100*len(c.Topics)
	for _, v := range c.values {
		n += len(v.Text) + 1
	}
	return n
}

func contactRow(p *contacts.Profile, names []string) *ContactRow {
	c := &ContactRow{ID: p.ID, Email: p.Address, FirstName: orNull(p.FirstName), LastName: orNull(p.LastName),
		Unsubscribed: p.Unsubscribed, CreatedAt: formatTime(p.CreatedAt), UpdatedAt: formatTime(p.UpdatedAt),
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
