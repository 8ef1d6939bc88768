package csvfile

import (
	"bytes"
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/fault"
)

// units encodes a string in UTF-16.
func units(text string, order binary.AppendByteOrder) (b []byte) {
	for _, u := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, u)
	}
	return b
}

// records reads all records of a file.
func records(t testing.TB, file []byte) (form Form, all []string) {
	t.Helper()
	form, head, err := Sniff(file[:min(len(file), HeadSize)])
	if err != nil {
		t.Fatalf("%.40q: %v", file, err)
	}
	return form, append([]string{show(head, nil)}, rest(t, file, form, head)...)
}

// rest returns the records after an offset. For each record, rest also checks that a new Reader that begins at the
// record's end reads the same next record.
func rest(t testing.TB, file []byte, form Form, at Record) (all []string) {
	t.Helper()
	whole := NewReader(bytes.NewReader(file[at.End:]), form, at.End, at.Lines)
	for {
		rec, err := whole.Read()
		text := show(rec, err)
		resumed, again := NewReader(bytes.NewReader(file[at.End:]), form, at.End, at.Lines).Read()
		if s := show(resumed, again); s != text || resumed.End != rec.End || resumed.Lines != rec.Lines {
			t.Errorf("%.60q at %d: %s to %d, line %d; the whole file has %s to %d, line %d", file, at.End, s, resumed.End,
				resumed.Lines, text, rec.End, rec.Lines)
			return all
		}
		if errors.Is(err, io.EOF) {
			return all
		}
		if _, broken := errors.AsType[*RecordError](err); err != nil && !broken {
			t.Fatal(err)
		}
		all, at = append(all, text), rec
	}
}

func show(r Record, err error) string {
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d %q", r.Line, r.Fields)
}

func TestForms(t *testing.T) {
	t.Parallel()
	const text = "email;name\r\nà@b.example;\"Zoë; \"\"Z\"\"\r\nsecond 😀\"\r\n\r\nx;\r\n"
	want := []string{`1 ["email" "name"]`, `2 ["à@b.example" "Zoë; \"Z\"\r\nsecond 😀"]`, `5 ["x" ""]`}
	for name, c := range map[string]struct {
		file    []byte
		charset Charset
	}{
		"UTF-8":               {[]byte(text), UTF8},
		"UTF-8 with a mark":   {[]byte("\ufeff" + text), UTF8},
		"UTF-16LE":            {units(text, binary.LittleEndian), UTF16LE},
		"UTF-16BE":            {units(text, binary.BigEndian), UTF16BE},
		"UTF-16LE, marked":    {units("\ufeff"+text, binary.LittleEndian), UTF16LE},
		"UTF-16BE, marked":    {units("\ufeff"+text, binary.BigEndian), UTF16BE},
		"LF":                  {[]byte(strings.ReplaceAll(text, "\r", "")), UTF8},
		"CR":                  {[]byte(strings.ReplaceAll(text, "\r\n", "\r")), UTF8},
		"tabs":                {[]byte(strings.NewReplacer(";\"", "\t\"", "l;", "l\t", "x;", "x\t").Replace(text)), UTF8},
		"Excel":               {[]byte("sep=;\r\n" + text), UTF8},
		"no newline at last":  {[]byte(strings.TrimSuffix(text, "\r\n")), UTF8},
		"Windows-1252":        {[]byte(strings.NewReplacer("à", "\xe0", "ë", "\xeb").Replace(text)), UTF8},
		"UTF-8 and otherwise": {[]byte(strings.NewReplacer("ë", "\xeb").Replace(text)), UTF8},
	} {
		want := slices.Clone(want)
		switch name {
		case "LF":
			want[1] = strings.Replace(want[1], `\r\n`, `\n`, 1)
		case "CR":
			want[1] = strings.Replace(want[1], `\r\n`, `\r`, 1)
		case "Excel":
			want = []string{`2 ["email" "name"]`, strings.Replace(want[1], "2", "3", 1), strings.Replace(want[2], "5", "6", 1)}
		}
		form, got := records(t, c.file)
		if diff := cmp.Diff(want, got); diff != "" || form.Charset != c.charset {
			t.Errorf("%s: %+v %s", name, form, diff)
		}
	}
}

