package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/sending/render"
)

func TestFill(t *testing.T) {
	values := render.Values{"NAME": "Ann", "contact.first_name": "Bob", "EMPTY": "", "BRACES": "{{{NAME}}}", "n-1": "one"}
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"no placeholder", "no placeholder"},
		{"{{{NAME}}}", "Ann"},
		{"Dear {{{NAME}}},", "Dear Ann,"},
		{"{{{NAME}}}{{{NAME}}} and {{{contact.first_name}}}", "AnnAnn and Bob"},
		{"{{{n-1}}}", "one"},
		{"{{{ NAME }}}", "Ann"},
		{"{{{NAME|you}}}", "Ann"},
		{"{{{OTHER}}}.", "."},
		{"{{{OTHER|you all}}}", "you all"},
		{"{{{OTHER| you }}}", "you"},
		{"{{{OTHER|a|b}}}", "a|b"},
		{"{{{OTHER|}}}", ""},
		{"{{{EMPTY|you}}}", ""},
		{"{{{name}}}", ""}, // names are case-sensitive
		{"{{{BRACES}}}", "{{{NAME}}}"},
		{"{{NAME}}", "{{NAME}}"},
		{"{{{NAME}}", "{{{NAME}}"},
		{"{{{}}}", "{{{}}}"},
		{"{{{|x}}}", "{{{|x}}}"},
		{"{{{NA ME}}}", "{{{NA ME}}}"},
		{"{{{NÄME}}}", "{{{NÄME}}}"},
		{"{{{{NAME}}}}", "{Ann}"},
		{"{{{ {{{NAME}}}", "{{{ Ann"},
		{"}}}{{{NAME}}}", "}}}Ann"},
		{"{{{no name!}}} {{{NAME}}}", "{{{no name!}}} Ann"},
		{"{{{" + strings.Repeat("N", render.MaxName) + "}}}", ""},
		{"{{{" + strings.Repeat("N", render.MaxName+1) + "}}}", "{{{" + strings.Repeat("N", render.MaxName+1) + "}}}"},
		{"{{{X|" + strings.Repeat("f", render.MaxFallback) + "}}}", strings.Repeat("f", render.MaxFallback)},
		{"{{{X|" + strings.Repeat("f", render.MaxFallback+1) + "}}}",
			"{{{X|" + strings.Repeat("f", render.MaxFallback+1) + "}}}"},
	} {
		tmpl := render.Compile(c.text)
		if got := tmpl.Fill(values); got != c.want {
			t.Errorf("%.60q becomes %.60q, want %.60q", c.text, got, c.want)
		}
		if n := tmpl.Len(values); n != len(c.want) {
			t.Errorf("%.60q: the length is %d, want %d", c.text, n, len(c.want))
		}
		if fixed := c.text == c.want; tmpl.Fixed() != fixed {
			t.Errorf("%.60q: fixed is %v", c.text, !fixed)
		}
		if tmpl.Source() != c.text {
			t.Errorf("the source of %.60q is %.60q", c.text, tmpl.Source())
		}
	}
}

func TestNames(t *testing.T) {
	tmpl := render.Compile("{{{B}}} {{{A|x}}} {{{B|y}}} {{{ }}}")
	if got := tmpl.Names(); !slices.Equal(got, []string{"B", "A"}) {
		t.Errorf("the names are %q", got)
	}
}

// A value in a header field cannot start another header field.
func TestLine(t *testing.T) {
	tmpl := render.Compile("Hi {{{NAME|a\tb}}}!")
	for value, want := range map[string]string{
		"Ann":                     "Hi Ann!",
		"Ann\r\nBcc: eve@example": "Hi Ann  Bcc: eve@example!",
		"a\x00b\x7fc\nd":          "Hi a b c d!",
		"Jürgen 😀":                "Hi Jürgen 😀!",
		"":                        "Hi !",
	} {
		if got := tmpl.Line(render.Values{"NAME": value}); got != want {
			t.Errorf("%q becomes %q, want %q", value, got, want)
		}
	}
	if got := tmpl.Line(nil); got != "Hi a b!" {
		t.Errorf("without a value it is %q", got)
	}
}

// FuzzFill checks that all placeholder names occur in the text, that filling does not change text without placeholders,
// and that Line does not let a value start a new line.
func FuzzFill(f *testing.F) {
	f.Add("Dear {{{NAME|you}}}, {{{x}}}", "v")
	f.Add("{{{{{{a}}}}}}", "{{{a}}}")
	f.Fuzz(func(t *testing.T, text, value string) {
		tmpl := render.Compile(text)
		values := render.Values{}
		for _, name := range tmpl.Names() {
			values[name] = value
			if !strings.Contains(text, name) {
				t.Errorf("the name %q is not in the text", name)
			}
		}
		if got := tmpl.Fill(values); tmpl.Fixed() && got != text {
			t.Errorf("a text without placeholders became %q", got)
		}
		if line := tmpl.Line(values); strings.Count(line, "\n") > strings.Count(text, "\n") {
			t.Errorf("a value began a line: %q", line)
		}
	})
}

func BenchmarkFill(b *testing.B) {
	text := strings.Repeat("<p>Dear {{{contact.first_name|customer}}}, thank you.</p>\n", 500)
	tmpl := render.Compile(text)
	values := render.Values{"contact.first_name": "Ann"}
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		tmpl.Fill(values)
	}
}

// Text that resembles placeholders is compiled in linear time.
func BenchmarkCompileHostile(b *testing.B) {
	text := strings.Repeat("{{{", 100_000) + strings.Repeat("}}", 100_000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		render.Compile(text)
	}
}
