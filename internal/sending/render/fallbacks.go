package render

import (
	"html"
	"strings"
)

// WithFallbacks adds a fallback to each placeholder that has none, except the unsubscribe URL. The function fallback
// returns the fallback for a placeholder's name, or false if there is none. WithFallbacks ignores fallbacks that a
// placeholder cannot contain (see CanContain).
func WithFallbacks(source string, fallback func(name string) (string, bool)) string {
	return withFallbacks(source, fallback, plain)
}

// WithHTMLFallbacks is like WithFallbacks for HTML. It escapes the fallbacks, except for placeholders with raw.
func WithHTMLFallbacks(source string, fallback func(name string) (string, bool)) string {
	return withFallbacks(source, fallback, markup)
}

func withFallbacks(source string, fallback func(name string) (string, bool), form form) string {
	t := Compile(source)
	var out strings.Builder
	from := 0
	for i := range t.slots {
		s := &t.slots[i]
		if s.optional || s.name == UnsubscribeURL {
			continue
		}
		text, ok := fallback(s.name)
		if form == markup && !s.raw {
			text = html.EscapeString(text)
		}
		if !ok || strings.TrimSpace(text) == "" || !canContain(text) {
			continue
		}
		out.WriteString(source[from : s.end-3])
		out.WriteString("|" + text + "}}}")
		from = s.end
	}
	if from == 0 {
		return source
	}
	return out.String() + source[from:]
}

// CanContain reports whether a placeholder can contain the text as its fallback, also after the text is escaped. Other
// fallbacks must be set with [Values.SetFallback].
func CanContain(fallback string) bool { return canContain(html.EscapeString(fallback)) }

func canContain(fallback string) bool {
	return len(fallback) <= MaxFallback && !strings.ContainsAny(fallback, "{}")
}

// WithEscapes returns an HTML text in which all placeholders are escaped, except the unsubscribe URL and those with
// raw. If always is true, those with raw are escaped too.
func WithEscapes(source string, always bool) string {
	t := Compile(source)
	var out strings.Builder
	from := 0
	for i := range t.slots {
		s := &t.slots[i]
		if s.escape || s.name == UnsubscribeURL || s.raw && !always {
			continue
		}
		out.WriteString(source[from:s.start] + "{{{escape ")
		from = s.start + len("{{{")
		if s.raw {
			from += strings.Index(source[from:], "raw") + len("raw")
		}
	}
	return out.String() + source[from:]
}
