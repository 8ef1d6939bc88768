// Package render replaces the placeholders of templates by values.
//
// A placeholder is a name in three braces, with an optional fallback for a missing value:
//
//	Dear {{{contact.first_name|customer}}}, your code is {{{CODE}}}.
//
// A template is compiled once and filled for each recipient. Compiling takes time linear in its length and cannot
// fail: what does not have the form of a placeholder is text. Filling only copies. Values are copied unchanged,
// without escaping HTML: the caller decides what a value may contain. Values are not searched for placeholders.
// [Template.Line] is for header fields: no value can begin another field.
//
// The package does not know which names exist or what their values mean.
package render

import (
	"strings"
)

// Limits of a placeholder. A longer one is text.
const (
	MaxName     = 100  // octets
	MaxFallback = 2000 // octets
)

// Values are the values of placeholders by name. Names are case-sensitive.
type Values map[string]string

// Template is a compiled text. The zero Template is the empty text.
type Template struct {
	source string
	slots  []slot
}

// slot is a placeholder at source[start:end].
type slot struct {
	start, end     int
	name, fallback string
}

// Compile parses the placeholders of a text.
func Compile(source string) Template {
	t := Template{source: source}
	for at := 0; ; {
		end := strings.Index(source[at:], "}}}")
		if end < 0 {
			return t
		}
		end += at
		// The last opening before the closing braces: an earlier one is not closed and so is text.
		if start := strings.LastIndex(source[at:end], "{{{"); start >= 0 {
			start += at
			if name, fallback, ok := parse(source[start+3 : end]); ok {
				t.slots = append(t.slots, slot{start, end + 3, name, fallback})
			}
		}
		at = end + 3
	}
}

// parse parses the text between the braces.
func parse(text string) (name, fallback string, ok bool) {
	name, fallback, _ = strings.Cut(text, "|")
	name = strings.TrimSpace(name)
	if name == "" || len(name) > MaxName || len(fallback) > MaxFallback {
		return "", "", false
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '.', c == '-':
		default:
			return "", "", false
		}
	}
	return name, strings.TrimSpace(fallback), true
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

// Placeholders is how many placeholders the text has. Each takes some 50 octets of memory.
func (t *Template) Placeholders() int { return len(t.slots) }

// Fixed reports whether the text has no placeholders, and so is the same for all values.
func (t *Template) Fixed() bool { return len(t.slots) == 0 }

// Fill returns the text with placeholders replaced by values. A name without a value is replaced by its fallback, or
// by nothing if it has none; an empty value counts as a value.
func (t *Template) Fill(values Values) string { return t.fill(values, nil) }

// Line is Fill for a text of one line: each control character of a value or fallback becomes a space.
func (t *Template) Line(values Values) string { return t.fill(values, oneLine) }

// Len is how many octets Fill would return.
func (t *Template) Len(values Values) int {
	n := len(t.source)
	for _, s := range t.slots {
		n += len(s.value(values)) - (s.end - s.start)
	}
	return n
}

func (s *slot) value(values Values) string {
	if value, ok := values[s.name]; ok {
		return value
	}
	return s.fallback
}

func (t *Template) fill(values Values, clean func(string) string) string {
	if len(t.slots) == 0 {
		return t.source
	}
	var few [8]string
	all, n := few[:0], len(t.source)
	for _, s := range t.slots {
		value := s.value(values)
		if clean != nil {
			value = clean(value)
		}
		all = append(all, value)
		n += len(value) - (s.end - s.start)
	}
	var out strings.Builder
	out.Grow(n)
	at := 0
	for i, s := range t.slots {
		out.WriteString(t.source[at:s.start])
		out.WriteString(all[i])
		at = s.end
	}
	out.WriteString(t.source[at:])
	return out.String()
}

func oneLine(value string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, value)
}
