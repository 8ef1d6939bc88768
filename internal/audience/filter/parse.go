package filter

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// Parse parses a rule. Error messages contain paths such as filter.rules[0].field.
func Parse(text []byte) (*Rule, error) { return ParseAt("filter", text) }

// ParseAt is like Parse, but for a rule at a different path in the request, such as steps[3].config.
func ParseAt(place string, text []byte) (*Rule, error) {
	if len(text) > MaxText {
		return nil, tooLong(place, len(text))
	}
	p := parser{}
	r, err := p.rule(place, jsontext.Value(text), 1)
	if err != nil {
		return nil, err
	}
	// The stored JSON can be longer than the input, because 1e15 is stored as 1000000000000000. The stored JSON must
	// not exceed MaxText either.
	again, err := r.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write a filter: %w", err)
	}
	if len(again) > MaxText {
		return nil, tooLong(place, len(again))
	}
	r.place = place
	return r, nil
}

func tooLong(place string, n int) error {
	return fault.Invalidf(place, "The `%s` field has %d bytes of JSON; the limit is %d.", place, n, MaxText)
}

// parser counts the leaves in one rule.
type parser struct{ leaves int }

// These are the JSON members that nodes in the tree may have.
var (
	groupMembers = []string{"type", "rules"}
	notMembers   = []string{"type", "rule"}
	leafMembers  = []string{"type", "field", "operator", "value"}
)

func (p *parser) rule(place string, text jsontext.Value, depth int) (*Rule, error) {
	if depth > MaxDepth {
		return nil, fault.Invalidf(place, "The `%s` field is nested in more than %d levels. Use fewer groups in groups.",
			place, MaxDepth)
	}
	node, err := object(place, text)
	if err != nil {
		return nil, err
	}
	kind, err := member[string](place, node, "type", "a text")
	if err != nil {
		return nil, err
	}
	r := &Rule{Kind: Kind(kind)}
	switch r.Kind {
	case And, Or:
		return r, p.group(r, place, node, depth)
	case Not:
		if err := only(place, node, notMembers); err != nil {
			return nil, err
		}
		if _, ok := node["rule"]; !ok {
			return nil, fault.MissingField(place + ".rule")
		}
		sub, err := p.rule(place+".rule", node["rule"], depth+1)
		r.Rules = []*Rule{sub}
		return r, err
	case Leaf:
		return r, p.leaf(r, place, node)
	}
	return nil, fault.Invalidf(place+".type", "The `%s.type` field must be `and`, `or`, `not` or `rule`.", place)
}

func (p *parser) group(r *Rule, place string, node map[string]jsontext.Value, depth int) error {
	if err := only(place, node, groupMembers); err != nil {
		return err
	}
	rules, err := member[[]jsontext.Value](place, node, "rules", "a list of rules")
	if err != nil {
		return err
	}
	place += ".rules"
	if len(rules) == 0 {
		return fault.Invalidf(place, "The `%s` field must have at least one rule.", place)
	}
	if len(rules) > MaxLeaves {
		return tooMany(place)
	}
	for i, text := range rules {
		sub, err := p.rule(fmt.Sprintf("%s[%d]", place, i), text, depth+1)
		if err != nil {
			return err
		}
		r.Rules = append(r.Rules, sub)
	}
	return nil
}

func tooMany(place string) error {
	return fault.Invalidf(place, "The `%s` field is one too many: a filter may have %d comparisons. Use `in` for "+
		"many values.", place, MaxLeaves)
}

func (p *parser) leaf(r *Rule, place string, node map[string]jsontext.Value) (err error) {
	if p.leaves++; p.leaves > MaxLeaves {
		return tooMany(place)
	}
	if err := only(place, node, leafMembers); err != nil {
		return err
	}
	if r.Field, err = member[string](place, node, "field", "a text"); err != nil {
		return err
	}
	if err := name(place+".field", r.Field); err != nil {
		return err
	}
	operator, err := member[string](place, node, "operator", "a text")
	if err != nil {
		return err
	}
	if r.Operator = Operator(operator); !slices.Contains(operators, r.Operator) {
		return noOperator(place+".operator", operator)
	}
	text, written := node["value"]
	place += ".value"
	if !r.Operator.takesValue() {
		// Some clients send every member, so null counts as absent.
		if written && text.Kind() != jsontext.KindNull {
			return fault.Invalidf(place, "The `%s` field must be left out: `%s` takes no value.", place, r.Operator)
		}
		r.Value = Value{kind: absent}
		return nil
	}
	if !written {
		return fault.MissingField(place)
	}
	if r.Value, err = value(place, text, true); err != nil {
		return err
	}
	return r.shape(place)
}

func noOperator(place, operator string) error {
	if is, ok := meant[strings.ToLower(operator)]; ok {
		return fault.Invalidf(place, "The `%s` field is %s, which is no operator: use `%s`.", place, quote(operator), is)
	}
	var all []string
	for _, o := range operators {
		all = append(all, string(o))
	}
	return fault.Invalidf(place, "The `%s` field must be one of `%s`.", place, strings.Join(all, "`, `"))
}

// quote returns a string from a request, shortened to 40 characters and in quotes, for use in an error message.
func quote(text string) string {
	const limit = 40
	if utf8.RuneCountInString(text) > limit {
		text = string([]rune(text)[:limit]) + "..."
	}
	return fmt.Sprintf("%q", text)
}

