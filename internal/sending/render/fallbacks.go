package render

import "strings"

// WithFallbacks returns a text with fallbacks in those placeholders that have none. fallback returns that of a name, or
// false if there is none. One that a placeholder cannot have, because it is too long or has braces, is left out.
func WithFallbacks(source string, fallback func(name string) (string, bool)) string {
	t := Compile(source)
	var out strings.Builder
	from := 0
	for i := range t.slots {
		s := &t.slots[i]
		if s.optional || s.name == UnsubscribeURL {
			continue
		}
		text, ok := fallback(s.name)
		if !ok || strings.TrimSpace(text) == "" || len(text) > MaxFallback || strings.ContainsAny(text, "{}") {
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