func TestSeparators(t *testing.T) {
	t.Parallel()
	for head, want := range map[string]byte{"email": ',', "email,name": ',', "a;b": ';', "a\tb\tc;d": '\t', "a|b": '|',
		`"a,b,c";d`: ';', `"a,""b,c";d`: ';', "a,b;c": ',', "sep=;\na,b,c": ';', "sep=|\na": '|'} {
		form, _, err := Sniff([]byte(head))
		if err != nil || form.Comma != want {
			t.Errorf("%q: %q, %v, want %q", head, form.Comma, err, want)
		}
	}
}

// Sniff rejects files that are not CSV, with advice in the error message.
func TestSniffRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ head, says string }{
		"xlsx":       {"PK\x03\x04\x14\x00", "save it as CSV"},
		"xls":        {"\xd0\xcf\x11\xe0\xa1\xb1", "save it as CSV"},
		"gzip":       {"\x1f\x8b\x08", "save it as CSV"},
		"PNG":        {"\x89PNG\r\n\x1a\n", "save it as CSV"},
		"JPEG":       {"\xff\xd8\xff\xe0\x00\x10JFIF", "save it as CSV"},
		"NULs":       {"email,name\na\x00b,c\n", "not text"},
		"controls":   {"\x01\x02\x03", "not text"},
		"empty":      {"", "is empty"},
		"a mark":     {"\xef\xbb\xbf", "is empty"},
		"lines":      {"\r\n\n\r", "is empty"},
		"sep":        {"sep=,\n", "is empty"},
		"long":       {strings.Repeat("a", HeadSize), "does not end"},
		"no end":     {`"` + strings.Repeat("a\n", HeadSize/2), "does not end"},
		"unclosed":   {`"email,name` + "\na,b\n", "cannot be read"},
		"stray":      {`"email"x,name` + "\na,b\n", "cannot be read"},
		"wide":       {strings.Repeat(",", MaxFields) + "\n", "columns"},
		"UTF-16 NUL": {"\xff\xfea\x00\x00\x00", "not text"},
	} {
		_, _, err := Sniff([]byte(c.head)[:min(len(c.head), HeadSize)])
		if f, ok := errors.AsType[*fault.Error](err); !ok || f.Field != "file" || !strings.Contains(f.Message, c.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, head := range map[string]string{"as many columns as there may be": strings.Repeat(",", MaxFields-1),
		"a value with control characters": "email,note\na@b.example,\x01\x07\x7f\n"} {
		if _, _, err := Sniff([]byte(head)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A malformed record is skipped, but the records after it are read.
func TestBrokenRecords(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxRecord)
	for name, c := range map[string]struct {
		body string
		want []string
	}{
		"text after a quote": {"\"a\"b,c\nd,e\n",
			[]string{"The row (line 2) has text after a closing quote. Within quotes, write a quote twice.", `3 ["d" "e"]`}},
		"a quote in a field": {"5\" pipe,c\n", []string{`2 ["5\" pipe" "c"]`}},
		"never closed, with a line end": {"a,\"b\nc,d\n",
			[]string{"The row (line 2) opens a quote that is never closed.", `3 ["c" "d"]`}},
		"never closed in the last line": {"a,\"b\n", []string{"The row (line 2) opens a quote that is never closed."}},
		"never closed without a line end": {"c,d\na,\"b", []string{`2 ["c" "d"]`,
			"The row (line 3) opens a quote that is never closed."}},
		"never closed": {"a,\"b\r\nc,\"\"\r\ne",
			[]string{"The row (line 2) opens a quote that is never closed.", `3 ["c" ""]`, `4 ["e"]`}},
		"never closed, after a field of two lines": {"\"a\nb\",\"c\nd,e\n",
			[]string{"The row (lines 2 to 3) opens a quote that is never closed.", `4 ["d" "e"]`}},
		"closed by another row's quote": {"a,\"b\nc,d\ne,\"f, g\",\"h\"\ni,j\n",
			[]string{"The row (line 2) opens a quote that ends in line 4, where other text follows. Close the quote, or write " +
				"the quotes within it twice. The lines after the row were read as rows of their own.", `3 ["c" "d"]`,
				`4 ["e" "f, g" "h"]`, `5 ["i" "j"]`}},
		"never closed, in each row": {"\"a\n\"b\n\"c\nd\n", []string{
			"The row (line 2) opens a quote that ends in line 3, where other text follows. Close the quote, or write " +
				"the quotes within it twice. The lines after the row were read as rows of their own.",
			"The row (line 3) opens a quote that ends in line 4, where other text follows. Close the quote, or write " +
				"the quotes within it twice. The lines after the row were read as rows of their own.",
			"The row (line 4) opens a quote that is never closed.", `5 ["d"]`}},
		"a long line that ends within quotes": {"\"" + long + "x\nc,d\n",
			[]string{"The row (line 2) is longer than 1048576 bytes. Is a quote not closed?", `3 ["c" "d"]`}},
		"too long": {long + "x,c\nd,e\n",
			[]string{"The row (line 2) is longer than 1048576 bytes. Is a quote not closed?", `3 ["d" "e"]`}},
		"too long, of many lines": {"\"" + strings.Repeat("\n", MaxRecord+1) + "\",c\nd,e\n",
			[]string{"The row (line 2) opens a quote that is not closed within 1048576 bytes.",
				"The row (line 1048579) opens a quote that is never closed.", `1048580 ["d" "e"]`}},
		"as long as can be": {long + "\nd,e", []string{`2 ["` + long + `"]`, `3 ["d" "e"]`}},
		"too wide": {strings.Repeat(",", MaxFields) + "\nd,e\n",
			[]string{"The row (line 2) has more than 1000 fields.", `3 ["d" "e"]`}},
		"a NUL": {"a\x00,b\n", []string{`2 ["a\x00" "b"]`}},
	} {
		got := rest(t, []byte(c.body), Form{Charset: UTF8, Comma: ','}, Record{Lines: 1})
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %.500s", name, diff)
		}
	}
}

// failing is a reader that returns an error in the middle of a file.
type failing struct{ r io.Reader }

func (f failing) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if errors.Is(err, io.EOF) {
		err = errors.New("input/output error")
	}
	return n, err
}

// If the file cannot be read, Read returns the error and does not treat it as the end of the file.
func TestReadErrors(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"a,b\nc", "a,b\n\"c", "a,b\n\"c\"d", "a,b\r", ""} {
		for _, cs := range []Charset{UTF8, UTF16LE} {
			b := []byte(file)
			if cs == UTF16LE {
				b = append(units(file, binary.LittleEndian), 'x')
			}
			r := NewReader(failing{bytes.NewReader(b)}, Form{Charset: cs, Comma: ','}, 0, 0)
			var err error
			for range 3 {
				if _, err = r.Read(); err != nil {
					break
				}
			}
			if err == nil || err.Error() != "input/output error" {
				t.Errorf("%q: %v", file, err)
			}
		}
	}
}

