package milter

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// maxValue limits the size of a field value sent to a filter, in bytes, because milter packets have a limited size.
const maxValue = 64 << 10

// fieldReader splits a header into fields as mail filters expect them. A field value keeps its folds, but the space
// after the colon is removed, and CR and NUL are replaced by spaces. Lines that are not header fields are skipped.
type fieldReader struct {
	r      *bufio.Reader
	offset int64 // number of bytes read so far; at the end of the header, the offset of the body
	ahead  []byte
	ended  bool
}

func newFieldReader(raw io.ReaderAt, size int64) *fieldReader {
	return &fieldReader{r: bufio.NewReader(io.NewSectionReader(raw, 0, size))}
}

// next returns the next field, or io.EOF at the end of the header.
func (f *fieldReader) next() (name, value string, err error) {
	for {
		first := f.ahead
		f.ahead = nil
		if first == nil {
			if first, err = f.line(); err != nil {
				return "", "", err
			}
		}
		rest, err := f.folds()
		if err != nil {
			return "", "", err
		}
		before, after, isField := bytes.Cut(first, []byte(":"))
		if before = bytes.TrimRight(before, " \t"); !isField || fieldName(string(before)) == "" {
			continue
		}
		after = append(bytes.TrimPrefix(after, []byte(" ")), rest...)
		return string(before), string(after[:min(len(after), maxValue)]), nil
	}
}

// folds returns the continuation lines of a field, each preceded by an LF, and stores the line after them in ahead.
func (f *fieldReader) folds() ([]byte, error) {
	var rest []byte
	for {
		line, err := f.line()
		if errors.Is(err, io.EOF) {
			return rest, nil
		}
		if err != nil {
			return nil, err
		}
		if line[0] != ' ' && line[0] != '\t' {
			f.ahead = line
			return rest, nil
		}
		if len(rest) < maxValue {
			rest = append(append(rest, '\n'), line...)
		}
	}
}

// line returns the next header line without its line ending and truncated to maxValue bytes, or io.EOF at the end of
// the header.
func (f *fieldReader) line() ([]byte, error) {
	if f.ended {
		return nil, io.EOF
	}
	var line []byte
	for {
		part, err := f.r.ReadSlice('\n')
		f.offset += int64(len(part))
		line = append(line, part[:min(len(part), maxValue-min(len(line), maxValue))]...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		line = bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
		if f.ended = len(line) == 0 || errors.Is(err, io.EOF); len(line) == 0 {
			return nil, io.EOF
		}
		for i, c := range line {
			if c == 0 || c == '\r' {
				line[i] = ' '
			}
		}
		return line, nil
	}
}
