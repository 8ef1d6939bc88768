package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/id"
)

// MaxContactName is the maximum length of a first or last name, in characters.
const MaxContactName = 255

// contactUpdate is the config of a step that changes the contact. A nil field leaves the contact's field unchanged, and
// a null value clears the contact's field.
type contactUpdate struct {
	plain
	firstName, lastName, unsubscribed *value
	properties                        map[string]value
}

func readContactUpdate(o jsonread.Object) (config, error) {
	c := contactUpdate{}
	r := &valueReader{}
	var err error
	if c.firstName, err = readContactName(o, "first_name", r); err != nil {
		return nil, err
	}
	if c.lastName, err = readContactName(o, "last_name", r); err != nil {
		return nil, err
	}
	if o.Has("unsubscribed") {
		v, err := r.read(o.At("unsubscribed"), o.Members["unsubscribed"], 0)
		if err != nil {
			return nil, err
		}
		if _, ok := v.literal.(bool); !ok && v.ref == "" {
			return nil, jsonread.Invalidf(o.At("unsubscribed"), "must be true, false or {\"var\": \"event.KEY\"}.")
		}
		c.unsubscribed = &v
	}
	if err := c.readProperties(o, r); err != nil {
		return nil, err
	}
	if c.firstName == nil && c.lastName == nil && c.unsubscribed == nil && len(c.properties) == 0 {
		return nil, jsonread.Invalidf(o.Path, "must have one of `first_name`, `last_name`, `unsubscribed` and `properties`.")
	}
	return c, nil
}

func readContactName(o jsonread.Object, name string, r *valueReader) (*value, error) {
	text, ok := o.Members[name]
	if !ok {
		return nil, nil
	}
	v, err := r.read(o.At(name), text, 0)
	if err != nil {
		return nil, err
	}
	if s, ok := v.literal.(string); v.literal != nil && (!ok || !isContactName(s)) {
		return nil, jsonread.Invalidf(o.At(name), "must be a text of at most %d characters without line breaks, null or "+
			"{\"var\": \"event.KEY\"}.", MaxContactName)
	}
	return &v, nil
}

// isContactName reports whether a string is allowed as a first or last name, according to the rules of package
// contacts.
func isContactName(text string) bool {
	return utf8.RuneCountInString(text) <= MaxContactName && !strings.ContainsAny(text, "\r\n")
}

func (c *contactUpdate) readProperties(o jsonread.Object, r *valueReader) error {
	if !o.Has("properties") {
		return nil
	}
	p, err := o.Object("properties")
	if err != nil {
		return err
	}
	c.properties = map[string]value{}
	for _, name := range slices.Sorted(maps.Keys(p.Members)) {
		v, err := r.read(p.At(name), p.Members[name], 0)
		if err != nil {
			return err
		}
		if name == "" {
			return jsonread.Invalidf(p.Path, "has a member without a name.")
		}
		if is, ok := v.literal.(bool); ok { // client libraries accept a bool, but contact properties have no boolean type
			v.literal = strconv.FormatBool(is)
		}
		c.properties[name] = v
	}
	return nil
}

// namedValue is a config member's value together with its name.
type namedValue struct {
	name string
	v    *value
}

// givenFields returns the contact fields that the config sets, without the contact properties.
func (c contactUpdate) givenFields() []namedValue {
	all := []namedValue{{"first_name", c.firstName}, {"last_name", c.lastName}, {"unsubscribed", c.unsubscribed}}
	return slices.DeleteFunc(all, func(m namedValue) bool { return m.v == nil })
}

func (c contactUpdate) check(g *Graph, path string) error {
	for _, m := range c.givenFields() {
		if err := m.v.check(g, path+"."+m.name); err != nil {
			return err
		}
	}
	return checkValues(g, path+".properties", c.properties)
}

func (c contactUpdate) references(path string) (all []Reference) {
	for _, name := range slices.Sorted(maps.Keys(c.properties)) {
		r := Reference{Field: jsonread.Join(path+".properties", name), Kind: RefProperty, ID: name}
		switch v := c.properties[name].literal.(type) {
		case string:
			r.Literal = scalar.OfText(v)
		case float64:
			r.Literal = scalar.OfNumber(v)
		}
		all = append(all, r)
	}
	for _, m := range c.givenFields() {
		all = append(all, m.v.properties(path+"."+m.name)...)
	}
	return append(all, propertyRefs(path+".properties", c.properties)...)
}

func (c contactUpdate) referencedNames() []string {
	names := valueRefs(c.properties)
	for _, m := range c.givenFields() {
		names = append(names, m.v.references()...)
	}
	return names
}

