package csvfile

import (
	"bufio"
	"errors"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/mail/decode"
)

// Reader reads the records of a file.
type Reader struct {
	r     *bufio.Reader
	form  Form
	at    int64 // offset of the next byte in the file
	lines int64 // number of lines that end before that offset
	begun bool  // whether part of the current line has been read
	tape  tape
	stray int64 // the line with the text after a closing quote
	full  bool  // whether text has MaxRecord bytes, and the record has more
	text  []byte
	ends  []int // offset in text at which each field ends
	out   []string
}

// NewReader returns a Reader for the records after the given offset in a file. The offset must be form.Start or the End
// of a record. The input must begin at the offset, and lines must be the number of lines that end before it.
func NewReader(r io.Reader, form Form, offset, lines int64) *Reader {
	if form.Charset != UTF8 {
		r = newUTF16(r, form.Charset)
	}
	return &Reader{r: bufio.NewReaderSize(r, 64<<10), form: form, at: offset, lines: lines}
}

// Read returns the next record that is not an empty line, or io.EOF after the last record. If a record cannot be read,
// Read returns a *RecordError and a Record with the offset where the record ends.
func (r *Reader) Read() (Record, error) {
	for {
		rec := Record{Line: r.lines + 1}
		problem, err := r.record()
		rec.End, rec.Lines = r.at, r.lines
		switch {
		case problem != 0:
			last := r.lines
			if err != nil && !errors.Is(err, io.EOF) {
				return rec, err
			}
			if r.begun {
				last++ // the last line has no line ending
			}
			return rec, &RecordError{problem, rec.Line, last, r.stray}
		case err != nil && !errors.Is(err, io.EOF):
			return rec, err
		case len(r.text) == 0 && len(r.ends) == 1:
			if err != nil {
				return rec, err
			}
			continue // an empty line
		}
		rec.Fields = r.fields()
		return rec, nil
	}
}

// Reject says that the last quoted field of the record that Read has returned has swallowed rows, because its quote was
// not closed. If the field has line breaks, the next call to Read continues with the line after the one on which the
// field begins. Reject then updates the record's end, and returns the error that describes the record. Otherwise,
// Reject does nothing and returns nil.
func (r *Reader) Reject(rec *Record) *RecordError {
	last := r.lines
	if r.begun {
		last++
	}
	if !r.rewind() {
		return nil
	}
	rec.Fields, rec.End, rec.Lines = nil, r.at, r.lines
	return &RecordError{Rejected, rec.Line, r.lines, last}
}

// fields returns the fields of the current record.
func (r *Reader) fields() []string {
	all := string(r.text)
	r.out = r.out[:0]
	begin := 0
	for _, end := range r.ends {
		f := all[begin:end]
		if r.form.Charset == UTF8 {
			f = decode.MixedUTF8(f)
		}
		r.out = append(r.out, f)
		begin = end
	}
	return r.out
}

// These are the states of the parser in the record method.
const (
	fieldStart = iota
	plain      // in an unquoted field
	quoted     // within quotes
	closing    // after a quote in a quoted field
	skipLine   // after a misplaced quote, until the end of the line
)

// record reads one record into r.text and r.ends. record returns the problem with the record, if any, and io.EOF at the
// end of the file. If a quoted field is not closed correctly, record goes back to the end of the line on which the
// field begins.
func (r *Reader) record() (problem Problem, err error) {
	r.text, r.ends = r.text[:0], r.ends[:0]
	note := func(p Problem) {
		if problem == 0 {
			problem = p
		}
	}
	r.full = false
	r.tape.stop()
	for state := fieldStart; ; {
		c, err := r.next(state == quoted)
		if err != nil {
			if state == quoted {
				note(Unclosed)
				if errors.Is(err, io.EOF) {
					r.rewind()
				}
			}
			note(r.end())
			return problem, err
		}
		if state == quoted && !r.begun && !r.tape.on {
			if r.full { // a line that is too long, and that ends within quotes
				return problem, nil
			}
			r.tape.start(r.at, r.lines)
		}
		switch {
		case c == '\n' && state != quoted:
			note(r.end())
			return problem, nil
		case state == skipLine:
		case state == closing && c == '"':
			note(r.add(c))
			state = quoted
		case state == closing && c != r.form.Comma:
			if r.stray = r.lines + 1; r.rewind() {
				note(StrayEnd)
				return problem, nil
			}
			note(StrayQuote)
			state = skipLine
		case c == r.form.Comma && state != quoted:
			note(r.end())
			state = fieldStart
		case c == '"' && state == fieldStart:
			r.tape.stop()
			state = quoted
		case c == '"' && state == quoted:
			state = closing
		default:
			if state == fieldStart {
				state = plain
			}
			note(r.add(c))
		}
		if r.full && state == quoted && r.rewind() {
			if problem == TooLong {
				problem = TooLongQuote
			}
			return problem, nil
		}
		if r.full {
			r.tape.stop() // the rest of the line may be as long as the file
		}
	}
}

