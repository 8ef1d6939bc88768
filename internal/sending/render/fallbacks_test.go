package render_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/sending/render"
)

// TestWithFallbacks: a placeholder without a fallback gets the fallback for its name if that fallback is valid.
// WithFallbacks keeps the rest of the text unchanged.
func TestWithFallbacks(t *testing.T) {
	fallbacks := map[string]string{"plan": "free", "braces": "{x}", "long": strings.Repeat("x", render.MaxFallback+1),
		"empty": " ", render.UnsubscribeURL: "x"}
	fallback := func(name string) (string, bool) { text, ok := fallbacks[name]; return text, ok }
	for source, want := range map[string]string{
		"no placeholder {{plan}}":                            "no placeholder {{plan}}",
		"a {{{plan}}} b {{{ escape plan }}}":                 "a {{{plan|free}}} b {{{ escape plan |free}}}",
		"{{{plan|}}}{{{plan|own}}}{{{plan}}}":                "{{{plan|}}}{{{plan|own}}}{{{plan|free}}}",
		"{{{other}}}{{{braces}}}{{{long}}}{{{empty}}}":       "{{{other}}}{{{braces}}}{{{long}}}{{{empty}}}",
		"{{UNSUBSCRIBE_URL}}{{{POSTRIDER_UNSUBSCRIBE_URL}}}": "{{UNSUBSCRIBE_URL}}{{{POSTRIDER_UNSUBSCRIBE_URL}}}",
	} {
		if got := render.WithFallbacks(source, fallback); got != want {
			t.Errorf("%s becomes %s, want %s", source, got, want)
		}
	}
	filled := render.Compile(render.WithFallbacks("{{{plan}}}{{{ escape plan }}}", fallback))
	if got := filled.Fill(nil); got != "freefree" {
		t.Errorf("it is filled as %q", got)
	}
}

// WithEscapes escapes each value, except the unsubscribe URL and raw ones.
func TestWithEscapes(t *testing.T) {
	const source = "{{{plan}}}{{{ raw plan|<i>}}}{{{escape plan}}}{{{FIRST_NAME|}}}{{{UNSUBSCRIBE_URL}}}{{{raw"
	for always, want := range map[bool]string{
		false: "{{{escape plan}}}{{{ raw plan|<i>}}}{{{escape plan}}}{{{FIRST_NAME|}}}{{{UNSUBSCRIBE_URL}}}{{{raw",
		true:  "{{{escape plan}}}{{{escape  plan|<i>}}}{{{escape plan}}}{{{FIRST_NAME|}}}{{{UNSUBSCRIBE_URL}}}{{{raw",
	} {
		if got := render.WithEscapes(source, always); got != want {
			t.Errorf("it becomes %s, want %s", got, want)
		}
	}
}

// A fallback that is set with the values is used after the placeholder's own fallback, and escaped like a value.
func TestSetFallback(t *testing.T) {
	values := render.Values{}
	values.SetFallback("contact.plan", "{<}}}")
	text := render.CompileHTML("{{{contact.plan}}} {{{raw contact.plan}}} {{{contact.plan|own}}} {{{contact.x}}}")
	if got := text.Fill(values); got != "{&lt;}}} {<}}} own " || text.Len(values) != len(got) {
		t.Errorf("it is filled as %q", got)
	}
	values["contact.plan"] = "pro"
	if got := text.Fill(values); got != "pro pro pro " {
		t.Errorf("with a value it is filled as %q", got)
	}
}
