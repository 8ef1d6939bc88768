package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/id"
)

// Limits on the fields of an email step, in characters unless a comment says otherwise. The limits on templates are
// stricter and in bytes.
const (
	maxTemplate  = 255
	maxSubject   = 998
	MaxMailbox   = 2000
	maxVariables = 200       // maximum number of variables; each member of an object counts as one
	maxVariable  = 512 << 10 // maximum total size of all variables and their names in bytes, as in package emails
)

// email is the config of a step that sends an email from a template.
type email struct {
	plain
	template, topic        string
	variables              map[string]value
	from, subject, replyTo string
}

func readEmail(o jsonread.Object) (config, error) {
	if err := o.Renamed("template_id", "template.id"); err != nil {
		return nil, err
	}
	t, err := o.Object("template")
	if err != nil {
		return nil, err
	}
	c := email{}
	if c.template, err = t.Required("id", maxTemplate); err != nil {
		return nil, err
	}
	if t.Has("variables") {
		if c.variables, err = readVariables(t.At("variables"), t.Members["variables"]); err != nil {
			return nil, err
		}
	}
	for _, member := range []struct {
		name  string
		to    *string
		limit int
	}{{"from", &c.from, MaxMailbox}, {"subject", &c.subject, maxSubject}, {"reply_to", &c.replyTo, MaxMailbox},
		{"topic_id", &c.topic, MaxKey}} {
		if *member.to, err = o.Optional(member.name, member.limit); err != nil {
			return nil, err
		}
	}
	if c.topic != "" && !id.Valid(c.topic) {
		return nil, jsonread.Invalidf(o.At("topic_id"), "must be the id of a topic, which is a UUID.")
	}
	c.topic = strings.ToLower(c.topic)
	return c, nil
}

func readVariables(path string, text jsontext.Value) (map[string]value, error) {
	o, err := jsonread.ParseObject(path, text)
	if err != nil {
		return nil, err
	}
	all, r := map[string]value{}, &valueReader{}
	for _, name := range slices.Sorted(maps.Keys(o.Members)) {
		if name == "" || len(name) > maxName {
			return nil, jsonread.Invalidf(path, "names a variable by %d bytes; a name has 1 to %d.", len(name), maxName)
		}
		// A variable may be an object that contains lists. A null value leaves the variable unset.
		v, err := r.read(o.At(name), o.Members[name], 2)
		if err != nil {
			return nil, err
		}
		if o.Has(name) {
			all[name] = v
		}
	}
	if len(variableNames(all)) > maxVariables {
		return nil, jsonread.Invalidf(path, "gives %d variables; the limit is %d.", len(variableNames(all)), maxVariables)
	}
	return all, nil
}

// variableNames returns the names by which a template refers to the variables. A member of an object is called
// OBJECT_MEMBER, because templates cannot declare names with dots.
func variableNames(variables map[string]value) (names []string) {
	for name, v := range variables {
		if v.object == nil {
			names = append(names, name)
		}
		for _, sub := range variableNames(v.object) {
			names = append(names, name+"_"+sub)
		}
	}
	slices.Sort(names)
	return names
}

func (c email) check(g *Graph, path string) error {
	return checkValues(g, path+".template.variables", c.variables)
}

func (c email) references(path string) []Reference {
	all := []Reference{{Field: path + ".template.id", Kind: RefTemplate, ID: c.template,
		Names: variableNames(c.variables), Literals: literals(c.variables), From: c.from,
		Subject: c.subject, ReplyTo: c.replyTo}}
	for _, r := range []Reference{
		{Field: path + ".topic_id", Kind: RefTopic, ID: c.topic},
		{Field: path + ".from", Kind: RefSender, ID: c.from},
		{Field: path + ".reply_to", Kind: RefReplyTo, ID: c.replyTo},
	} {
		if r.ID != "" {
			all = append(all, r)
		}
	}
	return append(all, propertyRefs(path+".template.variables", c.variables)...)
}

func (c email) referencedNames() []string { return valueRefs(c.variables) }

func (c email) plan(m *stepContext) (Action, error) {
	switch {
	case m.facts.Contact == nil:
		return Action{Skipped: NoContact}, nil
	case m.facts.Contact.Unsubscribed:
		return Action{Skipped: IsUnsubscribed}, nil
	}
	all := variables{values: map[string]scalar.Value{}}
	for _, name := range slices.Sorted(maps.Keys(c.variables)) {
		// A variable without a value is omitted, so that the template's fallback is used.
		if v, ok := m.resolve(c.variables[name]); ok {
			all.add(name, v)
		}
	}
	switch {
	case len(all.values) > maxVariables:
		return Action{Failure: &Failure{TooManyVariables, "The objects that the variables name have too many members. Name " +
			"what the template needs, as in `event.order.total`."}}, nil
	case all.size > maxVariable:
		return Action{Failure: &Failure{VariablesTooLarge, fmt.Sprintf("The variables have more than %d bytes together. "+
			"Name what the template needs, as in `event.order.total`.", maxVariable)}}, nil
	}
	return Action{Effect: &Email{TemplateID: c.template, TopicID: c.topic, Variables: all.values, From: c.from,
		Subject: c.subject, ReplyTo: c.replyTo}}, nil
}

// variables collects the variables for an email and their total size in bytes. Once a limit has been exceeded, no more
// variables are added.
type variables struct {
	values map[string]scalar.Value
	size   int
}

// add adds a variable. If the value is an object, each of its members becomes a variable. Values that cannot be
// converted to strings are omitted.
func (all *variables) add(name string, v any) {
	if len(all.values) > maxVariables || all.size > maxVariable {
		return
	}
	switch v := v.(type) {
	case float64:
		all.values[name] = scalar.OfNumber(v)
		all.size += len(name) + len(all.values[name].Text)
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			all.add(name+"_"+key, v[key])
		}
	default:
		// The size is checked before the string is created, because many variables may refer to the same long list.
		all.size += len(name) + TextSize(v, maxVariable)
		if all.size > maxVariable {
			return
		}
		if text, ok := textOf(v); ok {
			all.values[name] = scalar.OfText(text)
		}
	}
}

func (c email) jsonValue() any {
	template := map[string]any{"id": c.template}
	if c.variables != nil {
		template["variables"] = jsonValues(c.variables)
	}
	w := map[string]any{"template": template}
	for name, text := range map[string]string{"from": c.from, "subject": c.subject, "reply_to": c.replyTo,
		"topic_id": c.topic} {
		if text != "" {
			w[name] = text
		}
	}
	return w
}