// rewind goes back to the end of the line on which the current quoted field begins. If that line has not ended yet,
// rewind does nothing and returns false.
func (r *Reader) rewind() bool {
	if !r.tape.on {
		return false
	}
	r.tape.rewind()
	r.at, r.lines, r.begun = r.tape.at, r.tape.lines, false
	return true
}

// next returns the next byte. Outside quotes, each line ending is returned as one newline; inside quotes, line endings
// are returned unchanged.
func (r *Reader) next(within bool) (byte, error) {
	c, err := r.readByte()
	if err != nil {
		return 0, err
	}
	r.begun = true
	switch {
	case c == '\r':
		if next, err := r.tape.peek(r.r); err == nil && next == '\n' {
			if within {
				return c, nil // the newline that ends the line
			}
			r.readByte()
		}
	case c != '\n':
		return c, nil
	}
	r.lines, r.begun = r.lines+1, false
	if within {
		return c, nil
	}
	return '\n', nil
}

// readByte returns the next byte of UTF-8 text and advances the offset in the file.
func (r *Reader) readByte() (byte, error) {
	c, err := r.tape.next(r.r)
	switch {
	case err != nil:
		return 0, err
	case r.form.Charset == UTF8:
		r.at++
	case c >= 0xf0:
		r.at += 4 // two surrogates
	case c < utf8.RuneSelf || c >= 0xc0:
		r.at += 2
	}
	return c, nil
}

func (r *Reader) add(c byte) Problem {
	if len(r.text) == MaxRecord {
		r.full = true
		return TooLong
	}
	r.text = append(r.text, c)
	return 0
}

// end marks the end of the current field.
func (r *Reader) end() Problem {
	if len(r.ends) == MaxFields {
		return TooManyFields
	}
	r.ends = append(r.ends, len(r.text))
	return 0
}

// utf16Reader converts UTF-16 to UTF-8. Each unpaired surrogate becomes U+FFFD, so that the offset in the file can be
// computed from the output. The UTF-16 decoder in golang.org/x/text does not guarantee that offsets can be computed.
type utf16Reader struct {
	r     *bufio.Reader
	big   bool
	ready []byte // in UTF-8
	buf   [utf8.UTFMax]byte
}

func newUTF16(r io.Reader, cs Charset) *utf16Reader {
	return &utf16Reader{r: bufio.NewReaderSize(r, 64<<10), big: cs == UTF16BE}
}

// Read implements io.Reader.
func (u *utf16Reader) Read(p []byte) (n int, err error) {
	for n < len(p) {
		if len(u.ready) == 0 {
			c, err := u.char()
			if err != nil {
				if n > 0 {
					return n, nil // The next call to Read returns the error.
				}
				return 0, err
			}
			u.ready = u.buf[:utf8.EncodeRune(u.buf[:], c)]
		}
		m := copy(p[n:], u.ready)
		u.ready = u.ready[m:]
		n += m
	}
	return n, nil
}

// char returns the next character. If the file has an odd number of bytes, the last byte is ignored.
func (u *utf16Reader) char() (rune, error) {
	two, err := u.r.Peek(2)
	if len(two) < 2 {
		return 0, err
	}
	c := u.unit(two)
	u.r.Discard(2)
	if !utf16.IsSurrogate(c) {
		return c, nil
	}
	if two, err = u.r.Peek(2); len(two) == 2 {
		if pair := utf16.DecodeRune(c, u.unit(two)); pair != utf8.RuneError {
			u.r.Discard(2)
			return pair, nil
		}
	} else if !errors.Is(err, io.EOF) {
		return 0, err
	}
	return utf8.RuneError, nil
}

func (u *utf16Reader) unit(two []byte) rune {
	if u.big {
		return rune(two[0])<<8 | rune(two[1])
	}
	return rune(two[1])<<8 | rune(two[0])
}
