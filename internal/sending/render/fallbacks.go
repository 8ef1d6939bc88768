package render

import "strings"

// WithFallbacks adds a fallback to each placeholder that has none, except the unsubscribe URL. The function fallback
// returns the fallback for a placeholder's name, or false if there is none. WithFallbacks ignores fallbacks that are
// too long or contain braces.
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