// The memory use of a Reader does not depend on the size of the file.
func TestMemory(t *testing.T) {
	t.Parallel()
	for name, line := range map[string]string{"one line": "x", "one field": "\"", "an open field": "\"\"\"\n\"\"",
		"fields": ",", "lines": "\n\"x\",",
		"a field of lines": "\"\"\n", "fields, then lines": strings.Repeat(",", MaxFields+1) + "\"" +
			strings.Repeat("\"\"\n", MaxRecord)} {
		r := NewReader(io.LimitReader(repeated(line), 8<<20), Form{Charset: UTF8, Comma: ','}, 0, 0)
		var err error
		for n := 0; n < 1000 && !errors.Is(err, io.EOF); n++ {
			_, err = r.Read()
		}
		if cap(r.text) > 2*MaxRecord || cap(r.ends) > 2*MaxFields || cap(r.out) > 2*MaxFields ||
			cap(r.tape.kept) > 8*MaxRecord {
			t.Errorf("%s: holds %d and %d bytes and %d fields", name, cap(r.text), cap(r.tape.kept), cap(r.ends))
		}
	}
}

type repeated string

func (r repeated) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r[i%len(r)]
	}
	return len(p), nil
}

// If encoding/csv reads a file without errors, FuzzReader checks that both packages return the same records. FuzzReader
// also checks that the Reader reads every file to the end with exact offsets.
func FuzzReader(f *testing.F) {
	for _, text := range []string{"a,b\nc,d\n", "a;\"b\"\"\nx\"\r\nc;d", "\"\"\n,\n\r\r\n",
		"a\tb\n\"c\"d\te\n", "\xe0,\xff\n",
		"sep=;\na;b\n", "\xff\xfea\x00,\x00b\x00\n\x00\x3d\xd8\x00\xde\x00\xd8"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		file = file[:min(len(file), 2000)] // limits the running time, because each record is read twice
		form, _, err := Sniff(file[:min(len(file), HeadSize)])
		if err != nil {
			if !errors.As(err, new(*fault.Error)) {
				t.Fatal(err)
			}
			return
		}
		_, all := records(t, file)
		if form.Charset != UTF8 || bytes.ContainsRune(bytes.ReplaceAll(file, []byte("\r\n"), nil), '\r') {
			return
		}
		theirs := csv.NewReader(bytes.NewReader(bytes.ToValidUTF8(file[form.Start:], []byte("?"))))
		theirs.Comma, theirs.FieldsPerRecord = rune(form.Comma), -1
		var want []string
		for {
			fields, err := theirs.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return
			}
			if len(fields) == 1 && fields[0] == "" {
				continue // Reader skips a line that contains only a pair of quotes
			}
			want = append(want, fmt.Sprintf("%q", fields))
		}
		if !bytes.Equal(file, bytes.ToValidUTF8(file, []byte("?"))) {
			return
		}
		for i := range all {
			_, all[i], _ = strings.Cut(all[i], " ")
		}
		// encoding/csv converts CRLF within quotes, so the test normalizes both sides.
		for _, records := range [][]string{want, all} {
			for i := range records {
				records[i] = strings.ReplaceAll(records[i], `\r\n`, `\n`)
			}
		}
		if diff := cmp.Diff(want, all); diff != "" {
			t.Errorf("%q: encoding/csv -, this package +: %s", file, diff)
		}
	})
}

