// Package csvfile reads CSV files of any size with bounded memory, in the variants that spreadsheets and other programs
// write.
//
// The standard library's encoding/csv is not suitable, because an import of untrusted files must use bounded memory and
// resume at an exact byte. Package encoding/csv holds a whole record in memory, treats a lone carriage return as text,
// and counts offsets in its decoded input rather than in the file, which may be UTF-16. The tests check that both
// packages read the same records from files that contain no errors.
//
// # Format
//
// [Sniff] detects the format from the beginning of a file: UTF-8 or UTF-16, with or without a byte order mark, with
// fields separated by commas, semicolons, tabs or vertical bars. Bytes that are not valid UTF-8 are decoded one by one
// as Windows-1252, which contains ISO 8859-1, because some files mix both encodings. Lines end with LF, CRLF or CR.
// Fields are quoted as in RFC 4180; a quote inside an unquoted field is ordinary text.
//
// # Invariants
//
// A [Reader] keeps at most [MaxRecord] bytes and [MaxFields] fields in memory, and its running time is linear in the
// length of the file. [Record.End] is an offset in the file: a new Reader that begins at this offset with the same
// [Form] continues with the same records.
//
// # Failures
//
// If a record cannot be read, Read returns a [*RecordError]. The next call to Read continues with the line after the
// misplaced quote, or with the record after the one that was too long.
//
// A quoted field without a closing quote would extend to the next quote in the file, and swallow all rows up to there.
// If a field with line breaks does not end correctly, the next call to Read therefore continues with the line after the
// one on which the field begins. A field ends incorrectly if the file ends, if other text follows the closing quote, or
// if the record exceeds [MaxRecord]. Read does not notice an unclosed quote if the next quote in the file happens to
// end a field, such as 19" at the end of a line. A caller that recognizes rows in the field calls [Reader.Reject].
//
// If a file is not text, Sniff returns a fault that tells the user what to do. All other
// errors come from the underlying reader.
//
// # Out of scope
//
// Package csvfile does not interpret columns or change the content of fields.
package csvfile

import (
	"fmt"
)

const (
	// HeadSize is the number of bytes that Sniff needs from the beginning of a file. The first record of a file must
	// fit into HeadSize bytes.
	HeadSize = 64 << 10
	// MaxRecord is the maximum length of a record, in bytes of UTF-8.
	MaxRecord = 1 << 20
	// MaxFields is the maximum number of fields in a record.
	MaxFields = 1000
)

// Form is the format of a file.
type Form struct {
	Charset Charset `json:"charset"`
	Comma   byte    `json:"comma"` // the field separator
	Start   int64   `json:"start"` // offset of the first record, after the byte order mark, if any
}

// Charset is the encoding of a file.
type Charset string

const (
	UTF8    Charset = "utf-8" // bytes that are not valid UTF-8 are decoded as Windows-1252
	UTF16LE Charset = "utf-16le"
	UTF16BE Charset = "utf-16be"
)

// Record is one record in a file.
type Record struct {
	Fields []string // valid only until the next call to Read
	Line   int64    // the line on which the record begins; the first line is 1
	End    int64    // offset in the file where the record ends
	Lines  int64    // the number of lines that end before End
}

// Blank reports whether all fields are empty, as in the empty rows that spreadsheets append.
func (r *Record) Blank() bool {
	for _, f := range r.Fields {
		if f != "" {
			return false
		}
	}
	return true
}

// Problem is the reason why a record cannot be read.
type Problem uint8

const (
	TooLong       Problem = iota + 1 // the record is longer than MaxRecord
	TooManyFields                    // the record has more fields than MaxFields
	StrayQuote                       // other text follows a closing quote
	StrayEnd                         // like StrayQuote, if the quoted field begins on an earlier line
	TooLongQuote                     // like TooLong, within a quoted field that begins on an earlier line
	Unclosed                         // the file ends inside a quoted field
	Rejected                         // see Reader.Reject
)

// RecordError reports a record that cannot be read. The Record that Read returns with a RecordError has no fields.
type RecordError struct {
	Problem Problem
	Line    int64 // the line on which the record begins
	Last    int64 // the last line that was skipped along with the record

	stray int64 // for StrayEnd and Rejected: the line on which the quoted field ends
}

// Error describes the problem for the person who uploaded the file.
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
	case StrayEnd:
		return fmt.Sprintf("The row (%s) opens a quote that ends in line %d, where other text follows. Close the quote, or "+
			"write the quotes within it twice. The lines after the row were read as rows of their own.", where, e.stray)
	case Rejected:
		return fmt.Sprintf("The row (%s) opens a quote that ends in line %d, and the lines in between look like rows. Close "+
			"the quote, or write the quotes within it twice. The lines after the row were read as rows of their own.", where,
			e.stray)
	case TooLongQuote:
		return fmt.Sprintf("The row (%s) opens a quote that is not closed within %d bytes.", where, MaxRecord)
	}
	return fmt.Sprintf("The row (%s) opens a quote that is never closed.", where)
}
