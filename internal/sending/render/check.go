package render

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// SyntaxError describes a malformed placeholder.
type SyntaxError struct {
	Offset int    // byte offset of the opening braces
	Line   int    // from 1
	Column int    // column in characters, starting at 1
	Near   string // shortened text that starts at Offset
	Reason string // predicate of a sentence whose subject is the placeholder
}

// Error returns the position of the placeholder, a quotation from it, and the reason for the error.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: the placeholder that begins with %q %s", e.Line, e.Column, e.Near, e.Reason)
}

// Check returns a [SyntaxError] for the first three opening braces that do not start a placeholder, or nil. Closing
// braces without opening braces are ordinary text, because style sheets contain them.
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

// syntaxError describes the error in the placeholder at source[at:]. The next placeholder in the source starts at next.
func syntaxError(source string, at, next int) error {
	const nearMax = 40 // bytes
	before, rest := source[:at], source[at:next]
	e := &SyntaxError{Offset: at, Line: 1 + strings.Count(before, "\n"),
		Column: 1 + utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])}
	inside, _, closed := strings.Cut(rest[3:], "}}}")
	if strings.Contains(inside, "{{{") {
		closed = false // the closing braces end another placeholder
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
		e.Reason = fmt.Sprintf("has a fallback of %d bytes; the limit is %d", len(fallback), MaxFallback)
	case len(strings.TrimSpace(name)) > MaxName:
		e.Reason = fmt.Sprintf("has a name of %d bytes; the limit is %d", len(strings.TrimSpace(name)), MaxName)
	case strings.TrimSpace(name) == "":
		e.Reason = "has no name"
	default:
		e.Reason = "has a name with other characters than ASCII letters, digits, underscores, dots and dashes"
	}
	return e
}
