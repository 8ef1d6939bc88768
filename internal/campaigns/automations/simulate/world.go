package simulate

import (
	"maps"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
)

// Reasons why simulated effects fail or are skipped; they are the same as in real runs.
const (
	noTopic    = "topic_not_found"
	optedOut   = "topic_opted_out"
	notOptedIn = "topic_not_opted_in"
)

// World contains the data about a team that a simulation needs.
type World struct {
	// Complete says that the team has no properties and topics other than the given ones, and that both functions are set.
	// If Complete is false, the simulation assumes that all objects that steps refer to exist, and that the type of an
	// unknown property is the type of its value.
	Complete bool

	Properties map[string]Property // contact properties, keyed by name
	Topics     map[string]string   // default choices (opt_in or opt_out), keyed by topic id

	// Segment returns the reason why a contact cannot be added to a segment, or nil if the contact can be added.
	Segment func(segmentID string) (*engine.Failure, error)

	// Fields returns the schema of the contact fields that a rule names. If Fields returns a fault, the step fails.
	Fields func(rule *filter.Rule) (filter.Schema, error)
}

// Property describes a contact property.
type Property struct {
	Type     scalar.Type
	Fallback scalar.Value // zero if the property has no fallback
}

// fitValues converts the property values that a step sets, by the same rules as real runs. If a contact cannot have
// these values, fitValues returns the failure of the step.
func (w *World) fitValues(values map[string]scalar.Value) (map[string]scalar.Value, *engine.Failure) {
	return engine.FitProperties(values, func(name string) (scalar.Type, bool) {
		p, ok := w.Properties[name]
		if !ok && !w.Complete {
			return values[name].Type, true
		}
		return p.Type, ok
	})
}

// withFallbacks returns a copy of the values in which missing properties have their fallback values.
func (w *World) withFallbacks(values map[string]scalar.Value) map[string]scalar.Value {
	all := maps.Clone(values)
	for name, p := range w.Properties {
		if _, has := all[name]; !has && p.Fallback != (scalar.Value{}) {
			all[name] = p.Fallback
		}
	}
	return all
}

// checkTopic checks whether a contact may receive emails about a topic. The result is the failure of the email step or
// the reason for skipping it, or neither if the contact may receive the email. The parameter chosen is the contact's
// choice: opt_in, opt_out or "".
func (w *World) checkTopic(topic, chosen string) (*engine.Failure, string) {
	byDefault, ok := w.Topics[topic]
	switch {
	case topic == "":
		return nil, ""
	case !ok && w.Complete:
		return &engine.Failure{Reason: noTopic, Message: "The `topic_id` field names no topic of this team. Create the " +
			"topic first."}, ""
	case chosen == "opt_out":
		return nil, optedOut
	case chosen == "" && byDefault == "opt_out":
		return nil, notOptedIn
	}
	return nil, ""
}
