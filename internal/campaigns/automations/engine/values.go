package engine

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
)

// Limits on the values in a step's config.
const (
	maxValues     = 1000
	maxReferences = 100 // low, because each reference may be replaced by a whole payload
	maxName       = 200 // maximum length of a reference, in characters
)

// waitEvents is the prefix of names that refer to values in events that the run has received.
const waitEvents = "wait_events."

// value is a JSON value in a config that may contain references. At most one field is set; if the value is null, no
// field is set.
type value struct {
	literal any // a string, a float64 or a bool
	ref     string
	list    []value
	object  map[string]value
}

// valueReader parses values and counts them.
type valueReader struct{ values, references int }

// read parses a value. The parameter levels limits how deeply lists and objects in the value may be nested.
func (r *valueReader) read(path string, text jsontext.Value, levels int) (v value, err error) {
	if r.values++; r.values > maxValues {
		return v, jsonread.Invalidf(path, "is one too many: a step has at most %d values.", maxValues)
	}
	switch text.Kind() {
	case jsontext.KindNull:
		return v, nil
	case jsontext.KindTrue, jsontext.KindFalse:
		v.literal = text.Kind() == jsontext.KindTrue
	case jsontext.KindString:
		v.literal, err = jsonread.Text(path, text, scalar.MaxText)
	case jsontext.KindNumber:
		v.literal, err = jsonread.Number(path, text)
	case jsontext.KindBeginArray:
		if levels == 0 {
			return v, tooDeep(path)
		}
		var items []jsontext.Value
		if items, err = jsonread.List(path, text); err != nil {
			return v, err
		}
		v.list = []value{}
		for i, text := range items {
			item, err := r.read(fmt.Sprintf("%s[%d]", path, i), text, levels-1)
			if err != nil {
				return v, err
			}
			v.list = append(v.list, item)
		}
	case jsontext.KindBeginObject:
		return r.readObject(path, text, levels)
	}
	return v, err
}

func tooDeep(path string) error {
	return jsonread.Invalidf(path, "is nested too deep: use a text, a number, true, false or {\"var\": \"event.KEY\"}.")
}

// readObject parses a JSON object. An object with a member named var is a reference.
func (r *valueReader) readObject(path string, text jsontext.Value, levels int) (v value, err error) {
	o, err := jsonread.ParseObject(path, text)
	if err != nil {
		return v, err
	}
	if _, ok := o.Members["var"]; ok {
		if len(o.Members) > 1 {
			return v, jsonread.Invalidf(path, "must have no member beside `var`, which names another value.")
		}
		if r.references++; r.references > maxReferences {
			return v, jsonread.Invalidf(path, "is one too many: a step has at most %d references.", maxReferences)
		}
		v.ref, err = o.Required("var", maxName)
		return v, err
	}
	if levels == 0 {
		return v, tooDeep(path)
	}
	v.object = map[string]value{}
	for _, name := range slices.Sorted(maps.Keys(o.Members)) {
		member, err := r.read(o.At(name), o.Members[name], levels-1)
		if err != nil {
			return v, err
		}
		v.object[name] = member
	}
	return v, nil
}

func (v value) jsonValue() any {
	switch {
	case v.ref != "":
		return map[string]string{"var": v.ref}
	case v.list != nil:
		all := []any{}
		for _, item := range v.list {
			all = append(all, item.jsonValue())
		}
		return all
	case v.object != nil:
		return jsonValues(v.object)
	}
	return v.literal
}

func jsonValues(values map[string]value) map[string]any {
	all := map[string]any{}
	for name, v := range values {
		all[name] = v.jsonValue()
	}
	return all
}

// check validates the references in a value.
func (v value) check(g *Graph, path string) error {
	if v.ref != "" {
		return g.checkName(path+".var", v.ref)
	}
	for i, item := range v.list {
		if err := item.check(g, fmt.Sprintf("%s[%d]", path, i)); err != nil {
			return err
		}
	}
	return checkValues(g, path, v.object)
}

func checkValues(g *Graph, path string, values map[string]value) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := values[name].check(g, jsonread.Join(path, name)); err != nil {
			return err
		}
	}
	return nil
}

