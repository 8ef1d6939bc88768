package filter

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// node is the JSON form of a rule.
type node struct {
	Type     Kind           `json:"type"`
	Rules    []*Rule        `json:"rules,omitzero"`
	Rule     *Rule          `json:"rule,omitzero"`
	Field    string         `json:"field,omitzero"`
	Operator Operator       `json:"operator,omitzero"`
	Value    jsontext.Value `json:"value,omitzero"`
}

// MarshalJSON returns the rule as JSON. Parsing the JSON that MarshalJSON returns yields an equal rule.
func (r *Rule) MarshalJSON() ([]byte, error) {
	n := node{Type: r.Kind, Field: r.Field, Operator: r.Operator}
	switch r.Kind {
	case Not:
		n.Rule = r.Rules[0]
	case Leaf:
		if r.Value.kind != absent {
			var err error
			if n.Value, err = json.Marshal(r.Value.plain()); err != nil {
				return nil, err
			}
		}
	default:
		n.Rules = r.Rules
	}
	return json.Marshal(n)
}

// plain converts the value to a Go value that the json package can encode.
func (v Value) plain() any {
	switch v.kind {
	case Text:
		return v.text
	case Number:
		return v.number
	case Bool:
		return v.number != 0
	case List:
		all := []any{}
		for _, item := range v.list {
			all = append(all, item.plain())
		}
		return all
	case Reference:
		return map[string]string{"var": v.text}
	}
	return nil
}
