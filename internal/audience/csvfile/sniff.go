package csvfile

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
)

// kinds maps the first bytes of a file to the name of a format that users often upload instead of CSV.
var kinds = []struct{ begin, name string }{
	{"PK\x03\x04", "a spreadsheet or an archive (xlsx, ods or zip)"},
	{"\xd0\xcf\x11\xe0", "a spreadsheet of Excel (xls)"},
	{"%PDF", "a PDF"},
	{"\x1f\x8b", "compressed (gzip)"},
	{"\x89PNG", "an image"},
	{"\xff\xd8\xff", "an image"},
	{"GIF8", "an image"},
	{"SQLite format 3", "a database"},
}

// Sniff detects the format of a file. The parameter head contains the first HeadSize bytes of the file, or the whole
// file if it is shorter. Sniff returns the format and the first record. If the file is empty or not text, or if the
// first record is longer than head, Sniff returns an Invalid fault for the `file` field.
func Sniff(head []byte) (Form, Record, error) {
	for _, k := range kinds {
		if bytes.HasPrefix(head, []byte(k.begin)) {
			return Form{}, Record{}, fault.Invalidf("file",
				"The `file` is %s, not CSV. Open it, save it as CSV (UTF-8), and send that.", k.name)
		}
	}
	form := Form{Charset: UTF8}
	form.Charset, form.Start = charset(head)
	text, err := decoded(head, form)
	if err != nil {
		return form, Record{}, err
	}
	first := firstLine(text)
	if isBinary(text, first) {
		return form, Record{}, fault.Invalidf("file",
			"The `file` is not text. Save it as CSV (UTF-8) with the program that it comes from, and send that.")
	}
	form.Comma = separator(first)
	lines := int64(0)
	if c, ok := strings.CutPrefix(first, "sep="); ok && len(c) == 1 && strings.Contains(commas, c) {
		// Excel supports a first line such as "sep=;" that names the separator.
		said, err := NewReader(bytes.NewReader(head[form.Start:]), form, form.Start, 0).Read()
		if err != nil {
			return form, Record{}, err
		}
		form.Comma, form.Start, lines = c[0], said.End, said.Lines
	}
	rec, err := header(head, form, lines)
	return form, rec, err
}

// header reads the first record, which contains the column names.
func header(head []byte, form Form, lines int64) (Record, error) {
	rec, err := NewReader(bytes.NewReader(head[form.Start:]), form, form.Start, lines).Read()
	broken, _ := errors.AsType[*RecordError](err)
	switch {
	case errors.Is(err, io.EOF):
		return rec, fault.Invalidf("file", "The `file` is empty. Its first line must name the columns.")
	case len(head) >= HeadSize && (rec.End >= int64(len(head)) || broken != nil && broken.Problem == Unclosed):
		return rec, fault.Invalidf("file", "The first line of the `file`, which must name the columns, does not end "+
			"within %d bytes. Is this CSV?", HeadSize)
	case broken != nil:
		return rec, fault.Invalidf("file", "The first line of the `file`, which must name the columns, cannot be read. %s",
			broken.Error())
	}
	return rec, err
}

// charset detects UTF-16 by its byte order mark, or by the zero bytes of ASCII characters.
func charset(head []byte) (cs Charset, start int64) {
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		return UTF8, 3
	case bytes.HasPrefix(head, []byte("\xff\xfe")):
		return UTF16LE, 2
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		return UTF16BE, 2
	}
	var zeros [2]int
	for i, c := range head {
		if c == 0 {
			zeros[i%2]++
		}
	}
	const most = 4 // at least 1/4 of the characters are ASCII, and few have a zero low byte
	switch half := len(head) / 2; {
	case zeros[1] > half/most && zeros[0] <= zeros[1]/10:
		return UTF16LE, 0
	case zeros[0] > half/most && zeros[1] <= zeros[0]/10:
		return UTF16BE, 0
	}
	return UTF8, 0
}

// decoded returns the beginning of a file in UTF-8, without the byte order mark.
func decoded(head []byte, form Form) (string, error) {
	if form.Charset == UTF8 {
		return string(head[form.Start:]), nil
	}
	text, err := io.ReadAll(newUTF16(bytes.NewReader(head[form.Start:]), form.Charset))
	return string(text), err
}

// isBinary reports whether the beginning of a file is binary data rather than text. The parameter first is the first
// line of the file. Contacts' property values may contain any character except NUL; column names contain no control
// characters.
func isBinary(text, first string) bool {
	return strings.ContainsRune(text, 0) || strings.ContainsFunc(first, func(r rune) bool {
		return r < ' ' && r != '\t' && r != '\r' && r != '\n' && r != '\f' && r != '\v' && r != '\x1a' && r != '\x1b'
	})
}

// commas lists the possible separators. If two separators occur equally often, the one that comes first in this list is
// chosen.
const commas = ",;\t|"

// firstLine returns the first record without its line ending. If its argument does not contain the whole record,
// firstLine returns the entire argument.
func firstLine(text string) string {
	line := strings.TrimLeft(text, "\r\n")
	quoted := false
	for i := range len(line) {
		switch c := line[i]; {
		case c == '"':
			quoted = !quoted
		case !quoted && (c == '\n' || c == '\r'):
			return line[:i]
		}
	}
	return line
}

// separator returns the separator that occurs most often in a line, outside quotes.
func separator(line string) byte {
	var count [len(commas)]int
	quoted := false
	for i := range len(line) {
		if line[i] == '"' {
			quoted = !quoted
		}
		if at := strings.IndexByte(commas, line[i]); at >= 0 && !quoted {
			count[at]++
		}
	}
	best := 0
	for i, n := range count {
		if n > count[best] {
			best = i
		}
	}
	return commas[best]
}
