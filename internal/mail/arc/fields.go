package arc

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// field is a header field, which may be folded, without its last line ending.
type field struct {
	name string // in lower case
	raw  []byte
}

// value returns what follows the colon.
func (f field) value() []byte { return f.raw[bytes.IndexByte(f.raw, ':')+1:] }

var errHeader = errors.New("the header is longer than 256 KiB or has more than 2,000 fields")

// readHeader reads the header of a message and leaves r at the first byte of the body. It skips lines that are not
// fields.
func readHeader(r interface {
	io.Reader
	ReadSlice(delim byte) ([]byte, error)
}) (all []field, err error) {
	var header []byte
	var starts []int
	for {
		line, err := r.ReadSlice('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			if !isFull(err) {
				return nil, err
			}
		} else if len(trimEnding(line)) == 0 && isLineStart(header) {
			break
		}
		if isLineStart(header) && line[0] != ' ' && line[0] != '\t' {
			starts = append(starts, len(header))
		}
		header = append(header, line...)
		if len(header) > maxHeader || len(starts) > maxFields {
			return nil, errHeader
		}
		if errors.Is(err, io.EOF) {
			break
		}
	}
	for i, start := range starts {
		end := len(header)
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		raw := trimEnding(header[start:end])
		if name, _, ok := bytes.Cut(raw, []byte(":")); ok {
			all = append(all, field{strings.ToLower(string(bytes.TrimRight(name, " \t"))), raw})
		}
	}
	return all, nil
}

// trimEnding removes one line ending, CRLF or LF.
func trimEnding(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		return bytes.TrimSuffix(line[:n-1], []byte("\r"))
	}
	return line
}

func isLineStart(header []byte) bool { return len(header) == 0 || header[len(header)-1] == '\n' }

// tags are the values of a tag list (RFC 6376 section 3.2), without white space around them.
type tags map[string]string

func parseTags(value []byte) (tags, error) {
	all := tags{}
	parts := strings.Split(string(value), ";")
	for i, part := range parts {
		name, text, ok := strings.Cut(part, "=")
		name = strings.Trim(name, space)
		if !ok || name == "" {
			if i == len(parts)-1 && strings.Trim(part, space) == "" {
				continue // the list may end with a semicolon
			}
			return nil, fmt.Errorf("%.40q is no tag", strings.Trim(part, space))
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("the tag %.20q occurs twice", name)
		}
		all[name] = strings.Trim(text, space)
	}
	return all, nil
}

const space = " \t\r\n"

// need returns an error unless all of the tags have values.
func (t tags) need(names ...string) error {
	for _, name := range names {
		if t[name] == "" {
			return fmt.Errorf("the tag %s is missing", name)
		}
	}
	return nil
}

// base64 decodes the value of a tag, in which white space is ignored.
func (t tags) base64(name string) ([]byte, error) {
	data, err := base64.StdEncoding.DecodeString(strings.Map(func(r rune) rune {
		if strings.ContainsRune(space, r) {
			return -1
		}
		return r
	}, t[name]))
	if err != nil {
		return nil, fmt.Errorf("the tag %s is not base64", name)
	}
	return data, nil
}

// instanceOf returns the instance that a field of a set names. ARC-Authentication-Results begins with the instance;
// rest is the text after it, which is not a tag list. For the other fields, rest is "".
func instanceOf(k kind, value []byte) (n int, rest string, err error) {
	if k != results {
		list, err := parseTags(value)
		if err != nil {
			return 0, "", err
		}
		n, err = parseInstance(list["i"])
		return n, "", err
	}
	first, after, _ := strings.Cut(string(value), ";")
	name, number, _ := strings.Cut(first, "=")
	if strings.Trim(name, space) != "i" {
		return 0, "", errors.New("the instance is missing")
	}
	n, err = parseInstance(strings.Trim(number, space))
	return n, strings.Join(strings.Fields(after), " "), err
}

func parseInstance(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 8)
	if err != nil || n < 1 || n > MaxSets || text[0] == '0' {
		return 0, fmt.Errorf("the instance %.20q is not a number from 1 to %d", text, MaxSets)
	}
	return int(n), nil
}

// withoutSignature returns a field in which the value of the tag b is empty, as it was when the field was signed.
func withoutSignature(raw []byte) []byte {
	colon := bytes.IndexByte(raw, ':') + 1
	out := slices.Clone(raw[:colon])
	for i, part := range bytes.Split(raw[colon:], []byte(";")) {
		if i > 0 {
			out = append(out, ';')
		}
		if name, _, ok := bytes.Cut(part, []byte("=")); ok && string(bytes.Trim(name, space)) == "b" {
			part = part[:len(name)+1]
		}
		out = append(out, part...)
	}
	return out
}
