// Package exports writes a team's data to files, as CSV or as NDJSON: contacts, emails, suppressions, the request
// log and the audit log.
//
// # Shape
//
// An [Export] is read in batches, by cursor. An Export holds at most one batch in memory. Between two batches, no
// query, connection or transaction is open, even if the file's reader is slow. An export can have any size, and it
// blocks neither PostgreSQL's vacuum nor the truncation of SQLite's write-ahead log.
//
// # Invariants
//
// An item that exists from the start of the export until its batch is read appears exactly once in the file. Items that
// are added during the export are not included. Items that change during the export appear as they are when their batch
// is read. A file never contains another team's rows.
//
// CSV files follow RFC 4180, in UTF-8 without a byte order mark, with a header line. Text is written unchanged, unless
// [Options] requests protection against spreadsheet formulas.
//
// # Failures
//
// If reading fails, Batches ends with an error. After an error, the caller must make it clear that the file is
// incomplete, because neither format has an end marker.
//
// # Out of scope
//
// Exports contain neither the content of emails nor the bodies of requests and responses. Package exports does not
// check who may read an export.
package exports

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// Format is the format of an export file.
type Format string

const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson" // one JSON object per line
)

// MediaType returns the format's media type with its parameters (RFC 4180 section 3).
func (f Format) MediaType() string {
	if f == NDJSON {
		return "application/x-ndjson; charset=utf-8"
	}
	return "text/csv; charset=utf-8; header=present"
}

// Options specifies the format of an export and the handling of formulas.
type Options struct {
	Format Format
	// QuoteFormulas puts an apostrophe before every CSV value that a spreadsheet would interpret as a formula.
	// QuoteFormulas protects the person who opens the file, because some of the values may come from strangers. Do not
	// set QuoteFormulas for a file that will be imported again.
	QuoteFormulas bool
}

// Text returns s as it is written to a CSV field.
func (o Options) Text(s string) string {
	if o.QuoteFormulas && isFormula(s) {
		return "'" + s
	}
	return s
}

// ParseOptions parses the export options of a request or command. The parameter format is "csv" or "ndjson", and
// formulas is "keep" or "quote"; empty strings mean "csv" and "keep". If an option is invalid, ParseOptions returns an
// Invalid fault that names the field.
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

// Export is a list of a team's data that can be written to a file.
type Export struct {
	Name string // file name without its extension, such as emails

	columns []string // of CSV
	// readBatch returns the rows after a cursor and the cursor of the next batch. The cursor for the first batch is "";
	// readBatch returns "" as the next cursor after the last batch.
	readBatch func(ctx context.Context, after string) (rows []row, next string, err error)
}

// row is one item of an export. The exported fields of a row's struct become the members of its JSON object.
type row interface {
	// lines writes the item's CSV line or lines.
	lines(w *table)
	// at returns when the item was created, as formatTime writes it.
	at() string
}

const reuseMax = 1 << 20 // maximum size, in bytes, of a buffer that is reused for the next batch

// Batches iterates over the export file's content in batches of rows. Each batch may be empty, and is valid only until
// the next batch is requested. An error ends the iteration over batches.
func (e *Export) Batches(ctx context.Context, o Options) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for b, err := range e.Counted(ctx, o) {
			if !yield(b.Text, err) {
				return
			}
		}
	}
}

// Batch is a part of an export file.
type Batch struct {
	Text    []byte    // valid only until the next batch is requested
	Items   int       // number of items in Text
	Reached time.Time // when the last of these items was created; zero if Items is 0
}

// Counted is like [Export.Batches], but also counts the items.
func (e *Export) Counted(ctx context.Context, o Options) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		w := table{options: o}
		if o.Format != NDJSON {
			w.header(e.columns)
		}
		for after := ""; ; {
			rows, next, err := e.readBatch(ctx, after)
			if err == nil {
				err = w.write(rows, o.Format)
			}
			if err != nil {
				yield(Batch{}, fmt.Errorf("export %s: %w", e.Name, err))
				return
			}
			b := Batch{Text: w.Bytes(), Items: len(rows)}
			if b.Items > 0 {
				b.Reached, _ = time.Parse(timeLayout, rows[b.Items-1].at()) // formatTime has written it
			}
			if !yield(b, nil) || next == "" {
				return
			}
			if after = next; w.Cap() > reuseMax {
				w.Buffer = bytes.Buffer{}
			}
			w.Reset()
		}
	}
}

// write appends rows in the given format.
func (w *table) write(rows []row, f Format) error {
	for _, r := range rows {
		if f != NDJSON {
			r.lines(w)
			continue
		}
		// Strings that were stored before Postrider required UTF-8 may be invalid UTF-8.
		err := json.MarshalWrite(&w.Buffer, r, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode a row: %w", err)
		}
		w.WriteByte('\n')
	}
	return nil
}