// properties returns references to all contact properties named in a value.
func (v value) properties(path string) (all []Reference) {
	if name, ok := strings.CutPrefix(filter.FullName(v.ref), PropertyPrefix); ok {
		return []Reference{{Field: path + ".var", Kind: RefProperty, ID: name}}
	}
	for i, item := range v.list {
		all = append(all, item.properties(fmt.Sprintf("%s[%d]", path, i))...)
	}
	return append(all, propertyRefs(path, v.object)...)
}

func propertyRefs(path string, values map[string]value) (all []Reference) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, values[name].properties(jsonread.Join(path, name))...)
	}
	return all
}

// references returns the full names of all references in a value.
func (v value) references() (names []string) {
	if v.ref != "" {
		return []string{filter.FullName(v.ref)}
	}
	for _, item := range v.list {
		names = append(names, item.references()...)
	}
	return append(names, valueRefs(v.object)...)
}

func valueRefs(values map[string]value) (names []string) {
	for _, v := range values {
		names = append(names, v.references()...)
	}
	return names
}

// PropertyPrefix is the prefix of the full names of contact properties.
const PropertyPrefix = "contact.properties."

// contactFields are the contact fields other than contact properties that references may name.
var contactFields = map[string]func(c *Contact) any{
	"contact.id":           func(c *Contact) any { return c.ID },
	"contact.email":        func(c *Contact) any { return c.Address },
	"contact.first_name":   func(c *Contact) any { return nilIfEmpty(c.FirstName) },
	"contact.last_name":    func(c *Contact) any { return nilIfEmpty(c.LastName) },
	"contact.unsubscribed": func(c *Contact) any { return c.Unsubscribed },
	"contact.created_at":   func(c *Contact) any { return FormatTime(c.CreatedAt) },
}

