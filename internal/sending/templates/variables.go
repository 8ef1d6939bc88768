package templates

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
)

// Variable is a variable declared by a version of a template.
type Variable struct {
	ID        string // the id stays the same in later versions that declare the same key
	Key       string
	Type      scalar.Type
	Fallback  scalar.Value // the zero value if each email must specify a value
	CreatedAt time.Time
	UpdatedAt time.Time // time of the latest change to the type or the fallback
}

// Declaration is the declaration of a variable in a request.
type Declaration struct {
	Key      string
	Type     string
	Fallback scalar.Value // the zero value if each email must specify a value
}

// reserved lists keys that variables may not have, either as written here or with the prefix POSTRIDER_ or RESEND_.
// Reserved keys refer to contact data and to values that Postrider sets.
var reserved = []string{"FIRST_NAME", "LAST_NAME", "EMAIL", "UNSUBSCRIBE_URL", "contact", "this"}

// IsReserved reports whether templates cannot declare a variable with the key.
func IsReserved(key string) bool {
	for _, prefix := range []string{"POSTRIDER_", "RESEND_"} {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			return slices.Contains(reserved, rest)
		}
	}
	return slices.Contains(reserved, key)
}

// checkDeclarations checks the variables that a template declares.
func checkDeclarations(all []Declaration) error {
	if len(all) > MaxVariables {
		return fault.Invalidf("variables", "The `variables` field has %d variables; the limit is %d.", len(all), MaxVariables)
	}
	at := map[string]int{}
	for i, d := range all {
		field := fmt.Sprintf("variables[%d]", i)
		if err := d.check(field); err != nil {
			return err
		}
		if before, ok := at[d.Key]; ok {
			return fault.Invalidf(field+".key", "The key %s is declared twice (`variables[%d]` and `%s`).", d.Key, before, field)
		}
		at[d.Key] = i
	}
	return nil
}

func (d *Declaration) check(field string) error {
	switch {
	case d.Key == "":
		return fault.MissingField(field + ".key")
	case len(d.Key) > maxKey || strings.ContainsFunc(d.Key, notKeyRune):
		return fault.Invalidf(field+".key", "The key of a variable must have 1 to %d characters, each an ASCII letter, a "+
			"digit or an underscore (`%s.key`).", maxKey, field)
	case IsReserved(d.Key):
		return fault.Invalidf(field+".key", "The key %s is reserved (`%s.key`). Choose another name; reserved are %s, "+
			"also with POSTRIDER_ or RESEND_ before them.", d.Key,
			field, strings.Join(reserved, ", "))
	case d.Type == "":
		return fault.MissingField(field + ".type")
	case d.Type != string(scalar.String) && d.Type != string(scalar.Number):
		return fault.Invalidf(field+".type", "The type of a variable must be `string` or `number` (`%s.type`).", field)
	case d.Fallback != scalar.Value{}:
		return d.Fallback.Check(field+".fallback_value", scalar.Type(d.Type))
	}
	return nil
}

func notKeyRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_')
}

// declare returns the variables of a new version, given the variables of the previous version. A variable keeps its id
// if the previous version declares the same key.
func declare(before []Variable, all []Declaration, now time.Time) []Variable {
	list := make([]Variable, len(all))
	for i, d := range all {
		v := Variable{ID: id.New(), Key: d.Key, Type: scalar.Type(d.Type), Fallback: d.Fallback, CreatedAt: now,
			UpdatedAt: now}
		for _, b := range before {
			if b.Key != d.Key {
				continue
			}
			v.ID, v.CreatedAt = b.ID, b.CreatedAt
			if b.Type == v.Type && b.Fallback == v.Fallback {
				v.UpdatedAt = b.UpdatedAt
			}
		}
		list[i] = v
	}
	return list
}

// sameVariables reports whether two lists contain the same variables in the same order.
func sameVariables(a, b []Variable) bool {
	return slices.EqualFunc(a, b, func(a, b Variable) bool {
		return a.Key == b.Key && a.Type == b.Type && a.Fallback == b.Fallback
	})
}

// valuesFor returns the value of each declared variable: the given value or, if none is given, the fallback. A
// variable without a value and a fallback stays unset if every placeholder has an inline fallback, which is then used.
// Otherwise valuesFor returns an error. Values for undeclared variables are ignored. An error names its field: prefix
// followed by the variable's key.
func valuesFor(c *content.Compiled, declared []Variable, given map[string]scalar.Value,
	prefix string) (render.Values, error) {
	for _, key := range slices.Sorted(maps.Keys(given)) {
		if IsReserved(key) {
			return nil, fault.Invalidf(prefix+"."+key, "The variable %s is reserved and cannot be given (`%s.%s`).", key, prefix,
				key)
		}
	}
	values := make(render.Values, len(declared))
	for _, d := range declared {
		field := prefix + "." + d.Key
		v, ok := given[d.Key]
		if !ok {
			if d.Fallback == (scalar.Value{}) && c.Optional(d.Key) {
				continue
			} else if d.Fallback == (scalar.Value{}) {
				return nil, fault.Invalidf(field, "The variable %s is not given and has no fallback: give it in `%s`.", d.Key,
					field)
			}
			v = d.Fallback
		} else if err := v.Check(field, d.Type); err != nil {
			return nil, err
		}
		values[d.Key] = v.Text
	}
	return values, nil
}
