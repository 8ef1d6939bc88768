package content_test

import (
	"testing"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
)

// A value in a display name remains part of the name, whatever characters it has.
func TestDisplayNames(t *testing.T) {
	t.Parallel()
	values := render.Values{"A": "Doe, Jane", "B": `5" \ 3 (x)`, "C": "Zoë", "D": "=?utf-8?q?x?=",
		"EMAIL": "e@acme.example", "E": "", "PLAIN": "J. Doe"}
	for source, want := range map[string]struct{ text, name string }{
		"{{{A}}} <a@acme.example>":                {`"Doe, Jane" <a@acme.example>`, "Doe, Jane"},
		"{{{PLAIN}}} at Acme <a@acme.example>":    {"J. Doe at Acme <a@acme.example>", "J. Doe at Acme"},
		`"{{{A}}} at Acme" <a@acme.example>`:      {`"Doe, Jane at Acme" <a@acme.example>`, "Doe, Jane at Acme"},
		`"Acme, Inc" {{{B}}} <a@acme.example>`:    {`"Acme, Inc 5\" \\ 3 (x)" <a@acme.example>`, `Acme, Inc 5" \ 3 (x)`},
		"{{{C}}} <a@acme.example>":                {"Zoë <a@acme.example>", "Zoë"},
		"{{{D}}} <a@acme.example>":                {`"=?utf-8?q?x?=" <a@acme.example>`, "=?utf-8?q?x?="},
		"{{{E}}}{{{NONE}}} <a@acme.example>":      {"<a@acme.example>", ""},
		"{{{NONE|Acme <x>, Inc}}} <{{{EMAIL}}}>":  {`"Acme <x>, Inc" <e@acme.example>`, "Acme <x>, Inc"},
		"{{{EMAIL}}}":                             {"e@acme.example", ""},
		"=?utf-8?q?Acme=2C?= {{{C}}} <a@acme.de>": {"=?utf-8?q?Acme=2C?= Zoë <a@acme.de>", "Acme, Zoë"},
		"{{{NONE|Acme <a@acme.example>}}}":        {"Acme <a@acme.example>", "Acme"},
	} {
		c := content.Compile(&content.Content{From: source, ReplyTo: []string{source}})
		if got := c.From(values); got != want.text || c.ReplyTo(values)[0] != want.text {
			t.Errorf("%s becomes %s, want %s", source, got, want.text)
		}
		if a, err := message.ParseAddress(c.From(values)); err != nil || a.Name != want.name {
			t.Errorf("%s has the name %q, %v, want %q", source, a.Name, err, want.name)
		}
	}
}