// A rejected record is read again from the line after the one on which its last quoted field begins. A record whose
// last quoted field has no line breaks cannot be rejected.
func TestReject(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"\n", "\r\n", "\r"} {
		lines := []string{"a,\"b", "c,\"\"", "d,19\"", "e,\"f\"", "g,\"h", "i\""}
		file := strings.Join(lines, end)
		r := NewReader(strings.NewReader(file), Form{Charset: UTF8, Comma: ','}, 0, 0)
		rec, err := r.Read()
		if err != nil || len(rec.Fields) != 2 || rec.Lines != 3 {
			t.Fatalf("%+v, %v", rec, err)
		}
		broken := r.Reject(&rec)
		if broken == nil || broken.Line != 1 || !strings.Contains(broken.Error(), "(line 1) opens a quote that ends in line 3,") ||
			rec.Lines != 1 || int(rec.End) != len(lines[0]+end) {
			t.Fatalf("%v, %+v", broken, rec)
		}
		for i, want := range []string{`["c" ""]`, `["d" "19\""]`, `["e" "f"]`} {
			rec, err := r.Read()
			if got := fmt.Sprintf("%q", rec.Fields); err != nil || got != want || rec.Line != int64(i+2) || r.Reject(&rec) != nil {
				t.Errorf("line %d is %s, %v, want %s", rec.Line, got, err, want)
			}
		}
		if rec, err = r.Read(); err != nil || rec.Line != 5 {
			t.Fatalf("%+v, %v", rec, err)
		}
		if broken := r.Reject(&rec); broken == nil || !strings.Contains(broken.Error(), "ends in line 6,") {
			t.Errorf("at the end of the file: %v", broken)
		}
		if rec, err = r.Read(); err != nil || fmt.Sprintf("%q", rec.Fields) != `["i\""]` {
			t.Errorf("%q, %v", rec.Fields, err)
		}
		if rec, err = r.Read(); !errors.Is(err, io.EOF) {
			t.Errorf("%q, %v", rec.Fields, err)
		}
	}
}

// A long line after a quoted field with line breaks is not kept in memory.
func TestLongLineAfterQuote(t *testing.T) {
	t.Parallel()
	r := NewReader(io.MultiReader(strings.NewReader("\"a\nb\","), strings.NewReader(strings.Repeat("x", 20*MaxRecord)+"\nc,d")),
		Form{Charset: UTF8, Comma: ','}, 0, 0)
	if _, err := r.Read(); err == nil || cap(r.tape.kept) > 4*MaxRecord {
		t.Errorf("%v, with %d bytes kept", err, cap(r.tape.kept))
	}
	if rec, err := r.Read(); err != nil || rec.Line != 3 {
		t.Errorf("%+v, %v", rec, err)
	}
}
