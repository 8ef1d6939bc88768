package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	invisible "github.com/postrider/postrider/internal/lib/visible"
)

// answerMax is the maximum length of a tool's answer in bytes. A single longer answer could fill a model's context.
const answerMax = 64 << 10

// encoded returns JSON in which <, > and & are not escaped, because such JSON is shorter and easier for models to read.
func encoded(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// bounded returns v as JSON with at most the given number of bytes, and notes about omitted content. Long strings are
// first truncated to shorter and shorter lengths. If truncating strings is not enough, items are dropped from the end
// of the list `data`.
func bounded(v any, most int) (text string, notes []string) {
	v, hidden := removeInvisible(v)
	if hidden > 0 {
		notes = append(notes, fmt.Sprintf("%d invisible characters were removed from texts.", hidden))
	}
	out, err := encoded(v)
	if err != nil {
		return "", append(notes, "The answer could not be encoded.")
	}
	for limit := most / 2; len(out) > most && limit >= textMin; limit /= 2 {
		shorter, n := truncateTexts(v, limit)
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
	v, _ = truncateTexts(v, textMin)
	if m, ok := v.(map[string]any); ok {
		if items, ok := m["data"].([]any); ok {
			return truncateList(m, items, most, notes)
		}
	}
	return truncate(string(out), most), append(notes, "The answer was too long and was cut, so it is not complete JSON.")
}

const textMin = 200 // minimum length to which strings are truncated, in bytes

// truncateList halves the number of list items until m fits as JSON.
func truncateList(m map[string]any, items []any, most int, notes []string) (string, []string) {
	kept := len(items)
	for kept > 0 {
		kept /= 2
		m["data"] = items[:kept]
		if out, err := encoded(m); err == nil && len(out) <= most {
			return string(out), append(notes, fmt.Sprintf("Texts were cut to %d characters, and only the first %d of "+
				"%d items are here: ask for fewer with `limit`, and for the others with `after`.", textMin, kept,
				len(items)))
		}
	}
	return "", append(notes, "The answer was too long: ask for fewer items with `limit`.")
}

// truncateTexts returns v with every string truncated to limit bytes, and the number of truncated strings.
func truncateTexts(v any, limit int) (any, int) {
	n := 0
	return walk(v, func(s string) string {
		c := truncate(s, limit)
		if c != s {
			n++
		}
		return c
	}), n
}

// removeInvisible returns v without invisible characters, and the number of removed characters.
func removeInvisible(v any) (any, int) {
	n := 0
	return walk(v, func(s string) string {
		shown, hidden := visible(s)
		n += hidden
		return shown
	}), n
}

// walk returns a copy of a decoded JSON value with f applied to each string.
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

// truncate shortens s to at most the given number of bytes without splitting characters. A truncated string ends with a
// note that says how many bytes were omitted.
func truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	end := max(most-len(" [1234567890 bytes left out]"), 0)
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return fmt.Sprintf("%s [%d bytes left out]", s[:end], len(s)-end)
}

// visible returns s without invisible characters, which could contain instructions to a model that a person does not
// see. Joiners are kept, because some scripts and emoji need them.
func visible(s string) (shown string, hidden int) {
	shown = strings.Map(func(r rune) rune {
		if invisible.Hidden(r) && !invisible.Joiner(r) {
			hidden++
			return -1
		}
		return r
	}, s)
	return shown, hidden
}
