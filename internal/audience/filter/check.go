package filter

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/schedule"
)

// Check returns an error unless the schema contains all fields that the rule names, and all operators and values fit
// the types of those fields.
func (r *Rule) Check(s Schema) error {
	return r.each(r.root(), func(place string, leaf *Rule) error {
		_, err := leaf.resolve(&s, place, time.Unix(0, 0), nil)
		return err
	})
}

// root returns the path of the rule for use in error messages.
func (r *Rule) root() string {
	if r.place == "" {
		return "filter"
	}
	return r.place
}

// each calls f with each leaf and its path until a call returns an error.
func (r *Rule) each(place string, f func(place string, leaf *Rule) error) error {
	if r.Kind == Leaf {
		return f(place, r)
	}
	for i, sub := range r.Rules {
		if err := sub.each(r.within(place, i), f); err != nil {
			return err
		}
	}
	return nil
}

// within returns the path of the i-th rule in a group.
func (r *Rule) within(place string, i int) string {
	if r.Kind == Not {
		return place + ".rule"
	}
	return fmt.Sprintf("%s.rules[%d]", place, i)
}

// test is a leaf in the form that Where and Match use: a positive comparison and a flag that says whether to negate its
// result.
type test struct {
	Field
	negated bool
	never   bool // the comparison is always false, because the referenced field has no value or the wrong type

	// The field op is Exists, Eq, In, Gt, Gte, Lt, Lte, Contains, StartsWith, EndsWith or WithinLast. All comparisons
	// of times use WithinLast.
	op       Operator
	operands []Value // operands of In, or the single operand of Eq
	text     string  // operand of Contains, StartsWith and EndsWith
	number   float64 // operand of Gt, Gte, Lt and Lte
	from, to int64   // time range for WithinLast, in microseconds, excluding to
}

// ahead is the tolerance for differences between nodes' clocks. A time that is at most this far in the future still
// satisfies a condition such as "within the last 3 days".
const ahead = time.Minute

// resolve checks a leaf and returns its test, with durations relative to the given current time. The parameter get
// returns the value of a referenced field; if it is nil, resolve only checks references.
func (r *Rule) resolve(s *Schema, place string, now time.Time, get func(name string) Value) (test, error) {
	f, ok := s.field(r.Field)
	if !ok {
		return test{}, s.unknown(place+".field", r.Field)
	}
	null := r.Value.kind == None && (r.Operator == Eq || r.Operator == Neq)
	if !null && !slices.Contains(accepts[f.Type], r.Operator) {
		return test{}, r.misfit(place+".operator", &f)
	}
	t := test{Field: f}
	t.op, t.negated = r.Operator.positive()
	place += ".value"
	switch v := r.Value; {
	case t.op == Exists:
	case t.op == Eq && v.none():
		if f.Type == SetField {
			return t, fault.Invalidf(place, "The `%s` field must name a segment.", place)
		}
		t.op, t.negated = Exists, !t.negated
	case v.kind == Reference:
		return t, t.refer(s, place, v.text, now, get)
	default:
		if problem := t.compareWith(v, now); problem != "" {
			return t, fault.Invalidf(place, "The `%s` field %s", place, problem)
		}
	}
	return t, nil
}

func (s *Schema) unknown(place, name string) error {
	if s.Unknown != nil {
		if why := s.Unknown(FullName(name)); why != "" {
			return fault.Invalidf(place, "The `%s` field is %s. %s", place, quote(name), why)
		}
	}
	return fault.Invalidf(place, "The `%s` field is %s, which is no field.", place, quote(name))
}

// misfit returns the error for an operator that the field's type does not support.
func (r *Rule) misfit(place string, f *Field) error {
	var all []string
	for _, o := range accepts[f.Type] {
		all = append(all, string(o))
	}
	return fault.Invalidf(place, "The `%s` field is `%s`, but `%s` is %s. Use one of `%s`.", place, r.Operator, r.Field,
		f.Type, strings.Join(all, "`, `"))
}

