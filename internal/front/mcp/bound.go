package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// answerMax is the length of an answer in octets: more fills the memory of a model with one call.
const answerMax = 64 << 10

// encoded returns JSON in which <, > and & are themselves: models read it better, and it is shorter.
func encoded(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// bounded returns v as JSON of at most so many octets, and sentences that say what was left out of it. First long texts
// are cut, ever shorter, then items are left out of the list `data`, from its end.
func bounded(v any, most int) (text string, notes []string) {
	v, hidden := seen(v)
	if hidden > 0 {
		notes = append(notes, fmt.Sprintf("%d invisible characters were removed from texts.", hidden))
	}
	out, err := encoded(v)
	if err != nil {
		return "", append(notes, "The answer could not be encoded.")
	}
	for limit := most / 2; len(out) > most && limit >= shortest; limit /= 2 {
		shorter, n := shortened(v, limit)
		if out, err = encoded(shorter); err != nil {
			return "", append(notes, "The answer could not be encoded.")
		}
		if len(out) <= most {
			return string(out), append(notes, fmt.Sprintf("%d texts were cut to %d characters.", n, limit))
		}
	}
	if len(out) <= most {
		return string(out), notes
	}
	v, _ = shortened(v, shortest)
	if m, ok := v.(map[string]any); ok {
		if items, ok := m["data"].([]any); ok {
			return fewer(m, items, most, notes)
		}
	}
	return cut(string(out), most), append(notes, "The answer was too long and is cut; it is no whole JSON.")
}

const shortest = 200 // characters of a text that may have to be cut

// fewer leaves out items from the end of a list.
func fewer(m map[string]any, items []any, most int, notes []string) (string, []string) {
	kept := len(items)
	for kept > 0 {
		kept /= 2
		m["data"] = items[:kept]
		if out, err := encoded(m); err == nil && len(out) <= most {
			return string(out), append(notes, fmt.Sprintf("Texts were cut to %d characters, and only the first %d of "+
				"%d items are here: ask for fewer with `limit`, and for the others with `after`.", shortest, kept,
				len(items)))
		}
	}
	return "", append(notes, "The answer was too long: ask for fewer items with `limit`.")
}

// shortened returns v with no text longer than so many characters, and how many were.
func shortened(v any, limit int) (any, int) {
	n := 0
	return walk(v, func(s string) string {
		c := cut(s, limit)
		if c != s {
			n++
		}
		return c
	}), n
}

// seen returns v without characters that nobody sees, and how many there were.
func seen(v any) (any, int) {
	n := 0
	return walk(v, func(s string) string {
		shown, hidden := visible(s)
		n += hidden
		return shown
	}), n
}

// walk returns a copy of a decoded value with each text replaced.
func walk(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		all := make([]any, len(v))
		for i := range v {
			all[i] = walk(v[i], f)
		}
		return all
	case map[string]any:
		all := make(map[string]any, len(v))
		for name, value := range v {
			all[f(name)] = walk(value, f)
		}
		return all
	}
	return v
}

// cut returns at most so many octets of a text, of which the last say how much was left out. It splits no character.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := max(most-len(" [1234567890 octets left out]"), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s [%d octets left out]", s[:end], len(s)-end)
}

// visible removes characters that are not shown, by which a text can tell a model what no person sees: format
// characters, tags (Unicode 16 section 23.9) among them, and private ones. Joiners remain, which scripts and emoji
// need.
func visible(s string) (shown string, hidden int) {
	shown = strings.Map(func(r rune) rune {
		switch {
		case r == '\u200c' || r == '\u200d' || r == '\n' || r == '\r' || r == '\t':
			return r
		case unicode.In(r, unicode.Cf, unicode.Co, unicode.Cc), r >= 0xE0100 && r <= 0xE01EF:
			hidden++
			return -1
		}
		return r
	}, s)
	return shown, hidden
}
