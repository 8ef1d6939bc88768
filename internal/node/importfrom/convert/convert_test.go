package convert_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/convert"
	"github.com/postrider/postrider/internal/sending/render"
)

func TestHandlebars(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ text, want, reason string }{
		{"Hi {{name}}, {{{ user.name }}} {{&raw}}", "Hi {{{escape name}}}, {{{user_name}}} {{{raw}}}", ""},
		{"{{! note }}x{{!-- {{a}} --}}y", "xy", ""},
		{`{{insert name "default=friend"}} {{insert city}}`, "{{{escape name}}} {{{escape city}}}", ""},
		{"<a href='{{{unsubscribe}}}'>{{ unsubscribe }}</a>", "<a href='" + convert.UnsubscribeURL + "'>" +
			convert.UnsubscribeURL + "</a>", ""},
		{"{{EMAIL}}", "{{{escape EMAIL_}}}", ""},
		{"a { b } c", "a { b } c", ""},
		{"{{#each items}}{{name}}{{/each}}", "", "it uses {{#each items}}, which templates do not have here"},
		{"{{^empty}}x{{/empty}}", "", "it uses {{^empty}}, which templates do not have here"},
		{"{{> header}}", "", "it uses {{> header}}, which templates do not have here"},
		{"{{this}}", "", "it uses {{this}}, which templates do not have here"},
		{"{{formatDate now}}", "", "it uses {{formatDate now}}, which templates do not have here"},
		{"{{a.b}} {{a_b}}", "", "its variables a.b and a_b would have the same key"},
	} {
		var tr convert.Translator
		var of importfrom.Template
		got := tr.Handlebars(c.text, true, "unsubscribe")
		if reason := tr.Finish(&of); reason != c.reason || reason == "" && got != c.want {
			t.Errorf("%s: %q, %q", c.text, got, reason)
		} else if reason == "" && render.Check(got) != nil {
			t.Errorf("%s: %v", c.text, render.Check(got))
		}
	}
	var tr convert.Translator
	if got := tr.Handlebars(`{{name}} {{insert name "default=friend"}}`, false); got != "{{{name}}} {{{name}}}" {
		t.Errorf("a text is escaped: %s", got)
	}
	var of importfrom.Template
	if tr.Finish(&of); len(of.Variables) != 1 || of.Variables[0].Fallback != scalar.OfText("friend") || of.Published {
		t.Errorf("the template is %+v", of)
	}
}

// A template with more variables or text than templates may have is refused without much work.
func TestHugeTemplates(t *testing.T) {
	t.Parallel()
	var many strings.Builder
	for i := range 100_000 {
		fmt.Fprintf(&many, "{{v%d}}", i)
	}
	for want, text := range map[string]string{"it has more than 50 variables": many.String(),
		"it has more than 4 MB of text": strings.Repeat("x", 4<<20+1)} {
		var tr convert.Translator
		var of importfrom.Template
		tr.Handlebars(text, true)
		if reason := tr.Finish(&of); reason != want {
			t.Errorf("%s: %s", want, reason)
		}
	}
}

func TestValues(t *testing.T) {
	t.Parallel()
	var object map[string]json.RawMessage
	text := `{"city":"Graz","age":7,"good":true,"none":null,"empty":"","stack":{"a":[1]},"E-Mail":"x","email":"y","":1}`
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatal(err)
	}
	want := map[string]scalar.Value{"city": scalar.OfText("Graz"), "age": scalar.OfNumber(7), "good": scalar.OfText("true"),
		"stack": scalar.OfText(`{"a":[1]}`), "E-Mail": scalar.OfText("x"), "email": scalar.OfText("y"),
		"": scalar.OfNumber(1)}
	if diff := cmp.Diff(want, convert.Values(object)); diff != "" {
		t.Error(diff)
	}
	if first, last := convert.Name("  Ada  King Lovelace "); first != "Ada" || last != "King Lovelace" {
		t.Errorf("%q, %q", first, last)
	}
}
