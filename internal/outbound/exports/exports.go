// Package exports writes what a team has as files: its contacts, emails, suppressions and request log, as CSV or as
// lines of JSON.
//
// # Shape
//
// An [Export] is read in parts, by cursor: at most one part is in memory, and between two parts no query, connection or
// transaction is open, however slow the reader of the file is. So an export has any size, and keeps neither PostgreSQL
// from cleaning up nor SQLite's log from shrinking.
//
// # Invariants
//
// What was there when the export began and is still there when its part is read is in it once. What is added meanwhile
// is left out; what is changed meanwhile is there as it is when its part is read. Rows of other teams are never in it.
//
// CSV is that of RFC 4180, in UTF-8 without a byte order mark, with a line of names. A text is written as it is stored,
// octet for octet, unless [Options] asks for spreadsheets to be kept from taking texts for formulas.
//
// # When it fails
//
// The parts end with an error. The caller must make it visible that the file is not whole, because neither format has
// an end of its own.
//
// # What it does not do
//
// It has neither bodies of emails nor those of requests and responses, and decides nothing about who may read it.
package exports

import (
	"bytes"
	"context"
	"fmt"
	"iter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// Format is the form of a file.
type Format string

const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson" // an object of JSON in each line
)

// MediaType returns the media type of files in the format, with the parameters that say the rest (RFC 4180 section 3).
func (f Format) MediaType() string {
	if f == NDJSON {
		return "application/x-ndjson; charset=utf-8"
	}
	return "text/csv; charset=utf-8; header=present"
}

// Options are how an export is written.
type Options struct {
	Format Format
	// QuoteFormulas puts an apostrophe before each text in CSV that a spreadsheet would take for a formula, because
	// strangers choose some of the texts. A file that is to be imported again must be written without.
	QuoteFormulas bool
}

// Text returns a text as it stands in a field of CSV.
func (o Options) Text(s string) string {
	if o.QuoteFormulas && isFormula(s) {
		return "'" + s
	}
	return s
}

// ParseOptions reads options as a request or a command gives them: a format, CSV when it is "", and keep or quote for
// formulas, keep when it is "". The error is an Invalid fault that names the field.
func ParseOptions(format, formulas string) (o Options, err error) {
	switch o.Format = Format(format); o.Format {
	case "":
		o.Format = CSV
	case CSV, NDJSON:
	default:
		return o, fault.Invalidf("format", "The `format` parameter must be `csv` or `ndjson`.")
	}
	switch formulas {
	case "", "keep":
	case "quote":
		o.QuoteFormulas = true
	default:
		return o, fault.Invalidf("formulas", "The `formulas` parameter must be `keep` or `quote`.")
	}
	return o, nil
}

// Export is a list that can be written.
type Export struct {
	Name string // of the file, without its ending: emails

	columns []string // of CSV
	// part returns the rows after a cursor, at first "", and the cursor of the next part, "" after the last.
	part func(ctx context.Context, after string) (rows []row, next string, err error)
}

// row is an item of an export. Its type has the members of its object in JSON.
type row interface {
	// lines writes its line of CSV, or its lines.
	lines(w *table)
}

const partKept = 1 << 20 // octets of memory that are used again for the next part

// Parts iterates over the file. A part is valid until the next one is asked for, and may be empty. An error ends it.
func (e *Export) Parts(ctx context.Context, o Options) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		w := table{options: o}
		if o.Format != NDJSON {
			w.header(e.columns)
		}
		for after := ""; ; {
			rows, next, err := e.part(ctx, after)
			if err == nil {
				err = w.write(rows, o.Format)
			}
			if err != nil {
				yield(nil, fmt.Errorf("export %s: %w", e.Name, err))
				return
			}
			if !yield(w.Bytes(), nil) || next == "" {
				return
			}
			if after = next; w.Cap() > partKept {
				w.Buffer = bytes.Buffer{}
			}
			w.Reset()
		}
	}
}

// write adds rows in a format.
func (w *table) write(rows []row, f Format) error {
	for _, r := range rows {
		if f != NDJSON {
			r.lines(w)
			continue
		}
		// What is stored may be older than the rule that texts are UTF-8.
		err := json.MarshalWrite(&w.Buffer, r, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode a row: %w", err)
		}
		w.WriteByte('\n')
	}
	return nil
}
