// Package exports writes data of a team as files: its contacts, emails, suppressions, request log and audit log, as CSV
// or as lines of JSON.
//
// # Shape
//
// An [Export] is read in batches, by cursor. At most one batch is in memory. Between two batches no query, connection
// or transaction is open, however slow the reader of the file is. So an export can have any size, and it prevents
// neither PostgreSQL's vacuum nor the truncation of SQLite's log.
//
// # Invariants
//
// An item that exists from the start of the export until its batch is read occurs in the file once. Items that are
// added during the export are left out. Changed items appear as they are when their batch is read. A file never
// contains rows of another team.
//
// CSV follows RFC 4180, in UTF-8 without a byte order mark, with a header line. Text is written byte for byte, unless
// [Options] asks to protect spreadsheets from formulas.
//
// # When it fails
//
// The batches end with an error. The caller must make it visible that the file is incomplete, because neither format
// has an end mark.
//
// # What it does not do
//
// Exports contain neither the content of emails nor the bodies of requests and responses. This package does not decide
// who may read an export.
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

// Format is the format of a file.
type Format string

const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson" // a JSON object in each line
)

// MediaType returns the media type of files in the format, with its parameters (RFC 4180 section 3).
func (f Format) MediaType() string {
	if f == NDJSON {
		return "application/x-ndjson; charset=utf-8"
	}
	return "text/csv; charset=utf-8; header=present"
}

// Options say how an export is written.
type Options struct {
	Format Format
	// QuoteFormulas puts an apostrophe before each text in CSV that a spreadsheet would read as a formula. Strangers
	// choose some of the texts, so this protects the person who opens the file. A file that will be imported again must
	// be written without it.
	QuoteFormulas bool
}

// Text returns a text as a CSV field contains it.
func (o Options) Text(s string) string {
	if o.QuoteFormulas && isFormula(s) {
		return "'" + s
	}
	return s
}

// ParseOptions parses the options of a request or a command. format is "csv", "ndjson" or "", which means CSV. formulas
// is "keep", "quote" or "", which means keep. The error is an Invalid fault that names the field.
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

// Export is a list that can be written to a file.
type Export struct {
	Name string // name of the file without its extension, such as emails

	columns []string // of CSV
	// readBatch returns the rows after a cursor, and the cursor of the next batch. The first cursor is ""; next is ""
	// after the last batch.
	readBatch func(ctx context.Context, after string) (rows []row, next string, err error)
}

// row is an item of an export. The fields of a row are the members of its JSON object.
type row interface {
	// lines writes the item's line or lines of CSV.
	lines(w *table)
}

const reuseMax = 1 << 20 // bytes of a buffer that is reused for the next batch

// Batches iterates over the content of the file. Each batch is valid until the next one is requested, and may be empty.
// An error ends the iteration.
func (e *Export) Batches(ctx context.Context, o Options) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
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
				yield(nil, fmt.Errorf("export %s: %w", e.Name, err))
				return
			}
			if !yield(w.Bytes(), nil) || next == "" {
				return
			}
			if after = next; w.Cap() > reuseMax {
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
		// Stored texts may be older than the rule that texts are UTF-8.
		err := json.MarshalWrite(&w.Buffer, r, jsontext.AllowInvalidUTF8(true), json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode a row: %w", err)
		}
		w.WriteByte('\n')
	}
	return nil
}
