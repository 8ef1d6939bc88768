package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
)

// Ids used in simulations: the default id of the simulated contact, and the id of the email in simulated email events.
const (
	simulatedContactID = "00000000-0000-7000-8000-000000000001"
	simulatedEmailID   = "00000000-0000-7000-8000-000000000002"
)

// person is the simulated contact. The properties of a person do not include fallback values.
type person struct {
	engine.Contact
	segments   []string
	topics     map[string]string // opt_in or opt_out, keyed by topic id
	engagement map[string]any    // numbers and times, keyed by field name
}

// change is a change that the scenario makes to the simulated contact. A nil field leaves the corresponding field of
// the contact unchanged.
type change struct {
	path                         string
	address, firstName, lastName *string
	unsubscribed                 *bool
	properties                   map[string]scalar.Value // the zero Value clears the property
	joins, leaves                []string                // segments
	topics                       map[string]string
	engagement                   map[string]any
}

// Names of the members that a contact and a change to a contact may have in a scenario.
var (
	contactMembers = []string{"email", "first_name", "last_name", "unsubscribed", "properties", "segments", "topics",
		"engagement"}
	personMembers = append(slices.Clone(contactMembers), "id", "created_at")
	changeMembers = append(slices.Clone(contactMembers), "left_segments")
	engagements   = []string{"mailed", "opened", "clicked"}
)

func readPerson(o jsonread.Object, start time.Time) (p *person, err error) {
	if err := o.Only(personMembers...); err != nil {
		return nil, err
	}
	if _, err = o.Required("email", engine.MaxMailbox); err != nil {
		return nil, err
	}
	p = &person{Contact: engine.Contact{ID: simulatedContactID, Properties: map[string]scalar.Value{}},
		topics: map[string]string{}}
	if text, err := o.Optional("id", engine.MaxKey); err != nil {
		return nil, err
	} else if text != "" {
		p.ID = text
	}
	if p.CreatedAt, err = readTime(o, "created_at", start); err != nil {
		return nil, err
	}
	c, err := readChange(o, start)
	if err != nil {
		return nil, err
	}
	p.apply(c)
	return p, nil
}

// readChange parses the contact fields of a change. A null value clears a name or a property. Phrases such as "in 2
// days" are relative to the given time.
func readChange(o jsonread.Object, from time.Time) (c *change, err error) {
	c = &change{path: o.Path}
	if o.Has("email") {
		text, err := o.Required("email", engine.MaxMailbox)
		if err != nil {
			return nil, err
		}
		a, err := message.ParseAddress(text)
		if err != nil {
			return nil, jsonread.Invalidf(o.At("email"), "is no address such as `email@example.com`: %s.",
				strings.TrimSuffix(err.Error(), "."))
		}
		c.address = new(a.Key())
	}
	for name, to := range map[string]**string{"first_name": &c.firstName, "last_name": &c.lastName} {
		if _, ok := o.Members[name]; ok {
			text, err := o.Optional(name, engine.MaxContactName)
			if err != nil {
				return nil, err
			}
			*to = &text
		}
	}
	if o.Has("unsubscribed") {
		c.unsubscribed = new(bool)
		if json.Unmarshal(o.Members["unsubscribed"], c.unsubscribed) != nil {
			return nil, jsonread.Invalidf(o.At("unsubscribed"), "must be true or false.")
		}
	}
	if err := c.readProperties(o); err != nil {
		return nil, err
	}
	if c.joins, err = readSegments(o, "segments"); err != nil {
		return nil, err
	}
	if c.leaves, err = readSegments(o, "left_segments"); err != nil {
		return nil, err
	}
	if c.topics, err = readTopics(o); err != nil {
		return nil, err
	}
	if len(c.properties) > maxMembers || len(c.joins) > maxMembers || len(c.topics) > maxMembers {
		return nil, jsonread.Invalidf(o.Path, "has more than %d properties, segments or topics.", maxMembers)
	}
	return c, c.readEngagement(o, from)
}

func (c *change) readProperties(o jsonread.Object) error {
	if !o.Has("properties") {
		return nil
	}
	members, err := o.Object("properties")
	if err != nil {
		return err
	}
	c.properties = map[string]scalar.Value{}
	for _, name := range slices.Sorted(maps.Keys(members.Members)) {
		if c.properties[name], err = readScalar(members.At(name), members.Members[name]); err != nil {
			return err
		}
	}
	return nil
}

