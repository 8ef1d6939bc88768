// Package render replaces the placeholders of templates by values.
//
// A placeholder is a name in three braces, with an optional fallback for a missing value:
//
//	Dear {{{contact.first_name|customer}}}, your code is {{{CODE}}}.
//
// Values are copied unchanged, so that a value may be HTML. Where it must not be, the author says so:
//
//	<p>{{{escape COMMENT|<i>no comment</i>}}}</p>
//
// In HTML this escapes the value, so that it is text wherever it stands between tags or in an attribute with quotes;
// the fallback is the author's and stays as it is. In other texts escape changes nothing.
//
// Two braces are text, except around the name of the address of the unsubscribe page ([UnsubscribeURL]), which may be
// written with either.
//
// A template is compiled once and filled for each recipient. Compiling takes time linear in its length and cannot
// fail: what does not have the form of a placeholder is text; [Check] reports what is nearly one. Filling only copies.
// Values are not searched for placeholders. [Template.Line] is for header fields: no value can begin another field.
//
// [HTML] also knows where the links are, and fills in others that lead through a tracking host.
//
// Apart from UnsubscribeURL the package does not know which names exist or what their values mean.
package render

import (
	"io"
	"strings"
)

// Limits of a placeholder. A longer one is text.
const (
	MaxName     = 100  // octets
	MaxFallback = 2000 // octets
)

// UnsubscribeURL is the name of the address of the unsubscribe page. RESEND_UNSUBSCRIBE_URL and UNSUBSCRIBE_URL are
// read as this name.
const UnsubscribeURL = "POSTRIDER_UNSUBSCRIBE_URL"

// Values are the values of placeholders by name. Names are case-sensitive.
type Values map[string]string

// Template is a compiled text. The zero Template is the empty text.
type Template struct {
	source string
	slots  []slot
	form   form
}

// slot is a placeholder at source[start:end].
type slot struct {
	start, end     int
	name, fallback string
	optional       bool // it has a fallback, which may be empty
	escape         bool
}

// form is what values are filled into.
type form int

const (
	plain  form = iota
	line        // control characters become spaces
	markup      // values are escaped where the author asks for it
)

// Compile parses the placeholders of a text that is not HTML.
func Compile(source string) Template { return compile(source, plain) }

func compile(source string, form form) Template {
	t := Template{source: source, form: form}
	rest := 0 // where the text after the last placeholder begins
	for at := 0; ; {
		end := strings.Index(source[at:], "}}}")
		if end < 0 {
			t.parseDoubleBraces(rest, len(source))
			return t
		}
		end += at
		// The last opening before the closing braces: an earlier one is not closed and so is text.
		if start := strings.LastIndex(source[at:end], "{{{"); start >= 0 {
			start += at
			if s, ok := parse(source[start+3 : end]); ok {
				t.parseDoubleBraces(rest, start)
				s.start, s.end = start, end+3
				t.slots = append(t.slots, s)
				rest = s.end
			}
		}
		at = end + 3
	}
}

// parseDoubleBraces finds the placeholders with two braces in source[from:to], which has none with three.
func (t *Template) parseDoubleBraces(from, to int) {
	for {
		end := strings.Index(t.source[from:to], "}}")
		if end < 0 {
			return
		}
		end += from
		if start := strings.LastIndex(t.source[from:end], "{{"); start >= 0 {
			start += from
			if s, ok := parse(t.source[start+2 : end]); ok && s.name == UnsubscribeURL {
				s.start, s.end = start, end+2
				t.slots = append(t.slots, s)
			}
		}
		from = end + 2
	}
}

// parse parses the text between the braces.
func parse(text string) (s slot, ok bool) {
	s.name, s.fallback, s.optional = strings.Cut(text, "|")
	if len(s.fallback) > MaxFallback {
		return s, false
	}
	s.name, s.fallback = strings.TrimSpace(s.name), strings.TrimSpace(s.fallback)
	if name, found := strings.CutPrefix(s.name, "escape"); found && name != strings.TrimSpace(name) {
		s.name, s.escape = strings.TrimSpace(name), true
	}
	if s.name == "" || len(s.name) > MaxName || strings.ContainsFunc(s.name, notOfName) {
		return s, false
	}
	if s.name == "RESEND_UNSUBSCRIBE_URL" || s.name == "UNSUBSCRIBE_URL" {
		s.name = UnsubscribeURL
	}
	return s, true
}

