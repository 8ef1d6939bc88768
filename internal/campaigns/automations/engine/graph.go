package engine

import (
	"errors"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
)

// Graph is a validated, immutable graph of steps. A Graph is safe for concurrent use.
type Graph struct {
	Steps       []Step
	Connections []Connection

	index     map[string]int      // index in Steps, keyed by step key
	next      map[exit]string     // key of the step to which a connection leads
	waitNames map[string]struct{} // keys and event names of wait steps; these may follow "wait_events." in a name
	ruleNames []string            // prefixes of names that rules may use in addition to contact fields
	waitPaths []string            // names by which steps refer to received events, without the prefix "wait_events."
}

// Step is a step of a graph.
type Step struct {
	Key  string
	Type Type

	config config
}

// Connection leads from a step to the next one. A run follows the connection if the outcome of the step matches the
// connection's type.
type Connection struct {
	From string `json:"from"`
	To   string `json:"to"`
	Type string `json:"type"`
}

// exit identifies a connection by its type and the key of the step from which it leads.
type exit struct{ from, by string }

// config is the configuration of a step. Each step type has its own implementation of config.
type config interface {
	// exits returns the types of the connections that may leave the step.
	exits() []string

	// check validates everything that depends on the whole graph, such as references to other steps. The parameter path is
	// the config's path in the request.
	check(g *Graph, path string) error

	// references returns the config's references to objects of the team, such as templates.
	references(path string) []Reference

	// plan returns the action of the step. If Facts.Fields fails, plan returns that error.
	plan(m *stepContext) (Action, error)

	// jsonValue returns the config as a value that can be encoded as JSON.
	jsonValue() any
}

// waiter is implemented by the configs of steps that can wait. The method waitOver returns the action of the step once
// its wait is over.
type waiter interface{ waitOver(m *stepContext) Action }

// referrer is implemented by configs that can refer to values from events or contacts. The method referencedNames
// returns the full names of the values to which the config refers.
type referrer interface{ referencedNames() []string }

// plain is embedded in configs that have only a default connection, no references to the team's objects, and nothing to
// check.
type plain struct{}

func (plain) exits() []string               { return []string{Default} }
func (plain) check(*Graph, string) error    { return nil }
func (plain) references(string) []Reference { return nil }

// step returns the step with the given key, or nil if no step has the key.
func (g *Graph) step(key string) *Step {
	if i, ok := g.index[key]; ok {
		return &g.Steps[i]
	}
	return nil
}

// HasStep reports whether the graph has a step with the given key.
func (g *Graph) HasStep(key string) bool { return g.step(key) != nil }

// Triggers returns the canonical names of the events that begin runs, without duplicates; see [events.CanonicalName].
func (g *Graph) Triggers() (names []string) {
	for _, s := range g.Steps {
		if t, ok := s.config.(trigger); ok {
			names = append(names, events.CanonicalName(t.event))
		}
	}
	return names
}

// TriggerOf returns a reference to the trigger that names an event. The event must be one of the names in
// [Graph.Triggers].
func (g *Graph) TriggerOf(event string) Reference {
	for i, s := range g.Steps {
		if t, ok := s.config.(trigger); ok && events.CanonicalName(t.event) == event {
			return Reference{Step: s.Key, Field: configPath(i) + ".event_name"}
		}
	}
	return Reference{Field: "steps"}
}

// Kinds of [Reference].
const (
	RefTemplate = "template"
	RefSegment  = "segment"
	RefTopic    = "topic"
	RefProperty = "property" // of contacts
	RefRule     = "rule"
	RefURL      = "url" // of a webhook
	RefSender   = "from"
	RefReplyTo  = "reply_to"
)

// Reference is a reference from a step to an object of the team or to an address. Only the caller can check a
// Reference.
type Reference struct {
	Step  string       // the key
	Field string       // path of the field, such as steps[2].config.template.id
	Kind  string       // one of the kinds, such as RefTemplate
	ID    string       // id of a template, segment or topic; alias of a template; name of a property; or address
	Names []string     // sorted names of the template variables that the step sets
	Rule  *filter.Rule // the rule of a condition

	// Literal is the value to which a contact_update step sets a contact property. Literal is zero if the value is known
	// only during a run, or if the property is read or cleared.
	Literal scalar.Value

	Literals map[string]scalar.Value // those template variables that have a fixed value

	// From, Subject and ReplyTo are the fields that a step sets for the email that it sends from a template. An empty
	// field is that of the template.
	From, Subject, ReplyTo string
}

// References returns all references from the steps, in the order of the steps.
func (g *Graph) References() (all []Reference) {
	for i, s := range g.Steps {
		names := s.config.references(configPath(i))
		for n := range names {
			names[n].Step = s.Key
		}
		all = append(all, names...)
	}
	return all
}

// ReferenceError returns the error for a reference to an object that does not exist or cannot be used. ReferenceError
// converts a fault into an Invalid fault whose message begins with the key of the step. If the fault's field does not
// begin with the reference's field, the result has the reference's field. ReferenceError returns any other error, and
// any fault caused by the server, unchanged.
func (g *Graph) ReferenceError(r Reference, why error) error {
	f, ok := errors.AsType[*fault.Error](why)
	if !ok || fault.Ours(why) {
		return why
	}
	named := *f
	named.Kind = fault.Invalid
	if !strings.HasPrefix(f.Field, r.Field) {
		named.Field = r.Field
	}
	return withStep(r.Step, &named)
}

// CheckRule checks a condition's rule against the schema of the contact fields that the rule names.
func (g *Graph) CheckRule(r Reference, contacts filter.Schema) error {
	return withStep(r.Step, r.Rule.Check(g.schema(contacts)))
}

// schema returns the given schema of contact fields, extended by the fields that exist only in runs, such as event
// fields.
func (g *Graph) schema(contacts filter.Schema) filter.Schema {
	s := contacts
	s.References = true
	s.Open = append(slices.Clone(contacts.Open), g.ruleNames...)
	unknown := contacts.Unknown
	s.Unknown = func(name string) string {
		if why := g.whyUnknown(name); why != "" {
			return why
		}
		if unknown == nil {
			return ""
		}
		return unknown(name)
	}
	return s
}

// withStep prefixes the message of a fault with the key of a step. Other errors are returned unchanged.
func withStep(key string, err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	named := *f
	named.Message = "Step `" + key + "`: " + f.Message
	return &named
}
