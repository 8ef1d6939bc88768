package convert

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/postrider/postrider/internal/sending/templates"
)

// TooLarge is the reason for a template with more text than templates may have.
var TooLarge = fmt.Sprintf("it has more than %d MB of text", templates.MaxSize>>20)

var (
	comment = regexp.MustCompile(`(?s)\{\{!--.*?--\}\}|\{\{![^}]*\}\}`)
	tag     = regexp.MustCompile(`(?s)\{\{\{\s*(.*?)\s*\}\}\}|\{\{(&?)\s*(.*?)\s*\}\}`)
	path    = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)*$`)
	insert  = regexp.MustCompile(`^insert\s+(\S+)(?:\s+"default=([^"{}|]*)")?$`)
	// words begins with the words that look like variables in Handlebars and are not.
	words = []string{"else", "this"}
)

// Handlebars translates a text with placeholders of Handlebars, Mustache or Mustachio. The names in unsubscribe stand
// for the address on which a recipient unsubscribes. In HTML, {{name}} is escaped, as in these languages.
func (t *Translator) Handlebars(text string, html bool, unsubscribe ...string) string {
	if len(text) > templates.MaxSize {
		t.Refuse(TooLarge)
		return ""
	}
	text = comment.ReplaceAllString(text, "")
	return tag.ReplaceAllStringFunc(text, func(found string) string {
		m := tag.FindStringSubmatch(found)
		name, escape := m[3], html && m[2] == ""
		if strings.HasPrefix(found, "{{{") {
			name, escape = m[1], false
		}
		for _, u := range unsubscribe {
			if name == u {
				return UnsubscribeURL
			}
		}
		if of := insert.FindStringSubmatch(name); of != nil && path.MatchString(of[1]) {
			return t.Variable(of[1], of[2], escape)
		}
		for _, w := range words {
			if name == w || strings.HasPrefix(name, w+".") {
				t.RefuseExpression(found)
				return found
			}
		}
		if !path.MatchString(name) {
			t.RefuseExpression(found)
			return found
		}
		return t.Variable(name, "", escape)
	})
}
