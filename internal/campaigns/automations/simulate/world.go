package simulate

import (
	"maps"
	"slices"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
)

// Reasons for which effects are not done in simulations, as in runs.
const (
	noProperty     = "property_not_found"
	contactInvalid = "contact_invalid"
	noTopic        = "topic_not_found"
	optedOut       = "topic_opted_out"
	notOptedIn     = "topic_not_opted_in"
)

// World is what a simulation knows of the team.
type World struct {
	// Complete says that there is nothing but what Properties and Topics have, and that the functions are set.
	// Otherwise whatever steps name is there, and other properties have the types of their values.
	Complete bool

	Properties map[string]Property // of contacts, by name
	Topics     map[string]string   // opt_in or opt_out, of those who have chosen neither, by the id

	// Segment returns why contacts cannot be added to a segment, nil if they can.
	Segment func(segmentID string) (*engine.Failure, error)

	// Fields returns the fields of contacts that a rule names. Its faults fail the step.
	Fields func(rule *filter.Rule) (filter.Schema, error)
}

// Property is a property of contacts.
type Property struct {
	Type     scalar.Type
	Fallback scalar.Value // none if there is no fallback
}

// refusesValues returns why values of properties cannot be those of a contact, nil if they can: what package contacts
// refuses.
func (w *World) refusesValues(values map[string]scalar.Value) *engine.Failure {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		p, ok := w.Properties[name]
		switch {
		case !ok && w.Complete:
			return &engine.Failure{Reason: noProperty, Message: "The `properties` field names " + jsonread.Quote(name) + ", which is no property of " +
				"this team. Create it first."}
		case values[name] == (scalar.Value{}):
			continue
		case !ok:
			p.Type = values[name].Type
		}
		if err := values[name].Check(jsonread.Join("properties", name), p.Type); err != nil {
			return &engine.Failure{Reason: contactInvalid, Message: err.Error()}
		}
	}
	return nil
}

// withFallbacks returns values, and the fallbacks of properties that they do not have.
func (w *World) withFallbacks(values map[string]scalar.Value) map[string]scalar.Value {
	all := maps.Clone(values)
	for name, p := range w.Properties {
		if _, has := all[name]; !has && p.Fallback != (scalar.Value{}) {
			all[name] = p.Fallback
		}
	}
	return all
}

// refusesMail returns why a contact that has chosen so is not mailed about a topic: the failure of the step, or the
// reason for which it is skipped. Both are empty if it is mailed.
func (w *World) refusesMail(topic, chosen string) (*engine.Failure, string) {
	byDefault, ok := w.Topics[topic]
	switch {
	case topic == "":
		return nil, ""
	case !ok && w.Complete:
		return &engine.Failure{Reason: noTopic, Message: "The `topic_id` field names no topic of this team. Create the topic first."}, ""
	case chosen == "opt_out":
		return nil, optedOut
	case chosen == "" && byDefault == "opt_out":
		return nil, notOptedIn
	}
	return nil, ""
}
