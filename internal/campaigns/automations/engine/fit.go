package engine

import (
	"maps"
	"slices"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
)

// FitProperties converts values to the types of the contact properties that they are for, as far as the conversion is
// exact; see [scalar.Value.As]. The function typeOf returns the type of a property, or false if the team does not have
// the property. If a contact cannot have one of the values, FitProperties returns the failure of the step.
func FitProperties(values map[string]scalar.Value, typeOf func(name string) (scalar.Type, bool)) (
	map[string]scalar.Value, *Failure) {
	fit := make(map[string]scalar.Value, len(values))
	for _, name := range slices.Sorted(maps.Keys(values)) {
		t, ok := typeOf(name)
		switch {
		case !ok:
			return nil, &Failure{NoProperty, "The `properties` field names " + jsonread.Quote(name) + ", which is no " +
				"property of this team. Create it first."}
		case values[name] == (scalar.Value{}):
			fit[name] = scalar.Value{}
			continue
		}
		field := jsonread.Join("properties", name)
		v, ok := values[name].As(t)
		if err := v.Check(field, t); err != nil {
			reason := PropertyUnusable
			if !ok {
				reason = PropertyWrongType
			}
			return nil, &Failure{reason, err.Error()}
		}
		fit[name] = v
	}
	return fit, nil
}

// literals returns those template variables that have a fixed value, keyed by the name that the template uses.
func literals(variables map[string]value) map[string]scalar.Value {
	all := map[string]scalar.Value{}
	for name, v := range variables {
		switch x := v.literal.(type) {
		case float64:
			all[name] = scalar.OfNumber(x)
		case string, bool:
			text, _ := textOf(x)
			all[name] = scalar.OfText(text)
		}
		for sub, x := range literals(v.object) {
			all[name+"_"+sub] = x
		}
	}
	return all
}
