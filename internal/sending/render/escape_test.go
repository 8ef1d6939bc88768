package render_test

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/sending/render"
)

// The author of a template decides which values are inserted as HTML.
func TestEscape(t *testing.T) {
	values := render.Values{"V": `<a href="x">'&amp;'</a>`, "escape": "plain", "EMPTY": ""}
	const escaped = "&lt;a href=&#34;x&#34;&gt;&#39;&amp;amp;&#39;&lt;/a&gt;"
	for _, c := range []struct{ text, html, plain string }{
		{"{{{V}}}", values["V"], values["V"]},
		{"{{{escape V}}}", escaped, values["V"]},
		{"{{{ escape\t V |<b>none</b>}}}", escaped, values["V"]},
		{"{{{escape NONE|<b>none</b>}}}.", "<b>none</b>.", "<b>none</b>."},
		{"{{{escape EMPTY|none}}}.", ".", "."},
		{"{{{escape}}}", "plain", "plain"},
		{"{{{escape |x}}}", "plain", "plain"},
		{"{{{escapeV}}}", "", ""},
		{"{{{escape V W}}}", "{{{escape V W}}}", "{{{escape V W}}}"},
	} {
		asHTML, asText := render.CompileHTML(c.text), render.Compile(c.text)
		if got := asHTML.Fill(values); got != c.html {
			t.Errorf("%q as HTML becomes %q, want %q", c.text, got, c.html)
		}
		if n := asHTML.Len(values); n != len(c.html) {
			t.Errorf("%q as HTML: the length is %d, want %d", c.text, n, len(c.html))
		}
		if got := asText.Fill(values); got != c.plain {
			t.Errorf("%q as text becomes %q, want %q", c.text, got, c.plain)
		}
		if got := asText.Line(values); got != c.plain {
			t.Errorf("%q as a line becomes %q, want %q", c.text, got, c.plain)
		}
		if n := asText.Len(values); n != len(c.plain) {
			t.Errorf("%q as text: the length is %d, want %d", c.text, n, len(c.plain))
		}
	}
}

// Fields of contacts are escaped in HTML, and only once, unless the author asks for raw values.
func TestContactFieldsAreEscaped(t *testing.T) {
	values := render.Values{"raw": "<r>"}
	for _, name := range []string{"FIRST_NAME", "RESEND_LAST_NAME", "POSTRIDER_EMAIL", "contact.plan", "PLAN",
		"contactx"} {
		values[name] = "<&>"
	}
	for text, want := range map[string]string{
		"{{{FIRST_NAME}}}": "&lt;&amp;&gt;", "{{{escape FIRST_NAME}}}": "&lt;&amp;&gt;", "{{{raw FIRST_NAME}}}": "<&>",
		"{{{RESEND_LAST_NAME}}}": "&lt;&amp;&gt;", "{{{POSTRIDER_EMAIL|x}}}": "&lt;&amp;&gt;",
		"{{{contact.plan}}}": "&lt;&amp;&gt;", "{{{ raw contact.plan | x }}}": "<&>", "{{{contact.none|<i>}}}": "<i>",
		"{{{PLAN}}}": "<&>", "{{{raw PLAN}}}": "<&>", "{{{contactx}}}": "<&>", "{{{raw}}}": "<r>",
	} {
		asHTML, asText := render.CompileHTML(text), render.Compile(text)
		if got := asHTML.Fill(values); got != want || asHTML.Len(values) != len(want) {
			t.Errorf("%s as HTML becomes %q, want %q", text, got, want)
		}
		if got := asText.Fill(values); strings.Contains(got, "&lt;") {
			t.Errorf("%s as text becomes %q", text, got)
		}
	}
}