func notOfName(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '.', r == '-':
		return false
	}
	return true
}

// Source is the text that was compiled.
func (t *Template) Source() string { return t.source }

// Names are the names of the placeholders, each once, in the order in which they first appear.
func (t *Template) Names() (names []string) {
	seen := map[string]bool{}
	for _, s := range t.slots {
		if !seen[s.name] {
			seen[s.name] = true
			names = append(names, s.name)
		}
	}
	return names
}

// Required are the names of the placeholders without a fallback, in the order of the text. Some may be there twice.
func (t *Template) Required() (names []string) {
	for _, s := range t.slots {
		if !s.optional {
			names = append(names, s.name)
		}
	}
	return names
}

// Placeholders is how many placeholders the text has. Each takes some 60 octets of memory.
func (t *Template) Placeholders() int { return len(t.slots) }

// Fixed reports whether the text has no placeholders, and so is the same for all values.
func (t *Template) Fixed() bool { return len(t.slots) == 0 }

// Fill returns the text with placeholders replaced by values. A name without a value is replaced by its fallback, or
// by nothing if it has none; an empty value counts as a value.
func (t *Template) Fill(values Values) string { return t.fill(values, t.form) }

// Line is Fill for a text of one line: each control character of a value or fallback becomes a space.
func (t *Template) Line(values Values) string { return t.fill(values, line) }

// Len is how many octets Fill would return.
func (t *Template) Len(values Values) int {
	n := len(t.source)
	for i := range t.slots {
		s := &t.slots[i]
		value, given := s.value(values)
		if n += len(value) - (s.end - s.start); given && s.escape && t.form == markup {
			n += escapes(value)
		}
	}
	return n
}

func (t *Template) fill(values Values, form form) string {
	if len(t.slots) == 0 {
		return t.source
	}
	var out strings.Builder
	out.Grow(t.Len(values))
	t.write(&out, values, form, 0, len(t.source), 0)
	return out.String()
}

// write writes source[from:to] with its placeholders filled. slot is the index of the first of them, and it returns
// that of the first one after. No placeholder may cross an end. Errors of w are ignored: it is memory.
func (t *Template) write(w io.StringWriter, values Values, form form, from, to, slot int) int {
	for ; slot < len(t.slots) && t.slots[slot].end <= to; slot++ {
		s := &t.slots[slot]
		_, _ = w.WriteString(t.source[from:s.start])
		from = s.end
		value, given := s.value(values)
		switch {
		case form == line:
			_, _ = w.WriteString(oneLine(value))
		case form == markup && s.escape && given:
			writeEscaped(w, value)
		default:
			_, _ = w.WriteString(value)
		}
	}
	_, _ = w.WriteString(t.source[from:to])
	return slot
}

// value returns what replaces the placeholder. given reports that it is a value and not the fallback.
func (s *slot) value(values Values) (value string, given bool) {
	if value, given = values[s.name]; given {
		return value, true
	}
	return s.fallback, false
}

func oneLine(value string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, value)
}

// reference returns the character reference that stands for a character in HTML, "" if it may stand for itself.
func reference(c byte) string {
	switch c {
	case '&':
		return "&amp;"
	case '<':
		return "&lt;"
	case '>':
		return "&gt;"
	case '"':
		return "&#34;"
	case '\'':
		return "&#39;"
	}
	return ""
}

// escapes is how many octets longer a value becomes when it is escaped.
func escapes(value string) (n int) {
	for i := range len(value) {
		if r := reference(value[i]); r != "" {
			n += len(r) - 1
		}
	}
	return n
}

func writeEscaped(w io.StringWriter, value string) {
	from := 0
	for i := range len(value) {
		if r := reference(value[i]); r != "" {
			_, _ = w.WriteString(value[from:i])
			_, _ = w.WriteString(r)
			from = i + 1
		}
	}
	_, _ = w.WriteString(value[from:])
}