// readScalar parses a JSON string, number or null; null becomes the zero Value.
func readScalar(path string, text jsontext.Value) (v scalar.Value, err error) {
	switch text.Kind() {
	case jsontext.KindNull:
		return v, nil
	case jsontext.KindNumber:
		n, err := jsonread.Number(path, text)
		return scalar.OfNumber(n), err
	}
	s, err := jsonread.Text(path, text, scalar.MaxText)
	return scalar.OfText(s), err
}

func readSegments(o jsonread.Object, name string) (all []string, err error) {
	items, err := o.List(name)
	if err != nil {
		return nil, err
	}
	for i, text := range items {
		segment, err := jsonread.Line(fmt.Sprintf("%s[%d]", o.At(name), i), text, engine.MaxKey)
		if err != nil {
			return nil, err
		}
		all = append(all, strings.ToLower(segment))
	}
	return all, nil
}

// readTopics parses topic choices (opt_in or opt_out), keyed by topic id.
func readTopics(o jsonread.Object) (map[string]string, error) {
	if !o.Has("topics") {
		return nil, nil
	}
	members, err := o.Object("topics")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, topic := range slices.Sorted(maps.Keys(members.Members)) {
		choice, err := members.Required(topic, engine.MaxKey)
		if err != nil {
			return nil, err
		}
		if !id.Valid(topic) || choice != "opt_in" && choice != "opt_out" {
			return nil, jsonread.Invalidf(members.At(topic), "must be `opt_in` or `opt_out` by the id of a topic.")
		}
		all[strings.ToLower(topic)] = choice
	}
	return all, nil
}

