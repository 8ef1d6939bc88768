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