// shape rejects values that the operator does not accept for any field type.
func (r *Rule) shape(place string) error {
	kind := r.Value.kind
	switch r.Operator {
	case In, NotIn:
		if kind != List {
			return fault.Invalidf(place, "The `%s` field must be a list of values.", place)
		}
	case Eq, Neq:
		if kind == List {
			return fault.Invalidf(place, "The `%s` field must be a single value. Use `in` for a list.", place)
		}
	default:
		if kind == None {
			return fault.Invalidf(place, "The `%s` field must not be null. Use `is_empty` or `exists`.", place)
		}
		if kind == Text && r.Value.text == "" {
			return fault.Invalidf(place, "The `%s` field must not be empty. Use `is_empty` or `exists`.", place)
		}
		if kind == List {
			return fault.Invalidf(place, "The `%s` field must be a single value.", place)
		}
	}
	return nil
}

// value parses a leaf's value. If nested is true, lists and references are allowed.
func value(place string, text jsontext.Value, nested bool) (v Value, err error) {
	switch text.Kind() {
	case jsontext.KindNull:
		return Value{}, nil
	case jsontext.KindTrue, jsontext.KindFalse:
		return BoolValue(text.Kind() == jsontext.KindTrue), nil
	case jsontext.KindString:
		v.kind = Text
		if err := json.Unmarshal(text, &v.text); err != nil {
			return v, fault.Invalidf(place, "The `%s` field must be UTF-8 text.", place)
		}
		if n := utf8.RuneCountInString(v.text); n > MaxString {
			return v, fault.Invalidf(place, "The `%s` field has %d characters; the limit is %d.", place, n, MaxString)
		}
		if strings.ContainsRune(v.text, 0) {
			return v, fault.Invalidf(place, "The `%s` field must not contain NUL characters.", place)
		}
		return v, nil
	case jsontext.KindNumber:
		var n float64
		if err := json.Unmarshal(text, &n); err != nil || n > MaxNumber || n < -MaxNumber {
			return v, fault.Invalidf(place, "The `%s` field must be a number between -%d and %[2]d.", place, int64(MaxNumber))
		}
		return NumberValue(n), nil
	}
	if nested && text.Kind() == jsontext.KindBeginArray {
		return list(place, text)
	}
	if nested && text.Kind() == jsontext.KindBeginObject {
		return reference(place, text)
	}
	return v, fault.Invalidf(place, "The `%s` field must be a text, a number, true or false.", place)
}

func list(place string, text jsontext.Value) (v Value, err error) {
	v.kind = List
	var items []jsontext.Value
	if err := json.Unmarshal(text, &items); err != nil {
		return v, fault.Invalidf(place, "The `%s` field must be a list of values.", place)
	}
	if len(items) == 0 || len(items) > MaxList {
		return v, fault.Invalidf(place, "The `%s` field has %d values; a list has 1 to %d.", place, len(items), MaxList)
	}
	for i, text := range items {
		at := fmt.Sprintf("%s[%d]", place, i)
		item, err := value(at, text, false)
		if err != nil {
			return v, err
		}
		if item.none() {
			return v, fault.Invalidf(at, "The `%s` field must not be empty. Use `is_empty` in an `or` group.", at)
		}
		v.list = append(v.list, item)
	}
	return v, nil
}

func reference(place string, text jsontext.Value) (v Value, err error) {
	node, err := object(place, text)
	if err != nil {
		return v, err
	}
	if err := only(place, node, []string{"var"}); err != nil {
		return v, err
	}
	v.kind = Reference
	if v.text, err = member[string](place, node, "var", "a text"); err != nil {
		return v, err
	}
	return v, name(place+".var", v.text)
}

// name validates a field name.
func name(place, text string) error {
	if n := utf8.RuneCountInString(text); n > MaxField {
		return fault.Invalidf(place, "The `%s` field has %d characters; the limit is %d.", place, n, MaxField)
	}
	if text == "" || strings.ContainsRune(text, 0) {
		return fault.Invalidf(place, "The `%s` field must be the name of a field, such as `contact.email`.", place)
	}
	return nil
}

func object(place string, text jsontext.Value) (map[string]jsontext.Value, error) {
	var node map[string]jsontext.Value
	if err := json.Unmarshal(text, &node); err != nil || node == nil {
		return nil, fault.Invalidf(place, "The `%s` field must be an object, with each member once and in UTF-8.", place)
	}
	return node, nil
}

// member parses a required member. The last parameter, what, describes the expected value in error messages.
func member[T any](place string, node map[string]jsontext.Value, name, what string) (v T, err error) {
	text, ok := node[name]
	place += "." + name
	if !ok || text.Kind() == jsontext.KindNull {
		return v, fault.MissingField(place)
	}
	if err := json.Unmarshal(text, &v); err != nil {
		return v, fault.Invalidf(place, "The `%s` field must be %s.", place, what)
	}
	return v, nil
}

// only returns an error for the first member, in alphabetical order, that is not allowed.
func only(place string, node map[string]jsontext.Value, allowed []string) error {
	for _, name := range slices.Sorted(maps.Keys(node)) {
		if !slices.Contains(allowed, name) {
			return fault.Invalidf(place, "The `%s` field has a member %s, which does not belong there. It may have `%s`.",
				place, quote(name), strings.Join(allowed, "`, `"))
		}
	}
	return nil
}