// readEngagement parses how many emails the contact received, opened and clicked, and the times of the last ones.
func (c *change) readEngagement(o jsonread.Object, from time.Time) error {
	if !o.Has("engagement") {
		return nil
	}
	members, err := o.Object("engagement")
	if err != nil {
		return err
	}
	if err := members.Only(engagements[0], engagements[1], engagements[2], "mailed_at", "opened_at",
		"clicked_at"); err != nil {
		return err
	}
	c.engagement = map[string]any{}
	for _, name := range engagements {
		if members.Has(name) {
			if c.engagement[name], err = jsonread.Number(members.At(name), members.Members[name]); err != nil {
				return err
			}
		}
		if name += "_at"; members.Has(name) {
			if c.engagement[name], err = readTime(members, name, from); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply applies a change to the simulated contact. The result is the change for which system events occur, or nil if
// nothing except the engagement has changed.
func (p *person) apply(c *change) *engine.ContactChange {
	h, changed := &engine.ContactChange{Topics: map[string]bool{}}, false
	for _, f := range []struct{ of, to *string }{{&p.Address, c.address}, {&p.FirstName, c.firstName},
		{&p.LastName, c.lastName}} {
		if f.to != nil && *f.of != *f.to {
			*f.of, changed = *f.to, true
		}
	}
	if c.unsubscribed != nil && p.Unsubscribed != *c.unsubscribed {
		p.Unsubscribed, h.Switched, changed = *c.unsubscribed, true, true
	}
	for name, v := range c.properties {
		if p.Properties[name] == v {
			continue
		}
		if changed = true; v == (scalar.Value{}) {
			delete(p.Properties, name)
		} else {
			p.Properties[name] = v
		}
	}
	for _, segment := range c.joins {
		if !slices.Contains(p.segments, segment) {
			p.segments, changed = append(p.segments, segment), true
		}
	}
	for _, segment := range c.leaves {
		if i := slices.Index(p.segments, segment); i >= 0 {
			p.segments, changed = slices.Delete(p.segments, i, i+1), true
		}
	}
	for topic, choice := range c.topics {
		if p.topics[topic] != choice {
			p.topics[topic], h.Topics[topic], changed = choice, choice == "opt_in", true
		}
	}
	p.setEngagement(c.engagement)
	if !changed {
		return nil
	}
	return h
}

func (p *person) setEngagement(known map[string]any) {
	all := maps.Clone(p.engagement)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, known)
	p.engagement = all
}

// countEngagement increments an engagement counter, such as opened, and sets the counter's time.
func (p *person) countEngagement(name string, at time.Time) {
	n, _ := p.engagement[name].(float64)
	p.setEngagement(map[string]any{name: n + 1, name + "_at": at})
}

func (p *person) copy() *person {
	c := *p
	c.Properties, c.segments, c.topics = maps.Clone(p.Properties), slices.Clone(p.segments), maps.Clone(p.topics)
	return &c
}

// toReport converts the simulated contact into the form used in reports.
func (p *person) toReport() *Person {
	if p == nil {
		return nil
	}
	return &Person{p.ID, p.Address, p.FirstName, p.LastName, p.Unsubscribed, plainValues(p.Properties),
		append([]string{}, p.segments...), p.topics}
}

func plainValues(values map[string]scalar.Value) map[string]any {
	all := map[string]any{}
	for name, v := range values {
		if all[name] = v.Text; v.Type == scalar.Number {
			all[name] = v.Number()
		}
	}
	return all
}

// Contact fields that rules may use; they are the same as in package contacts.
var (
	personFields = map[string]filter.Field{
		"contact.email":        {Type: filter.TextField, Lower: true},
		"contact.first_name":   {Type: filter.TextField},
		"contact.last_name":    {Type: filter.TextField},
		"contact.unsubscribed": {Type: filter.BoolField, Default: filter.BoolValue(false)},
		"contact.created_at":   {Type: filter.TimeField},
		"contact.segments":     {Type: filter.SetField, Lower: true},
	}
	count = filter.Field{Type: filter.NumberField, Default: filter.NumberValue(0)}
)

const (
	contactTopic      = "contact.topics."
	contactEngagement = "contact.engagement."
)

// schema returns the schema of the contact fields that a rule names, for simulations without a team. An undeclared
// contact property has the type of its value. An undeclared property without a value can be compared with values of any
// type.
func (p *person) schema(w *World, rule *filter.Rule) filter.Schema {
	schema := filter.Schema{Fields: maps.Clone(personFields)}
	for _, name := range rule.Fields() {
		if key, ok := strings.CutPrefix(name, engine.PropertyPrefix); ok {
			kind := w.Properties[key].Type
			if kind == "" {
				kind = p.Properties[key].Type
			}
			schema.Fields[name] = propertyField(kind)
		} else if key, ok := strings.CutPrefix(name, contactTopic); ok {
			schema.Fields[name] = filter.Field{Type: filter.ChoiceField,
				Default: filter.TextValue(w.Topics[strings.ToLower(key)])}
		} else if key, ok := strings.CutPrefix(name, contactEngagement); ok {
			if schema.Fields[name] = count; strings.HasSuffix(key, "_at") {
				schema.Fields[name] = filter.Field{Type: filter.TimeField}
			}
		}
	}
	return schema
}

func propertyField(kind scalar.Type) filter.Field {
	switch kind {
	case scalar.Number:
		return filter.Field{Type: filter.NumberField}
	case scalar.String:
		return filter.Field{Type: filter.TextField}
	}
	return filter.Field{Type: filter.AnyField}
}

// field returns the value of a contact field, given the name that rules use for it.
func (p *person) field(name string) filter.Value {
	switch name {
	case "contact.email":
		return filter.TextValue(p.Address)
	case "contact.first_name":
		return filter.TextValue(p.FirstName)
	case "contact.last_name":
		return filter.TextValue(p.LastName)
	case "contact.unsubscribed":
		return filter.BoolValue(p.Unsubscribed)
	case "contact.created_at":
		return filter.TimeValue(p.CreatedAt)
	case "contact.segments":
		return filter.ListValue(p.segments)
	}
	if key, ok := strings.CutPrefix(name, engine.PropertyPrefix); ok {
		switch v := p.Properties[key]; v.Type {
		case scalar.Number:
			return filter.NumberValue(v.Number())
		case scalar.String:
			return filter.TextValue(v.Text)
		}
	} else if key, ok := strings.CutPrefix(name, contactTopic); ok && p.topics[strings.ToLower(key)] != "" {
		return filter.TextValue(p.topics[strings.ToLower(key)])
	} else if key, ok := strings.CutPrefix(name, contactEngagement); ok {
		switch v := p.engagement[key].(type) {
		case float64:
			return filter.NumberValue(v)
		case time.Time:
			return filter.TimeValue(v)
		}
	}
	return filter.Value{}
}
