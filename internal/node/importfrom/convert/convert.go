// Package convert translates values, names and templates of other email products into those of Postrider.
//
// A template that uses more than variables, such as conditions and loops, cannot be translated: the result is then a
// reason, and no template. A translated template is a draft, because a person should read it before it is used.
package convert

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/sending/templates"
)

// UnsubscribeURL is the placeholder of the address on which a recipient unsubscribes.
const UnsubscribeURL = "{{{POSTRIDER_UNSUBSCRIBE_URL}}}"

// Values returns the values of a JSON object by their names. Strings and numbers keep their type; everything else
// becomes its JSON text. Empty and null values are left out.
func Values(object map[string]json.RawMessage) map[string]scalar.Value {
	values := map[string]scalar.Value{}
	for name, text := range object {
		var decoded any
		if json.Unmarshal(text, &decoded) != nil {
			continue
		}
		v := scalar.OfText(string(text))
		switch d := decoded.(type) {
		case nil:
			continue
		case string:
			if v = scalar.OfText(d); d == "" {
				continue
			}
		case float64:
			v = scalar.OfNumber(d)
		}
		values[name] = v
	}
	if len(values) == 0 {
		return nil
	}
	return values
}

// Name splits a full name into the first name and the rest.
func Name(full string) (first, last string) {
	first, last, _ = strings.Cut(strings.Join(strings.Fields(full), " "), " ")
	return first, last
}

// Translator translates the placeholders of a template, and collects its variables.
type Translator struct {
	keys      map[string]string // by the variable's name in the product
	fallbacks map[string]string // by key
	order     []string
	changed   []string // for the note
	reason    string
}

// Variable returns the placeholder of a variable, given its name in the product, such as user.name. If escape is set,
// the value is escaped for HTML. The fallback may be ""; the first other one is that of the variable.
func (t *Translator) Variable(name, fallback string, escape bool) string {
	key := importfrom.Key(name)
	if templates.IsReserved(key) {
		key += "_"
	}
	if t.keys == nil {
		t.keys, t.fallbacks = map[string]string{}, map[string]string{}
	}
	if _, known := t.keys[name]; !known {
		if len(t.keys) == templates.MaxVariables {
			t.Refuse(fmt.Sprintf("it has more than %d variables", templates.MaxVariables))
			return ""
		}
		for other, k := range t.keys {
			if k == key {
				t.Refuse(fmt.Sprintf("its variables %s and %s would have the same key", other, name))
			}
		}
		t.keys[name], t.order = key, append(t.order, key)
		if key != name {
			t.changed = append(t.changed, name+" is "+key)
		}
	}
	text := key
	if escape {
		text = "escape " + key
	}
	if t.fallbacks[key] == "" {
		t.fallbacks[key] = fallback
	}
	return "{{{" + text + "}}}"
}

// Refuse notes why the template cannot be translated. The first reason stays.
func (t *Translator) Refuse(reason string) {
	if t.reason == "" {
		t.reason = reason
	}
}

// RefuseExpression is Refuse for an expression that templates do not have.
func (t *Translator) RefuseExpression(text string) {
	if utf8.RuneCountInString(text) > 60 {
		text = string([]rune(text)[:60]) + "…"
	}
	t.Refuse("it uses " + text + ", which templates do not have here")
}

// Finish sets the variables and the note of a translated template, or returns the reason why it cannot be translated. A
// variable without a value is empty, as in the product.
func (t *Translator) Finish(of *importfrom.Template) (reason string) {
	if t.reason != "" {
		return t.reason
	}
	for _, key := range t.order {
		of.Variables = append(of.Variables, importfrom.Variable{Key: key, Type: scalar.String,
			Fallback: scalar.OfText(t.fallbacks[key])})
	}
	of.Published, of.Note = false, "its placeholders were translated: read it, and publish it"
	if len(t.changed) > 0 {
		of.Note += "; " + strings.Join(t.changed, ", ")
	}
	return ""
}
