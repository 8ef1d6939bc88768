package engine

import (
	"strings"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/fault"
)

// condition is the config of a step that chooses one of two connections, depending on a rule.
type condition struct{ rule *filter.Rule }

func readCondition(o jsonread.Object) (config, error) {
	// The whole config object is the rule. The rule is encoded again before it is parsed, because the decoded members are
	// unordered.
	rule, err := filter.ParseAt(o.Path, encode(o.Members))
	return condition{rule}, err
}

func (c condition) exits() []string { return []string{ConditionMet, ConditionNotMet} }

// check validates the rule, except for the names of contact fields. [Graph.CheckRule] validates those against the
// caller's schema.
func (c condition) check(g *Graph, _ string) error {
	return c.rule.Check(g.schema(filter.Schema{Open: []string{"contact."}, Unknown: func(string) string {
		return "There are `event.KEY`, `wait_events.STEP.KEY` and fields of contacts, such as `contact.email` and " +
			"`contact.properties.KEY`."
	}}))
}

func (c condition) references(path string) []Reference {
	return []Reference{{Field: path, Kind: RefRule, Rule: c.rule}}
}

func (c condition) referencedNames() []string { return c.rule.Fields() }

func (c condition) plan(m *stepContext) (Action, error) {
	contacts, get := filter.Schema{Open: []string{"contact."}}, func(string) filter.Value { return filter.Value{} }
	if m.facts.Contact != nil && c.readsContact() {
		var err error
		if contacts, get, err = m.facts.Fields(c.rule); err != nil {
			return refusedRule(err)
		}
	}
	holds, err := c.rule.Match(m.g.schema(contacts), m.facts.Now, func(name string) filter.Value {
		if strings.HasPrefix(name, "contact.") {
			return get(name)
		}
		return fieldValue(m.lookUp(name))
	})
	if err != nil {
		return refusedRule(err)
	}
	a := Action{Branch: ConditionNotMet, Output: map[string]any{"result": holds}}
	if holds {
		a.Branch = ConditionMet
	}
	return a, nil
}

// If err is a fault that a user can cause, refusedRule returns an action that makes the step fail. Any other error is
// returned unchanged.
func refusedRule(err error) (Action, error) {
	if fault.Ours(err) {
		return Action{}, err
	}
	return Action{Failure: &Failure{RuleRefused, err.Error()}}, nil
}

// readsContact reports whether the rule refers to a contact field.
func (c condition) readsContact() bool {
	for _, name := range c.rule.Fields() {
		if strings.HasPrefix(name, "contact.") {
			return true
		}
	}
	return false
}

func (c condition) jsonValue() any { return c.rule }