// refer sets the operand to another field's value.
func (t *test) refer(s *Schema, place, name string, now time.Time, get func(name string) Value) error {
	if !s.References {
		return fault.Invalidf(place, "The `%s` field must be a value: only automations know other fields.", place)
	}
	place += ".var"
	of, ok := s.field(name)
	if !ok {
		return s.unknown(place, name)
	}
	if !t.takes(of.Type) {
		return fault.Invalidf(place, "The `%s` field names %s, which cannot be compared here.", place, of.Type)
	}
	if get == nil {
		return nil
	}
	v := get(FullName(name))
	if v.none() {
		v = of.Default
	}
	t.never = v.none() || t.compareWith(v, now) != ""
	return nil
}

// takes reports whether the operand may be a reference to a field of the given type.
func (t *test) takes(operand Type) bool {
	switch t.op {
	case Eq:
		return operand == AnyField || t.Type == AnyField && operand != SetField || operand == t.Type ||
			t.Type == NumberField && operand == TextField || t.Type == TextField && operand == NumberField
	case Contains, StartsWith, EndsWith:
		return operand == AnyField || operand == TextField || operand == ChoiceField
	case Gt, Gte, Lt, Lte:
		return operand == AnyField || operand == TextField || operand == NumberField
	case Before, After:
		return operand == AnyField || operand == TextField || operand == TimeField
	}
	return false
}

// compareWith sets the operand to the given value. If the value does not fit the operator, compareWith returns a
// message that says what the value must be.
func (t *test) compareWith(v Value, now time.Time) (problem string) {
	switch t.op {
	case Eq:
		return t.addOperand(v)
	case In:
		for _, item := range v.list {
			if problem := t.addOperand(item); problem != "" {
				return problem
			}
		}
	case Contains, StartsWith, EndsWith:
		if v.kind != Text {
			return "must be a text."
		}
		t.text = t.lower(v.text)
	case Gt, Gte, Lt, Lte:
		n, ok := v.asNumber()
		if !ok {
			return "must be a number. Use `before` and `after` for times."
		}
		t.number = n
	case Before, After:
		from, after, ok := v.asTime()
		if !ok {
			return "must be a time in RFC 3339 such as `2026-08-05T15:04:05Z`, or a date such as `2026-08-05`."
		}
		t.from, t.to = math.MinInt64, from
		if t.op == After {
			t.from, t.to = after, math.MaxInt64
		}
		t.op = WithinLast
	case WithinLast:
		d, err := time.Duration(0), error(nil)
		if v.kind == Text {
			d, err = schedule.Duration(v.text)
		}
		if err != nil || d <= 0 {
			return "must be a duration such as `30 days`, `12 hours` or `1 day 6 hours`, and more than nothing."
		}
		t.from, t.to = micros(now.Add(-d)), micros(now.Add(ahead))
	}
	return ""
}

// addOperand adds a value to the operands for Eq or In.
func (t *test) addOperand(v Value) (problem string) {
	switch t.Type {
	case TextField:
		text, ok := v.asText()
		if !ok {
			return "must be a text."
		}
		v = Value{kind: Text, text: text}
	case ChoiceField, SetField:
		if v.kind != Text {
			return "must be a text."
		}
		if t.Allow != nil {
			if problem := t.Allow(t.lower(v.text)); problem != "" {
				return problem
			}
		}
	case NumberField:
		n, ok := v.asNumber()
		if !ok {
			return "must be a number."
		}
		v = NumberValue(n)
	case BoolField:
		if v.kind != Bool {
			return "must be true or false, without quotes."
		}
	}
	v.text = t.lower(v.text)
	t.operands = append(t.operands, v)
	return ""
}

func (t *test) lower(text string) string {
	if t.Lower {
		return message.FoldCase(text)
	}
	return text
}