func nilIfEmpty(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// checkName returns an error if a name cannot refer to a value.
func (g *Graph) checkName(path, name string) error {
	name = filter.FullName(name)
	if _, ok := contactFields[name]; ok {
		return nil
	}
	for _, beginning := range []string{"event.", PropertyPrefix} {
		if rest, ok := strings.CutPrefix(name, beginning); ok && rest != "" {
			return nil
		}
	}
	why := g.whyUnknown(name)
	if why == "" && strings.HasPrefix(name, waitEvents) {
		return nil
	}
	if why == "" {
		why = "Name `event.KEY`, `wait_events.STEP.KEY`, `contact.email`, `contact.first_name`, `contact.last_name`, " +
			"`contact.id`, `contact.unsubscribed`, `contact.created_at` or `contact.properties.KEY`."
	}
	return jsonread.Invalidf(path, "is %s, which names no value. %s", jsonread.Quote(name), why)
}

// If a name refers to an event value that cannot exist, whyUnknown returns advice for the user. For all other names,
// whyUnknown returns "".
func (g *Graph) whyUnknown(name string) string {
	switch rest, ok := strings.CutPrefix(name, waitEvents); {
	case name == "event" || name == "event.":
		return "Name what the event has, as in `event.plan`."
	case !ok:
		return ""
	default:
		for i := range rest {
			if _, known := g.waitNames[rest[:i]]; known && rest[i] == '.' && i+1 < len(rest) {
				return ""
			}
		}
		return "Name the key of a step of the type `wait_for_event`, and what its event has: `wait_events.STEP.plan`."
	}
}

// stepContext contains a run, its current step and the facts for planning that step.
type stepContext struct {
	g     *Graph
	step  *Step
	run   *Run
	facts Facts
}

// resolve replaces the references in a value with the values that they refer to. The first result is nil, a string, a
// number, a bool, a list or an object. The second result is false if the value is itself a reference to a value that
// does not exist. Inside lists and objects, references to missing values are omitted.
func (m *stepContext) resolve(v value) (any, bool) {
	switch {
	case v.ref != "":
		found := m.lookUp(v.ref)
		return found, found != nil
	case v.list != nil:
		all := []any{}
		for _, item := range v.list {
			if x, ok := m.resolve(item); ok {
				all = append(all, x)
			}
		}
		return all, true
	case v.object != nil:
		all := map[string]any{}
		for name, item := range v.object {
			if x, ok := m.resolve(item); ok {
				all[name] = x
			}
		}
		return all, true
	}
	return v.literal, true
}

// lookUp returns the value that a name refers to, or nil if the value does not exist.
func (m *stepContext) lookUp(name string) any {
	name = filter.FullName(name)
	if path, ok := strings.CutPrefix(name, "event."); ok {
		return member(m.run.Event.Payload, path)
	}
	if path, ok := strings.CutPrefix(name, waitEvents); ok {
		return m.received(path)
	}
	c := m.facts.Contact
	if c == nil {
		return nil
	}
	if get, ok := contactFields[name]; ok {
		return get(c)
	}
	key, _ := strings.CutPrefix(name, PropertyPrefix)
	switch v := c.Properties[key]; v.Type {
	case scalar.String:
		return nilIfEmpty(v.Text)
	case scalar.Number:
		return v.Number()
	}
	return nil
}

// received returns a value from an event that the run has received. The path begins with the key of the step that
// waited, or with the name of the event. If several received events have the same name, received uses the latest one.
func (m *stepContext) received(path string) any {
	var best string
	for key := range m.run.Received {
		if strings.HasPrefix(path, key+".") && len(key) > len(best) {
			best = key
		}
	}
	if best != "" {
		return member(m.run.Received[best].Payload, path[len(best)+1:])
	}
	var last *Event
	var rest string
	for _, key := range slices.Sorted(maps.Keys(m.run.Received)) {
		e := m.run.Received[key]
		step, _ := m.g.config(key).(waitForEvent)
		for _, name := range []string{e.Name, step.event} {
			if strings.HasPrefix(path, name+".") && (last == nil || e.At.After(last.At)) {
				last, rest = &e, path[len(name)+1:]
			}
		}
	}
	if last == nil {
		return nil
	}
	return member(last.Payload, rest)
}

// config returns the config of the step with the given key, or nil if no step has the key.
func (g *Graph) config(key string) config {
	if s := g.step(key); s != nil {
		return s.config
	}
	return nil
}

// member returns the value at a path in a payload, such as user.name, or nil if there is no such value. The keys in the
// payload may themselves contain dots.
func member(payload map[string]any, path string) any {
	if v, ok := payload[path]; ok {
		return v
	}
	for i := range path {
		if path[i] != '.' {
			continue
		}
		if sub, ok := payload[path[:i]].(map[string]any); ok {
			if v := member(sub, path[i+1:]); v != nil {
				return v
			}
		}
	}
	return nil
}

// fieldValue converts a payload value into the type that is compared in rules.
func fieldValue(v any) filter.Value {
	switch v := v.(type) {
	case nil:
		return filter.Value{}
	case string:
		return filter.TextValue(v)
	case float64:
		return filter.NumberValue(v)
	case bool:
		return filter.BoolValue(v)
	}
	return filter.OtherValue()
}

// textOf converts a string, number or bool, or a list of these, to a string. For other values, textOf returns false.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case float64:
		return scalar.OfNumber(v).Text, true
	case bool:
		return strconv.FormatBool(v), true
	case []any:
		return joinList(v)
	}
	return "", false
}

// joinList joins the strings, numbers and bools in a list into a comma-separated string and ignores nulls. If the list
// contains objects or lists, joinList returns false.
func joinList(list []any) (string, bool) {
	var all []string
	for _, item := range list {
		if item == nil {
			continue
		}
		if _, nested := item.([]any); nested {
			return "", false
		}
		text, ok := textOf(item)
		if !ok {
			return "", false
		}
		all = append(all, text)
	}
	return strings.Join(all, ", "), true
}

// TextSize returns the approximate size of a value's JSON in bytes, or a number greater than limit if the size exceeds
// limit. Each number counts as 24 bytes, which is the maximum length of a number in JSON.
func TextSize(v any, limit int) (n int) {
	switch v := v.(type) {
	case string:
		return len(v)
	case []any:
		for _, item := range v {
			if n += 2 + TextSize(item, limit-n); n > limit {
				break
			}
		}
		return n
	case map[string]any:
		for name, item := range v {
			if n += 2 + len(name) + TextSize(item, limit-n); n > limit {
				break
			}
		}
		return n
	}
	return 24
}

// FormatTime formats a time for step outputs and webhook bodies.
func FormatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }
