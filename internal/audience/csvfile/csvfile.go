// Package csvfile reads CSV files as programs and people save them, of any size in bounded memory.
//
// The standard library's encoding/csv holds a whole record in memory, treats a lone carriage return as text, and counts
// offsets in its input rather than in the file, which may be UTF-16. An import of untrusted files must resume at an
// exact byte, with bounded memory. The tests compare both readers for files on which they must agree.
//
// # Format
//
// [Sniff] detects the format from the beginning of a file: UTF-8 or UTF-16, with or without a byte order mark,
// separated by commas, semicolons, tabs or vertical bars. Bytes that are not valid UTF-8 are decoded one by one as
// Windows-1252, which contains ISO 8859-1, because some files mix both encodings. Lines end with LF, CRLF or CR. Fields
// are quoted as in RFC 4180; a quote inside an unquoted field is text.
//
// # Invariants
//
// A [Reader] holds at most [MaxRecord] bytes and [MaxFields] fields of a record, and takes time linear in the length of
// the file. [Record.End] is an offset in the file: a Reader that begins there, with the same form, reads the same
// following records.
//
// # Errors
//
// A record that cannot be read is a [*RecordError]. Read then continues with the line after a misplaced quote, or with
// the record after one that is too long. An unclosed quote includes the following text up to the next quote. For a file
// that is not text, Sniff returns a fault that says what to do. All other errors come from the underlying reader.
//
// # Limits of this package
//
// It does not know the meaning of columns and does not change the content of fields.
package csvfile

import (
	"fmt"
)

const (
	// HeadSize is the number of bytes from the beginning of a file that Sniff needs. The first record must fit into it.
	HeadSize = 64 << 10
	// MaxRecord is the maximum length of a record, in bytes of UTF-8.
	MaxRecord = 1 << 20
	// MaxFields is the maximum number of fields of a record.
	MaxFields = 1000
)

// Form is the format of a file.
type Form struct {
	Charset Charset `json:"charset"`
	Comma   byte    `json:"comma"` // the separator of fields
	Start   int64   `json:"start"` // the offset of the first record, after a byte order mark
}

// Charset is the encoding of a file.
type Charset string

const (
	UTF8    Charset = "utf-8" // bytes that are not valid UTF-8 are Windows-1252
	UTF16LE Charset = "utf-16le"
	UTF16BE Charset = "utf-16be"
)

// Record is one record of a file.
type Record struct {
	Fields []string // valid until the next call of Read
	Line   int64    // the line on which the record begins; the first line is 1
	End    int64    // the offset in the file after the record
	Lines  int64    // the number of lines that end before End
}

// Blank reports whether all fields are empty, as in rows that spreadsheets save below their content.
func (r *Record) Blank() bool {
	for _, f := range r.Fields {
		if f != "" {
			return false
		}
	}
	return true
}

// Problem says why a record cannot be read.
type Problem uint8

const (
	TooLong       Problem = iota + 1 // the record is longer than MaxRecord
	TooManyFields                    // the record has more fields than MaxFields
	StrayQuote                       // text follows a closing quote
	Unclosed                         // the file ends within quotes
)

// RecordError reports a record that cannot be read. The Record that Read returns with it has no fields.
type RecordError struct {
	Problem Problem
	Line    int64 // the line on which the record begins
	Last    int64 // the last line that was skipped with the record
}

// Error describes the problem for the owner of the file.
func (e *RecordError) Error() string {
	where := fmt.Sprintf("line %d", e.Line)
	if e.Last > e.Line {
		where = fmt.Sprintf("lines %d to %d", e.Line, e.Last)
	}
	switch e.Problem {
	case TooLong:
		return fmt.Sprintf("The row (%s) is longer than %d bytes. Is a quote not closed?", where, MaxRecord)
	case TooManyFields:
		return fmt.Sprintf("The row (%s) has more than %d fields.", where, MaxFields)
	case StrayQuote:
		return fmt.Sprintf("The row (%s) has text after a closing quote. Within quotes, write a quote twice.", where)
	}
	return fmt.Sprintf("The row (%s) opens a quote that is never closed.", where)
}
