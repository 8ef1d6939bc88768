package filter

import (
	"slices"
	"strings"
	"time"
)

// Match reports whether a contact matches the rule at the given time. Match gets the contact's values by calling the
// given function with the full names of fields. Match calls the function only for fields in the schema. A comparison
// with a reference is false if the referenced field has no value or a value of the wrong type.
func (r *Rule) Match(s Schema, now time.Time, value func(name string) Value) (bool, error) {
	return r.match(&s, r.root(), now, value)
}

func (r *Rule) match(s *Schema, place string, now time.Time, value func(name string) Value) (bool, error) {
	if r.Kind == Leaf {
		t, err := r.resolve(s, place, now, value)
		if err != nil {
			return false, err
		}
		v := value(FullName(r.Field))
		if v.none() {
			v = t.Default
		}
		return t.holds(v) != t.negated, nil
	}
	// All subrules are evaluated, so that an error does not depend on the contact's values.
	result := r.Kind == And
	for i, sub := range r.Rules {
		holds, err := sub.match(s, r.within(place, i), now, value)
		switch {
		case err != nil:
			return false, err
		case r.Kind == Not:
			result = !holds
		case r.Kind == And:
			result = result && holds
		default:
			result = result || holds
		}
	}
	return result, nil
}

// holds reports whether the positive comparison is true for the given field value.
func (t *test) holds(v Value) bool {
	if t.never || v.none() {
		return false
	}
	switch t.op {
	case Exists:
		return true
	case Eq, In:
		return slices.ContainsFunc(t.operands, func(o Value) bool {
			if t.Type == SetField {
				return slices.ContainsFunc(v.list, o.equal)
			}
			return o.equal(v)
		})
	case Gt, Gte, Lt, Lte:
		n, ok := v.asNumber()
		return ok && t.compare(n)
	case WithinLast:
		at, _, ok := v.asTime()
		return ok && at >= t.from && at < t.to
	}
	if v.kind != Text {
		return false
	}
	switch t.op {
	case Contains:
		return strings.Contains(v.text, t.text)
	case StartsWith:
		return strings.HasPrefix(v.text, t.text)
	default:
		return strings.HasSuffix(v.text, t.text)
	}
}

func (t *test) compare(n float64) bool {
	switch t.op {
	case Gt:
		return n > t.number
	case Gte:
		return n >= t.number
	case Lt:
		return n < t.number
	default:
		return n <= t.number
	}
}
