package dmarcrpt_test

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/dmarcrpt/dmarcrpttest"
)

// repeated is a reader of a text, n copies of another one, and a third one.
func repeated(before, text string, n int, after string) io.Reader {
	return io.MultiReader(strings.NewReader(before), &copies{text: text, n: n}, strings.NewReader(after))
}

// copies is a reader of n copies of a text, which need no memory.
type copies struct {
	text, rest string
	n          int
}

func (c *copies) Read(p []byte) (int, error) {
	if c.rest == "" {
		if c.n == 0 {
			return 0, io.EOF
		}
		c.n--
		c.rest = c.text
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func packed(t *testing.T, r io.Reader) []byte {
	t.Helper()
	return packedAt(t, gzip.DefaultCompression, r)
}

func packedAt(t *testing.T, level int, r io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := gzip.NewWriterLevel(&out, level)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(w, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// allocated returns how many bytes f allocates. Other goroutines must be idle.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Files that unpack to very much, or that are built to take memory, are refused after little work.
func TestBombs(t *testing.T) { // not parallel, because it measures allocations of the whole process
	report := string(page())
	head, tail, _ := strings.Cut(report, "<record>")
	record := "<record>" + strings.TrimSuffix(tail, "</feedback>")
	for name, c := range map[string]struct {
		file []byte
		want string
		most uint64 // bytes that are allocated in total
	}{
		"gzip, spaces in the report": {packed(t, repeated(head, " \n", 1<<20, "")), "a tag or a text", 1 << 20},
		"gzip, spaces before it":     {packed(t, repeated("", " ", 4<<20, report)), "white space", 1 << 20},
		"gzip, zeros behind it":      {packed(t, repeated(report, "\x00", 4<<20, "")), "200 times its size", 1 << 20},
		"gzip, equal records": {packed(t, repeated(head, record, 20_000, "</feedback>")), "200 times its size",
			100 << 20},
		"ZIP, equal records": {zippedReader(t, repeated(head, record, 20_000, "</feedback>")), "200 times its size",
			100 << 20},
		"long text": {packed(t, repeated(head+"<record><x>", "0123456789", 10_000, "")), "a tag or a text",
			2 << 20},
		"long tag": {packed(t, repeated(head+"<", "abcdefghij", 10_000, ">")), "a tag or a text",
			2 << 20},
		"long comment": {packed(t, repeated(head+"<!--", "abcdefghij", 10_000, "-->")), "a tag or a text",
			2 << 20},
		"many attributes": {packed(t, repeated(head+"<x", " a='b'", 20_000, ">")), "a tag or a text",
			4 << 20},
		"document type": {packed(t, repeated("<!DOCTYPE a [", "<!ENTITY a 'b'>", 10_000, "]>")), "a tag or a text",
			2 << 20},
		"nested":          {packed(t, repeated(head, "<record>", 1_000_000, "")), "nested", 1 << 20},
		"nested, unknown": {packed(t, repeated(head, "<x>", 1_000_000, "")), "nested", 1 << 20},
		"text in pieces": {packed(t, repeated(head+"<record><row><count>", "1<!---->", 100_000, "</count>")), "whole number",
			8 << 20},
		// Without the search for repetitions, a byte takes a bit.
		"gzip, more than 100 MB": {packedAt(t, gzip.HuffmanOnly, repeated(report, strings.Repeat("\x00", 1<<20), 100, "")),
			"the XML has more than", 1 << 20},
		"many entries": {manyEntries(t, 20_000), "index of the archive", 4 << 20},
	} {
		var err error
		used := allocated(func() { _, err = discard(c.file) })
		if err == nil || !strings.Contains(err.Error(), c.want) || used > c.most {
			t.Errorf("%s: %v, want %q; %d bytes allocated, want %d at most", name, err, c.want, used, c.most)
		}
	}
}

// discard reads a report and returns the number of its rows.
func discard(file []byte) (rows int, err error) {
	_, err = dmarcrpt.Read(bytes.NewReader(file), int64(len(file)), func(dmarcrpt.Row) error { rows++; return nil })
	return rows, err
}

func zippedReader(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	f, err := w.Create("report.xml")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(f, r); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func manyEntries(t *testing.T, n int) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for i := range n {
		if _, err := w.Create(fmt.Sprintf("%d.xml", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Rows up to the maximum number are passed on. The memory in use does not grow with their number.
func TestRowsAreBounded(t *testing.T) { // not parallel, because it measures the memory of the whole process
	head, _, _ := strings.Cut(string(page()), "<record>")
	const record = "<record><row><source_ip>::1</source_ip><count>1</count></row>" +
		"<identifiers><header_from>a</header_from></identifiers></record>"
	file := []byte(head + strings.Repeat(record, 200_001) + "</feedback>")
	var rows int
	var early, late runtime.MemStats
	_, err := dmarcrpt.Read(bytes.NewReader(file), int64(len(file)), func(dmarcrpt.Row) error {
		switch rows++; rows {
		case 1_000:
			runtime.GC()
			runtime.ReadMemStats(&early)
		case 200_000:
			runtime.GC()
			runtime.ReadMemStats(&late)
		}
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "more than 200000 records") || rows != 200_000 {
		t.Errorf("%d rows: %v", rows, err)
	}
	if late.HeapAlloc > early.HeapAlloc+1<<20 {
		t.Errorf("%d bytes after 1,000 rows, and %d after 200,000", early.HeapAlloc, late.HeapAlloc)
	}
}

func TestArchives(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"one file":           {dmarcrpttest.Zip("a", page()), ""},
		"folder and file":    {dmarcrpttest.Zip("a/", nil, "a/b.xml", page()), ""},
		"two files":          {dmarcrpttest.Zip("a.xml", page(), "b.xml", page()), "several files"},
		"no file":            {dmarcrpttest.Zip("a/", nil), "empty"},
		"nothing":            {[]byte("PK\x05\x06" + strings.Repeat("\x00", 18)), "not XML"},
		"only a beginning":   {[]byte("PK\x03\x04abc"), "read the archive"},
		"gzip in ZIP":        {dmarcrpttest.Zip("a.gz", dmarcrpttest.Gzip(page())), "not XML"},
		"ZIP in gzip":        {dmarcrpttest.Gzip(dmarcrpttest.Zip("a", page())), "not XML"},
		"gzip in gzip":       {dmarcrpttest.Gzip(dmarcrpttest.Gzip(page())), "not XML"},
		"members of gzip":    {append(dmarcrpttest.Gzip(page()[:500]), dmarcrpttest.Gzip(page()[500:])...), ""},
		"garbage after gzip": {append(dmarcrpttest.Gzip(page()), "garbage"...), "unpack the file"},
		"no gzip":            {[]byte("\x1f\x8b\x00\x00"), "unpack the file"},
		"damaged index": {bytes.Replace(dmarcrpttest.Zip("a", page()), []byte("PK\x01\x02"), []byte("PK\x01\x03"), 1),
			"read the archive"},
		"wrong checksum": {wrongSum(dmarcrpttest.Zip("a", page())), "checksum"},
		"too large":      {make([]byte, 25<<20+1), "more than 26214400"},
	} {
		rows, err := discard(c.file)
		bad := c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want))
		if bad || c.want == "" && (err != nil || rows != 1) {
			t.Errorf("%s: %d rows, %v, want %q", name, rows, err, c.want)
		}
	}
}

// wrongSum changes the checksum in the index of an archive.
func wrongSum(file []byte) []byte {
	file[bytes.Index(file, []byte("PK\x01\x02"))+16] ^= 1
	return file
}

func TestFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for size := range int64(3) {
		if _, err := dmarcrpt.Read(failing{}, size*100, nil); size > 0 && (err == nil || !strings.Contains(err.Error(),
			"no disk")) {
			t.Error(err)
		}
	}
}

type failing struct{}

func (failing) ReadAt([]byte, int64) (int, error) { return 0, fmt.Errorf("no disk") }

func FuzzRead(f *testing.F) {
	f.Add(page())
	f.Add(dmarcrpttest.Gzip(page()))
	f.Add(dmarcrpttest.Zip("a/", nil, "a/b", page()))
	f.Add(append([]byte("\ufeff <?xml version='1.0' encoding='latin1'?>"),
		page("<org_name>R", "<org_name><![CDATA[\xe9]]>")...))
	f.Add(page("<feedback", `<a:feedback xmlns:a="urn:ietf:params:xml:ns:dmarc-2.0"`, "</feedback>", "</a:feedback>"))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, rows, err := read(file)
		if err != nil {
			return
		}
		if h.ID == "" || h.Policy.Domain == "" || h.Begin.IsZero() || h.End.Before(h.Begin) {
			t.Errorf("%+v", h)
		}
		for _, r := range rows {
			if !r.Source.IsValid() || r.Count < 0 || r.Count > 1_000_000_000_000 || r.HeaderFrom == "" ||
				len(r.Signatures) > 100 || len(r.Paths) > 100 || len(r.Reasons) > 100 {
				t.Errorf("%+v", r)
			}
		}
	})
}