// The unsubscribe URL has three placeholder names, and its placeholders may have double braces.
func TestUnsubscribeURL(t *testing.T) {
	values := render.Values{render.UnsubscribeURL: "U", "NAME": "N"}
	for _, c := range []struct{ text, want string }{
		{"{{{POSTRIDER_UNSUBSCRIBE_URL}}}", "U"},
		{"{{{RESEND_UNSUBSCRIBE_URL}}}", "U"},
		{"{{{UNSUBSCRIBE_URL|none}}}", "U"},
		{"{{POSTRIDER_UNSUBSCRIBE_URL}}", "U"},
		{"a{{ RESEND_UNSUBSCRIBE_URL }}b{{UNSUBSCRIBE_URL}}{{{NAME}}}c{{UNSUBSCRIBE_URL}}", "aUbUNcU"},
		{"{{UNSUBSCRIBE_URL}}}", "U}"},
		{"{{{UNSUBSCRIBE_URL}}", "{U"},
		{"{{NAME}} {{OTHER_UNSUBSCRIBE_URL}} {{unsubscribe_url}} {{}} }} {{", ""},
		{"{{{NONE|see {{UNSUBSCRIBE_URL}} }}}", "see {{UNSUBSCRIBE_URL}}"}, // placeholders in a fallback are not filled
		{"{{{no name {{UNSUBSCRIBE_URL}}}", "{{{no name U}"},
	} {
		if c.want == "" {
			c.want = c.text
		}
		tmpl := render.Compile(c.text)
		if got := tmpl.Fill(values); got != c.want {
			t.Errorf("%q becomes %q, want %q", c.text, got, c.want)
		}
		if n := tmpl.Len(values); n != len(c.want) {
			t.Errorf("%q: the length is %d, want %d", c.text, n, len(c.want))
		}
		for _, name := range tmpl.Names() {
			if name != render.UnsubscribeURL && name != "NAME" && name != "NONE" {
				t.Errorf("%q has the name %q", c.text, name)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	for _, c := range []struct {
		text         string
		line, column int // 0 means that there is no error
		near, reason string
	}{
		{"", 0, 0, "", ""},
		{"no {{braces}} at } all {", 0, 0, "", ""},
		{"{{{NAME}}} {{{escape x|}}} {{{{NAME}}}} {{UNSUBSCRIBE_URL}}", 0, 0, "", ""},
		{"@media print{@supports(a:b){p{c:d}}} {{{NAME}}}", 0, 0, "", ""},
		{"Dear {{{NAME", 1, 6, "{{{NAME", "is not closed"},
		{"Dear {{{NAME}} you", 1, 6, "{{{NAME}} you", "is not closed"},
		{"a\nbä {{{NAME} {{{NAME}}}", 2, 4, "{{{NAME} ", "is not closed"},
		{"{{{A}}}\n{{{first name}}}", 2, 1, "{{{first name}}}", "other characters"},
		{"{{{}}}", 1, 1, "{{{}}}", "no name"},
		{"{{{ |x}}}", 1, 1, "{{{ |x}}}", "no name"},
		{"{{{{{{A}}}}}}", 1, 1, "{{{", "is not closed"},
		{"{{{" + strings.Repeat("n", 101) + "}}}", 1, 1, "{{{" + strings.Repeat("n", 37) + "…", "name of 101 bytes"},
		{"{{{A|" + strings.Repeat("f", 2001) + "}}}", 1, 1, "{{{A|" + strings.Repeat("f", 35) + "…",
			"fallback of 2001 bytes"},
	} {
		err := render.Check(c.text)
		var e *render.SyntaxError
		if c.line == 0 {
			if err != nil {
				t.Errorf("%.60q: %v", c.text, err)
			}
			continue
		}
		if !errors.As(err, &e) {
			t.Errorf("%.60q: no error, but %v", c.text, err)
			continue
		}
		if e.Line != c.line || e.Column != c.column || e.Near != c.near || !strings.Contains(e.Reason, c.reason) {
			t.Errorf("%.60q: %v; want line %d, column %d, near %q, a reason with %q", c.text, e, c.line, c.column, c.near,
				c.reason)
		}
		if !strings.HasPrefix(c.text[e.Offset:], "{{{") {
			t.Errorf("%.60q: at offset %d there are no braces", c.text, e.Offset)
		}
	}
}

// FuzzEscape checks that an escaped value always remains text.
func FuzzEscape(f *testing.F) {
	f.Add(`"><script>alert(1)</script>`)
	f.Add("&amp;lt;'`=")
	f.Fuzz(func(t *testing.T, value string) {
		if strings.ContainsAny(value, "\x00\r") {
			return // HTML parsers replace these characters
		}
		h := render.CompileHTML(`<p title="{{{escape V}}}" lang='{{{escape V}}}'>.{{{escape V}}}.</p>`)
		doc, err := html.Parse(strings.NewReader(h.Fill(render.Values{"V": value})))
		if err != nil {
			t.Fatal(err)
		}
		p := doc.FirstChild.LastChild.FirstChild
		if p.Data != "p" || p.NextSibling != nil || p.FirstChild == nil || p.FirstChild != p.LastChild {
			t.Fatalf("%q is not text", value)
		}
		if got := p.FirstChild.Data; got != "."+value+"." {
			t.Errorf("%q is the text %q", value, got)
		}
		for _, a := range p.Attr {
			if a.Val != value {
				t.Errorf("%q is the attribute %q", value, a.Val)
			}
		}
		if len(p.Attr) != 2 {
			t.Errorf("%q makes %d attributes", value, len(p.Attr))
		}
	})
}

// FuzzCheck checks that a string in which Check finds no error contains no triple opening braces after filling.
func FuzzCheck(f *testing.F) {
	f.Add("{{{A|{{{b}}}")
	f.Add("{{{A}} {{{B}}}")
	f.Add("{{{{{{A}}}}}}")
	f.Fuzz(func(t *testing.T, text string) {
		err := render.Check(text)
		tmpl := render.Compile(text)
		values := render.Values{}
		for _, name := range tmpl.Names() {
			values[name] = "x"
		}
		filled := tmpl.Fill(values)
		if err == nil && strings.Contains(filled, "{{{") {
			t.Errorf("%q has braces left: %q", text, filled)
		}
		var e *render.SyntaxError
		if err != nil && (!errors.As(err, &e) || !strings.HasPrefix(text[e.Offset:], "{{{")) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
