package exports

import (
	"bytes"
	"strconv"
	"strings"
	"time"
)

// table is CSV that is being written. encoding/csv is not used because it cannot end lines as RFC 4180 says and keep
// the line breaks within fields as they are.
type table struct {
	bytes.Buffer
	options Options
	started bool // the line has a field
}

func (w *table) header(names []string) {
	for _, name := range names {
		w.plain(name)
	}
	w.end()
}

// text writes a field that somebody chose.
func (w *table) text(s string) {
	w.plain(w.options.Text(s))
}

// isFormula reports whether a spreadsheet may take a text for a formula. A tab and a carriage return count, because
// spreadsheets skip them. A text that already begins with an apostrophe before such a character gets another, so that
// taking one away gives the text again.
func isFormula(s string) bool {
	s = strings.TrimLeft(s, "'")
	return s != "" && strings.IndexByte("=+-@\t\r\n", s[0]) >= 0
}

// plain writes a field that is written by us, such as a number.
func (w *table) plain(s string) {
	if w.started {
		w.WriteByte(',')
	}
	w.started = true
	if !strings.ContainsAny(s, "\",\r\n") && !strings.HasPrefix(s, " ") && !strings.HasSuffix(s, " ") {
		w.WriteString(s)
		return
	}
	w.WriteByte('"')
	w.WriteString(strings.ReplaceAll(s, `"`, `""`))
	w.WriteByte('"')
}

func (w *table) number(n int64) { w.plain(strconv.FormatInt(n, 10)) }

// end ends a line.
func (w *table) end() {
	w.WriteString("\r\n")
	w.started = false
}

// stamp writes a time as the lists of the API do: in UTC, with up to six digits of the second. The zero time is "".
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.999999+00")
}

// orNull returns nil, which is null in JSON, for "".
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// orNone is a text that may be null in JSON as it stands in CSV, where null is empty.
func orNone(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// orEmpty returns an empty list, which is [] in JSON, for nil.
func orEmpty[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
