// Package render replaces the placeholders in templates with values.
//
// A placeholder is a name in triple braces, with an optional fallback:
//
//	Dear {{{contact.first_name|customer}}}, your code is {{{CODE}}}.
//
// Values are inserted unchanged, so a value may contain HTML. If a value must not contain HTML, the author of the
// template writes:
//
//	<p>{{{escape COMMENT|<i>no comment</i>}}}</p>
//
// In an HTML template, escape replaces the value's special characters, so that the value is plain text between tags and
// in a quoted attribute. The fallback is written by the template's author and is not escaped. In templates that are not
// HTML, escape has no effect. Fields of contacts ([IsContactField]) are always escaped, because strangers type them
// into forms, unless the author writes {{{raw contact.first_name}}}.
//
// Double braces are ordinary text, with one exception: the placeholder of the unsubscribe URL ([UnsubscribeURL]) may
// have double or triple braces.
//
// A template is compiled once and filled for each recipient. Compiling takes linear time and cannot fail: anything that
// is not a well-formed placeholder is ordinary text. [Check] reports text that resembles a placeholder. Filling does
// not search values for placeholders. [Template.Line] is for header fields: no value can start another field.
//
// [HTML] also finds the links in HTML, and can replace them with tracked links.
//
// Apart from UnsubscribeURL and the names of contact fields, package render does not interpret names and values.
package render

import (
	"io"
	"strings"
)

// Limits for a placeholder's name and fallback. Text that exceeds the limits for names and fallbacks is not a
// placeholder.
const (
	MaxName     = 100  // bytes
	MaxFallback = 2000 // bytes
)

// UnsubscribeURL is the placeholder name of the unsubscribe page's URL. RESEND_UNSUBSCRIBE_URL and UNSUBSCRIBE_URL are
// aliases of UnsubscribeURL.
const UnsubscribeURL = "POSTRIDER_UNSUBSCRIBE_URL"

// Values holds the placeholders' values by name, and fallbacks (see SetFallback). Names are case-sensitive.
type Values map[string]string

// fallbackMark cannot occur in a placeholder's name.
const fallbackMark = "|"

// SetFallback sets a fallback for those placeholders with a name that have no fallback of their own. Unlike a
// placeholder's own fallback, it is escaped where a value would be escaped.
func (v Values) SetFallback(name, text string) { v[fallbackMark+name] = text }

// NameOf returns the name of the placeholders that a key of Values fills.
func NameOf(key string) string { return strings.TrimPrefix(key, fallbackMark) }

// Template is a compiled text with placeholders. The zero Template is the empty text.
type Template struct {
	source string
	slots  []slot
	form   form
}

// slot is a placeholder at the position source[start:end].
type slot struct {
	start, end     int
	name, fallback string
	optional       bool // whether the placeholder has a fallback, which may be empty
	escape, raw    bool // raw is true only if the placeholder says so
}

// form is the kind of text into which values are inserted.
type form int

const (
	plain  form = iota
	line        // control characters in values become spaces
	markup      // values of placeholders with escape are escaped
)

// Compile parses the placeholders of a text that is not HTML.
func Compile(source string) Template { return compile(source, plain) }

func compile(source string, form form) Template {
	t := Template{source: source, form: form}
	rest := 0 // end of the previous placeholder
	for at := 0; ; {
		end := strings.Index(source[at:], "}}}")
		if end < 0 {
			t.parseDoubleBraces(rest, len(source))
			return t
		}
		end += at
		// The placeholder starts at the last opening braces, because earlier opening braces are not closed and are
		// ordinary text.
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

// parseDoubleBraces finds the placeholders with double braces in source[from:to], which contains no placeholders with
// triple braces.
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

// parse parses the text between the braces of a placeholder.
func parse(text string) (s slot, ok bool) {
	s.name, s.fallback, s.optional = strings.Cut(text, "|")
	if len(s.fallback) > MaxFallback {
		return s, false
	}
	s.name, s.fallback = strings.TrimSpace(s.name), strings.TrimSpace(s.fallback)
	if name, found := cutKeyword(s.name, "escape"); found {
		s.name, s.escape = name, true
	} else if name, s.raw = cutKeyword(s.name, "raw"); s.raw {
		s.name = name
	} else {
		s.escape = IsContactField(s.name)
	}
	if s.name == "" || len(s.name) > MaxName || strings.ContainsFunc(s.name, notOfName) {
		return s, false
	}
	if s.name == "RESEND_UNSUBSCRIBE_URL" || s.name == "UNSUBSCRIBE_URL" {
		s.name = UnsubscribeURL
	}
	return s, true
}

// cutKeyword removes a keyword and the white space after it from the start of a placeholder.
func cutKeyword(text, keyword string) (name string, found bool) {
	rest, found := strings.CutPrefix(text, keyword)
	if name = strings.TrimSpace(rest); !found || name == rest {
		return text, false
	}
	return name, true
}

// IsContactField reports whether a placeholder's name refers to a field of the contact to whom an email is sent:
// FIRST_NAME, LAST_NAME or EMAIL, which may have the prefix POSTRIDER_ or RESEND_, or a name that begins with contact.
func IsContactField(name string) bool {
	if rest, found := strings.CutPrefix(name, "POSTRIDER_"); found {
		name = rest
	} else if rest, found := strings.CutPrefix(name, "RESEND_"); found {
		name = rest
	}
	return name == "FIRST_NAME" || name == "LAST_NAME" || name == "EMAIL" || strings.HasPrefix(name, "contact.")
}

func notOfName(r rune) bool {
	switch {
	case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '_', r == '.', r == '-':
		return false
	}
	return true
}

// Source returns the original text of the template.
func (t *Template) Source() string { return t.source }

// Names returns the distinct names of the placeholders, in order of first occurrence.
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

// Required returns the names of the placeholders without a fallback, in order of appearance. Names may repeat.
func (t *Template) Required() (names []string) {
	for _, s := range t.slots {
		if !s.optional {
			names = append(names, s.name)
		}
	}
	return names
}

// Placeholders returns the number of placeholders in the template. Each placeholder occupies about 60 bytes of memory.
func (t *Template) Placeholders() int { return len(t.slots) }

// Fixed reports whether the text has no placeholders, so that values do not change it.
func (t *Template) Fixed() bool { return len(t.slots) == 0 }

// Fill returns the text with its placeholders replaced by values. A placeholder without a value is replaced by its
// fallback, or removed if it has no fallback. An empty value also counts as a value.
func (t *Template) Fill(values Values) string { return t.fill(values, t.form) }

// Line is like Fill for a single line: each control character in a value or fallback becomes a space.
func (t *Template) Line(values Values) string { return t.fill(values, line) }

// Len returns the length in bytes of Fill's result.
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

// write writes source[from:to] with its placeholders filled. The parameter slot is the index of the first placeholder
// in that range; write returns the index of the first placeholder after the range. No placeholder may be partly outside
// the range. Errors from w are ignored, because w writes to memory.
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

// value returns the text that replaces the placeholder, and reports whether that text is given by the values rather
// than by the placeholder's own fallback.
func (s *slot) value(values Values) (value string, given bool) {
	if value, given = values[s.name]; given {
		return value, true
	}
	if !s.optional {
		return values[fallbackMark+s.name], true
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

// reference returns the HTML character reference for a character, or "" if the character need not be escaped.
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

// escapes returns the number of bytes that escaping adds to a value.
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
