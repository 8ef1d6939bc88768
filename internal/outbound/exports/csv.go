package exports

import (
	"bytes"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// table writes CSV. Package encoding/csv is not used, because it can end lines with CRLF, as RFC 4180 requires, only if
// it also changes the line breaks within fields.
type table struct {
	bytes.Buffer
	options Options
	started bool // the current line already has a field
}

func (w *table) header(names []string) {
	for _, name := range names {
		w.plain(name)
	}
	w.end()
}

// text writes a field whose value may come from a user or a stranger.
func (w *table) text(s string) {
	w.plain(w.options.Text(s))
}

// isFormula reports whether a spreadsheet may interpret a string as a formula. Leading tabs and line breaks count as
// formula characters, because spreadsheets skip them. Full-width forms count, because spreadsheets in East Asian
// languages convert them. Apostrophes before a formula character are ignored. A string such
// as '=1 therefore also gets an apostrophe, and removing one apostrophe always restores the original string.
func isFormula(s string) bool {
	s = strings.TrimLeft(s, "'")
	first, _ := utf8.DecodeRuneInString(s)
	return s != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", first)
}

// plain writes a field with a value that Postrider generated, such as a number.
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

// end ends the current line.
func (w *table) end() {
	w.WriteString("\r\n")
	w.started = false
}

// timeLayout is the layout of times in files.
const timeLayout = "2006-01-02 15:04:05.999999+00"

// formatTime formats a time as the API's lists do: in UTC, with up to six decimal places. The zero time becomes "".
func formatTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(timeLayout)
}

// orNull returns nil, which is null in JSON, for the empty string.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// orEmptyString returns "" for nil, because CSV has no null value.
func orEmptyString(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// orEmpty returns an empty list instead of nil, so that JSON contains [].
func orEmpty[T any](all []T) []T {
	if all == nil {
		return []T{}
	}
	return all
}
