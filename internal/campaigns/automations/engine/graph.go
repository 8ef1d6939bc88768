package engine

import (
	"errors"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
)

// Graph is a checked graph of steps. It never changes and is safe for concurrent use.
type Graph struct {
	Steps       []Step
	Connections []Connection

	index     map[string]int      // indexes in Steps, by key
	next      map[exit]string     // the key of the next step
	waitNames map[string]struct{} // keys and event names of the waits, which may follow "wait_events." in a name
	ruleNames []string            // prefixes of the names that rules may use besides contact fields
	waitPaths []string            // the names that steps refer to, without the prefix "wait_events."
}

// Step is a step of a graph.
type Step struct {
	Key  string
	Type Type

	config config
}

// Connection leads from a step to the next one. The type of a connection says for which outcome of the step it is
// followed.
type Connection struct {
	From string `json:"from"`
	To   string `json:"to"`
	Type string `json:"type"`
}

// exit is a type of connection that leaves a step.
type exit struct{ from, by string }

// config is the configuration of a step. Each type of step has its own implementation.
type config interface {
	// exits returns the types of the connections that may leave the step.
	exits() []string

	// check checks what depends on the whole graph. path is the path of the config.
	check(g *Graph, path string) error

	// references returns the things of the team that the config names.
	references(path string) []Reference

	// plan returns what the step does. The errors of plan are those of Facts.Fields.
	plan(m *stepContext) (Action, error)

	// jsonValue returns the config as a value to encode as JSON.
	jsonValue() any
}

// waiter is a config whose step may wait. waitOver returns what the step does when the wait has ended by time.
type waiter interface{ waitOver(m *stepContext) Action }

// referrer is a config that may refer to values. referencedNames returns their full names.
type referrer interface{ referencedNames() []string }

// plain is embedded by configs that have only a default connection, name nothing of the team and need no check.
type plain struct{}

func (plain) exits() []string               { return []string{Default} }
func (plain) check(*Graph, string) error    { return nil }
func (plain) references(string) []Reference { return nil }

// step returns the step with a key, or nil.
func (g *Graph) step(key string) *Step {
	if i, ok := g.index[key]; ok {
		return &g.Steps[i]
	}
	return nil
}

// HasStep reports whether the graph has a step with a key.
func (g *Graph) HasStep(key string) bool { return g.step(key) != nil }

// Triggers returns the canonical names of the events that begin runs, each once; see [events.CanonicalName].
func (g *Graph) Triggers() (names []string) {
	for _, s := range g.Steps {
		if t, ok := s.config.(trigger); ok {
			names = append(names, events.CanonicalName(t.event))
		}
	}
	return names
}

// TriggerOf returns the place in the graph that names an event that begins runs. event is a name from Triggers.
func (g *Graph) TriggerOf(event string) Reference {
	for i, s := range g.Steps {
		if t, ok := s.config.(trigger); ok && events.CanonicalName(t.event) == event {
			return Reference{Step: s.Key, Field: configPath(i) + ".event_name"}
		}
	}
	return Reference{Field: "steps"}
}

// The kinds of a [Reference].
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

// Reference is something of the team that a step names and that only the caller can check.
type Reference struct {
	Step  string       // the key
	Field string       // the path, such as steps[2].config.template.id
	Kind  string       // one of the constants
	ID    string       // id of a template (or its alias), a segment or a topic; name of a property; an address
	Names []string     // the variables that the step sets for a template, in order
	Rule  *filter.Rule // the rule of a condition

	// Value is the type of the value that a contact_update gives a property: string or number. It is "" if the type is
	// known only in a run, or if the property is read or cleared.
	Value string
}

// References returns everything that the steps name, in the order of the steps.
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

// ReferenceError returns the error for a reference that does not exist or cannot be used. It is an Invalid fault with
// the message of the fault why, preceded by the name of the step. The fault keeps its field if the field lies within
// the reference; otherwise it gets the field of the reference. If why is not a fault, or is a failure of the server, it
// is returned unchanged.
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

// CheckRule checks the rule of a condition. contacts is the schema of the contact fields that the rule names.
func (g *Graph) CheckRule(r Reference, contacts filter.Schema) error {
	return withStep(r.Step, r.Rule.Check(g.schema(contacts)))
}

// schema adds the fields that exist only in runs to the schema of contacts.
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

// withStep returns a fault with the step's name before its message. Other errors are returned unchanged.
func withStep(key string, err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	named := *f
	named.Message = "Step `" + key + "`: " + f.Message
	return &named
}
