package render

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// SyntaxError says where a text has what looks like a placeholder and is none.
type SyntaxError struct {
	Offset int    // of the opening braces, in octets
	Line   int    // from 1
	Column int    // in characters, from 1
	Near   string // the text from there on, shortened
	Reason string // as the end of a sentence about it
}

// Error names the place, quotes the text and says what is wrong with it.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: the placeholder that begins with %q %s", e.Line, e.Column, e.Near, e.Reason)
}

// Check returns a [SyntaxError] for the first three opening braces of a text that begin no placeholder, nil if there
// are none. Closing braces without opening ones are text: style sheets have them.
func Check(source string) error {
	t := Compile(source)
	from := 0
	for _, s := range append(t.slots, slot{start: len(source)}) {
		if i := strings.Index(source[from:s.start], "{{{"); i >= 0 {
			return syntaxError(source, from+i, s.start)
		}
		from = s.end
	}
	return nil
}

// syntaxError describes the braces at source[at:]; the next placeholder begins at next.
func syntaxError(source string, at, next int) error {
	const nearMax = 40 // octets
	before, rest := source[:at], source[at:next]
	e := &SyntaxError{Offset: at, Line: 1 + strings.Count(before, "\n"),
		Column: 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])}
	inside, _, closed := strings.Cut(rest[3:], "}}}")
	if strings.Contains(inside, "{{{") {
		closed = false // the closing braces belong to another one
	}
	near := rest
	if closed {
		near = rest[:3+len(inside)+3]
	}
	near, _, _ = strings.Cut(near, "\n")
	if len(near) > nearMax {
		near = strings.ToValidUTF8(near[:nearMax], "") + "…"
	}
	e.Near = near
	name, fallback, _ := strings.Cut(inside, "|")
	switch {
	case !closed:
		e.Reason = "is not closed by }}}"
	case len(fallback) > MaxFallback:
		e.Reason = fmt.Sprintf("has a fallback of %d octets; the limit is %d", len(fallback), MaxFallback)
	case len(strings.TrimSpace(name)) > MaxName:
		e.Reason = fmt.Sprintf("has a name of %d octets; the limit is %d", len(strings.TrimSpace(name)), MaxName)
	case strings.TrimSpace(name) == "":
		e.Reason = "has no name"
	default:
		e.Reason = "has a name with other characters than ASCII letters, digits, underscores, dots and dashes"
	}
	return e
}
