package authres

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// These constants limit the headers that this package evaluates, because the time to verify signatures can grow with
// the square of the header size. The headers of real mail stay far below these limits.
const (
	maxHeader    = 256 << 10 // bytes
	maxFields    = 2000
	maxLines     = 5000
	maxSignature = 4 << 10 // maximum size of one DKIM-Signature field, in bytes
)

// header holds the parts of a message's header that this package uses.
type header struct {
	end        int64 // offset of the end of the header, before the empty line
	body       int64 // offset of the start of the body
	closed     bool  // whether the last header line has a line ending
	from       []string
	signatures int
	selectors  []string // the s tags of the first signatures
	arcFields  int      // number of fields of ARC sets
	// problem is the reason why the header is not evaluated. If problem is set, the other fields of header are
	// incomplete.
	problem string
}

// readHeader splits lines as the DKIM verifier does: a line ends with LF or CRLF, and an empty line ends the header.
func readHeader(raw io.ReaderAt, size int64) header {
	r := bufio.NewReader(io.NewSectionReader(raw, 0, min(size, maxHeader+1)))
	var s scan
	for {
		line, err := readLine(r)
		if err != nil && !errors.Is(err, io.EOF) {
			s.problem = "the message cannot be read"
			return s.header
		}
		text := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if len(text) == 0 {
			s.body = s.end + int64(len(line))
			s.field()
			return s.header
		}
		s.closed = len(text) < len(line)
		if s.end += int64(len(line)); s.end > maxHeader {
			s.problem = fmt.Sprintf("the header is longer than %d KiB", maxHeader>>10)
		}
		s.line(text)
		if s.problem != "" {
			return s.header
		}
	}
}

// readLine returns a line including its line ending; only the last line of a message may have none. The caller must
// limit r to about maxHeader bytes, because readLine sets no limit of its own.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return line, err
	}
	start := bytes.Clone(line) // the next read overwrites line
	rest, err := r.ReadBytes('\n')
	return append(start, rest...), err
}

// scan processes the header line by line, and collects the values of From and DKIM-Signature fields and the length of
// the current field.
type scan struct {
	header
	lines, fields int
	name          string
	value         []byte
	length        int
}

func (s *scan) line(text []byte) {
	if s.lines++; s.lines > maxLines {
		s.problem = fmt.Sprintf("the header has more than %d lines", maxLines)
		return
	}
	if s.fields > 0 && (text[0] == ' ' || text[0] == '\t') {
		s.length += len(text)
		if s.collects() {
			s.value = append(s.value, text...)
		}
		return
	}
	s.field()
	if s.fields++; s.fields > maxFields {
		s.problem = fmt.Sprintf("the header has more than %d fields", maxFields)
		return
	}
	name, value, _ := bytes.Cut(text, []byte(":"))
	s.name, s.length = strings.ToLower(string(bytes.TrimSpace(name))), len(text)
	if s.collects() {
		s.value = append(s.value[:0], value...)
	}
}

// collects reports whether the value of the current field is needed.
func (s *scan) collects() bool {
	return s.name == "from" || s.name == "dkim-signature" && s.signatures < maxSignatures
}

// field records the current header field when it is complete.
func (s *scan) field() {
	switch s.name {
	case "from":
		s.from = append(s.from, string(bytes.TrimSpace(s.value)))
	case "dkim-signature":
		if s.signatures < maxSignatures {
			s.selectors = append(s.selectors, selector(s.value))
		}
		s.signatures++
		if s.length > maxSignature {
			s.problem = fmt.Sprintf("a signature field is longer than %d KiB", maxSignature>>10)
		}
	case "arc-seal", "arc-message-signature", "arc-authentication-results":
		s.arcFields++
	}
	s.name = ""
}

// selector returns the s tag of a signature, or "" if it has none.
func selector(signature []byte) string {
	for tag := range bytes.SplitSeq(signature, []byte(";")) {
		if name, value, _ := bytes.Cut(tag, []byte("=")); string(bytes.TrimSpace(name)) == "s" {
			return string(bytes.TrimSpace(value))
		}
	}
	return ""
}