func (c contactUpdate) plan(m *stepContext) (Action, error) {
	if m.facts.Contact == nil {
		return Action{Skipped: NoContact}, nil
	}
	u := &Update{Properties: map[string]scalar.Value{}}
	var changed []any
	failed := m.resolveName(c.firstName, "first_name", &u.FirstName, &changed)
	if failed == nil {
		failed = m.resolveName(c.lastName, "last_name", &u.LastName, &changed)
	}
	if failed == nil && c.unsubscribed != nil {
		changed = append(changed, "unsubscribed")
		u.Unsubscribed, failed = m.resolveBool(*c.unsubscribed)
	}
	for _, name := range slices.Sorted(maps.Keys(c.properties)) {
		if failed != nil {
			break
		}
		changed = append(changed, jsonread.Join("properties", name))
		u.Properties[name], failed = m.resolveScalar(c.properties[name], jsonread.Join("properties", name))
	}
	if failed != nil {
		return Action{Failure: failed}, nil
	}
	return Action{Effect: u, Output: map[string]any{"changed": changed}}, nil
}

// resolveName resolves a value to a first or last name. A null value becomes an empty name.
func (m *stepContext) resolveName(v *value, name string, to **string, changed *[]any) *Failure {
	if v == nil {
		return nil
	}
	*changed = append(*changed, name)
	got, failed := m.resolveScalar(*v, name)
	if failed == nil && !isContactName(got.Text) {
		failed = &Failure{NameUnusable, fmt.Sprintf("The value for `%s` is longer than %d characters, or has line "+
			"breaks.", name, MaxContactName)}
	}
	*to = &got.Text
	return failed
}

// resolveScalar resolves a value to a string or a number. A null value becomes the zero [scalar.Value].
func (m *stepContext) resolveScalar(v value, what string) (scalar.Value, *Failure) {
	got, ok := m.resolve(v)
	if !ok {
		return scalar.Value{}, missing(v.ref, what)
	}
	switch got := got.(type) {
	case nil:
		return scalar.Value{}, nil
	case float64:
		return scalar.OfNumber(got), nil
	default:
		text, ok := textOf(got)
		if !ok {
			return scalar.Value{}, &Failure{WrongValue, "The value `" + v.ref + "` for `" + what +
				"` is an object, or a list of such. Name one of its members, as in `event.order.total`."}
		}
		return scalar.OfText(text), nil
	}
}

// resolveBool resolves a value to true or false. The strings "true" and "false" are also accepted.
func (m *stepContext) resolveBool(v value) (*bool, *Failure) {
	got, ok := m.resolve(v)
	if !ok {
		return nil, missing(v.ref, "unsubscribed")
	}
	switch got {
	case true, "true":
		return new(true), nil
	case false, "false":
		return new(false), nil
	}
	return nil, &Failure{NotBoolean, "The value `" + v.ref + "` for `unsubscribed` is neither true nor false."}
}

func missing(ref, what string) *Failure {
	return &Failure{Unresolved, "There is no value `" + ref + "` for `" + what + "`. Check for it in a condition before."}
}

func (c contactUpdate) jsonValue() any {
	w := map[string]any{}
	for _, m := range c.givenFields() {
		w[m.name] = m.v.jsonValue()
	}
	if c.properties != nil {
		w["properties"] = jsonValues(c.properties)
	}
	return w
}

// contactDelete is the config of a step that deletes the contact.
type contactDelete struct{ plain }

func (contactDelete) plan(m *stepContext) (Action, error) {
	if m.facts.Contact == nil {
		return Action{Skipped: NoContact}, nil
	}
	return Action{Effect: Deletion{}}, nil
}

func (contactDelete) jsonValue() any { return map[string]any{} }

// addToSegment is the config of a step that adds the contact to a segment.
type addToSegment struct {
	plain
	segment string
}

func readAddToSegment(o jsonread.Object) (config, error) {
	segment, err := o.Required("segment_id", MaxKey)
	if err == nil && !id.Valid(segment) {
		err = jsonread.Invalidf(o.At("segment_id"), "must be the id of a segment, which is a UUID.")
	}
	return addToSegment{segment: strings.ToLower(segment)}, err
}

func (c addToSegment) references(path string) []Reference {
	return []Reference{{Field: path + ".segment_id", Kind: RefSegment, ID: c.segment}}
}

func (c addToSegment) plan(m *stepContext) (Action, error) {
	if m.facts.Contact == nil {
		return Action{Skipped: NoContact}, nil
	}
	return Action{Effect: &Addition{c.segment}, Output: map[string]any{"segment_id": c.segment}}, nil
}

func (c addToSegment) jsonValue() any { return map[string]any{"segment_id": c.segment} }
