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

	index map[string]int      // of Steps, by their keys
	next  map[exit]string     // the key of the step to which a connection leads
	heads map[string]struct{} // what may follow "wait_events." in a name: keys of waits, and names of their events
	open  []string            // the beginnings of names that rules may have, besides those of contacts
	reads []string            // what stands behind "wait_events." in the names that steps refer to
}

// Step is a step of a graph.
type Step struct {
	Key  string
	Type Type

	config config
}

// Connection leads from a step to the next one. Its type says for which outcome.
type Connection struct {
	From string `json:"from"`
	To   string `json:"to"`
	Type string `json:"type"`
}

// exit is a type of connection that leads away from a step.
type exit struct{ from, by string }

// config is what a type of step is set to do.
type config interface {
	// exits returns the types of the connections that may lead away from the step.
	exits() []string

	// check checks what needs the whole graph. path is where the config stands.
	check(g *Graph, path string) error

	// names returns what the config names of the team's.
	names(path string) []Reference

	// plan returns what the step does. Errors are those of Facts.Fields.
	plan(m *moment) (Action, error)

	// written returns the config as package json encodes it.
	written() any
}

// waiter is a config whose step may wait. over returns what the step does when the time has come.
type waiter interface{ over(m *moment) Action }

// referrer is a config that may refer to values. refers returns their full names.
type referrer interface{ refers() []string }

// plain is a config that leads on by a default connection, and has nothing to check and no names.
type plain struct{}

func (plain) exits() []string            { return []string{Default} }
func (plain) check(*Graph, string) error { return nil }
func (plain) names(string) []Reference   { return nil }

// step returns the step with a key, nil if there is none.
func (g *Graph) step(key string) *Step {
	if i, ok := g.index[key]; ok {
		return &g.Steps[i]
	}
	return nil
}

// HasStep reports whether a step has a key.
func (g *Graph) HasStep(key string) bool { return g.step(key) != nil }

// Triggers returns the names of the events that begin runs, each once, by the function [events.CanonicalName].
func (g *Graph) Triggers() (names []string) {
	for _, s := range g.Steps {
		if t, ok := s.config.(trigger); ok {
			names = append(names, events.CanonicalName(t.event))
		}
	}
	return names
}

// TriggerOf returns where the graph names an event that begins runs, by its name from Triggers.
func (g *Graph) TriggerOf(event string) Reference {
	for i, s := range g.Steps {
		if t, ok := s.config.(trigger); ok && events.CanonicalName(t.event) == event {
			return Reference{Step: s.Key, Field: configPlace(i) + ".event_name"}
		}
	}
	return Reference{Field: "steps"}
}

// The kinds of a [Reference].
const (
	NamesTemplate = "template"
	NamesSegment  = "segment"
	NamesTopic    = "topic"
	NamesProperty = "property" // of contacts
	NamesRule     = "rule"
	NamesURL      = "url" // of a webhook
	NamesSender   = "from"
	NamesReplyTo  = "reply_to"
)

// Reference is what a step names that only the caller can check.
type Reference struct {
	Step  string       // the key
	Field string       // the path, such as steps[2].config.template.id
	Kind  string       // one of the constants
	ID    string       // of a template (or its alias), a segment or a topic; a property by name; an address
	Names []string     // of a template: the variables that the step gives, in order
	Rule  *filter.Rule // of a rule: that of a condition

	// Value, of a property, is the type of the value that a contact_update gives it: string or number. It is "" if that
	// is known only in a run, or if the property is read or cleared.
	Value string
}

// References returns what the steps name, in their order.
func (g *Graph) References() (all []Reference) {
	for i, s := range g.Steps {
		names := s.config.names(configPlace(i))
		for n := range names {
			names[n].Step = s.Key
		}
		all = append(all, names...)
	}
	return all
}

// Refused returns the error for a reference that does not exist or cannot be used: an Invalid fault with the sentence
// of the fault why, after the name of the step. Its field is that of why if that begins with the reference's, and
// otherwise the reference's. Errors that are no faults, or failures of the server, are returned as they are.
func (g *Graph) Refused(r Reference, why error) error {
	f, ok := errors.AsType[*fault.Error](why)
	if !ok || fault.Ours(why) {
		return why
	}
	named := *f
	named.Kind = fault.Invalid
	if !strings.HasPrefix(f.Field, r.Field) {
		named.Field = r.Field
	}
	return inStep(r.Step, &named)
}

// CheckRule checks a rule of a condition with the fields that contacts have, which the caller has looked up for it.
func (g *Graph) CheckRule(r Reference, contacts filter.Schema) error {
	return inStep(r.Step, r.Rule.Check(g.schema(contacts)))
}

// schema adds the fields that only runs have to those of contacts.
func (g *Graph) schema(contacts filter.Schema) filter.Schema {
	s := contacts
	s.References = true
	s.Open = append(slices.Clone(contacts.Open), g.open...)
	unknown := contacts.Unknown
	s.Unknown = func(name string) string {
		if why := g.unknown(name); why != "" {
			return why
		}
		if unknown == nil {
			return ""
		}
		return unknown(name)
	}
	return s
}

// inStep returns a fault with the step's name before its sentence.
func inStep(key string, err error) error {
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		return err
	}
	named := *f
	named.Message = "Step `" + key + "`: " + f.Message
	return &named
}
