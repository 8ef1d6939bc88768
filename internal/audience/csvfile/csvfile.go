// Package csvfile reads comma-separated files as programs and people save them, of any size in bounded memory.
//
// The standard library's encoding/csv holds a whole record in memory, however long it is, takes a lone carriage
// return for text, and counts offsets in what it was given rather than in the file, which may be UTF-16. A reader that
// must go on at an exact octet of a file of strangers needs all three. The tests compare the two where they must agree.
//
// # Form
//
// [Sniff] finds out from the beginning of a file how it is written: UTF-8 or UTF-16, with or without a byte order
// mark, and separated by commas, semicolons, tabs or vertical bars. Octets that are not UTF-8 are read as
// Windows-1252, of which ISO 8859-1 is a part, one by one: files that were put together from several sources have
// both. Lines end with LF, CRLF or CR. Fields are quoted as in RFC 4180; a quote within a field that does not begin
// with one is text.
//
// # Invariants
//
// A [Reader] holds at most [MaxRecord] octets of a record and [MaxFields] of its fields, and takes time linear in the
// length of the file. [Record.End] is an offset in the file: a Reader that begins there, with the same form, reads the
// records that follow, as the first one would have.
//
// # When it fails
//
// A record that cannot be read is a [*RecordError], after which Read goes on: with the line after a misplaced quote,
// and with the record after one that is too long. A quote that is never closed takes what follows with it, up to the
// next quote. Sniff returns a fault that says what to do about a file that is not text. Other errors are those of the
// underlying reader.
//
// # What it does not do
//
// It does not know what the columns mean, and it does not change the content of fields.
package csvfile

import (
	"fmt"
)

const (
	// HeadSize is the number of octets at the beginning of a file that Sniff should be given. The first record must fit
	// into it.
	HeadSize = 64 << 10
	// MaxRecord is the length of the longest record that is read, in octets of UTF-8.
	MaxRecord = 1 << 20
	// MaxFields is the largest number of fields of a record.
	MaxFields = 1000
)

// Form is how a file is written.
type Form struct {
	Charset Charset `json:"charset"`
	Comma   byte    `json:"comma"` // what separates fields
	Start   int64   `json:"start"` // the offset of the first record, after a byte order mark
}

// Charset is how characters are written.
type Charset string

const (
	UTF8    Charset = "utf-8" // and Windows-1252 for what is not UTF-8
	UTF16LE Charset = "utf-16le"
	UTF16BE Charset = "utf-16be"
)

// Record is one record of a file.
type Record struct {
	Fields []string // valid until the next call of Read
	Line   int64    // on which it begins; the first line is 1
	End    int64    // the offset in the file of what follows it
	Lines  int64    // how many lines of the file end before End
}

// Blank reports whether all fields are empty, as in the rows that spreadsheets save below their content.
func (r *Record) Blank() bool {
	for _, f := range r.Fields {
		if f != "" {
			return false
		}
	}
	return true
}

// Problem is what is wrong with a record.
type Problem uint8

const (
	TooLong       Problem = iota + 1 // it is longer than MaxRecord
	TooManyFields                    // it has more fields than MaxFields
	StrayQuote                       // text follows a closing quote
	Unclosed                         // the file ends within quotes
)

// RecordError reports a record that cannot be read. The Record that Read returns with it has no fields.
type RecordError struct {
	Problem Problem
	Line    int64 // on which the record begins
	Last    int64 // the last line that was left out with it
}

// Error says what is wrong, for the owner of the file.
func (e *RecordError) Error() string {
	where := fmt.Sprintf("line %d", e.Line)
	if e.Last > e.Line {
		where = fmt.Sprintf("lines %d to %d", e.Line, e.Last)
	}
	switch e.Problem {
	case TooLong:
		return fmt.Sprintf("The row (%s) is longer than %d octets. Is a quote not closed?", where, MaxRecord)
	case TooManyFields:
		return fmt.Sprintf("The row (%s) has more than %d fields.", where, MaxFields)
	case StrayQuote:
		return fmt.Sprintf("The row (%s) has text after a closing quote. Within quotes, write a quote twice.", where)
	}
	return fmt.Sprintf("The row (%s) opens a quote that is never closed.", where)
}
