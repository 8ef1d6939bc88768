package domainreports_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/postrider/postrider/internal/mail/dmarcrpt/dmarcrpttest"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/sending/domainreports"
)

const hostileMemory = 300 << 20 // that the process may take for all hostile files

// Hostile files are accepted, change no count, and need limited memory.
func TestHostile(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		f.reporter("evil.example")
		files := hostile(f)
		if len(files) != 200 {
			t.Fatalf("%d files", len(files))
		}
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i, file := range files {
			// The limit for one day would hide later files, and two files are the same.
			f.Exec(`UPDATE report_days SET others = 0`)
			f.Exec(`UPDATE received_reports SET fingerprint = ''`)
			accept(t, c, to, f.compose(&mail{from: "evil.example", subject: "Report", file: file, signed: i%2 == 0,
				name: []string{"a.xml.gz", "a.json.gz", "a", "a.zip"}[i%4]}))
		}
		runtime.ReadMemStats(&after)
		if grown := int64(after.Sys) - int64(before.Sys); grown > hostileMemory {
			t.Errorf("the process took %d MB", grown>>20)
		}
		all := f.list(d)
		if len(all) != len(files) {
			t.Errorf("%d reports are listed", len(all))
		}
		for i, r := range all {
			if r.State != domainreports.Unreadable || r.Reason == "" || len(r.Reason) > 310 {
				t.Errorf("%d: %s: %q", i, r.State, r.Reason)
			}
		}
		if v := f.dmarc(d, 20); v.Messages != 0 || v.Apart.Messages != 0 || len(v.Findings) != 0 {
			t.Errorf("%+v", v)
		}
		if v := f.tls(d); v.Successful+v.Failed+v.Apart.Messages != 0 {
			t.Errorf("%+v", v)
		}
	})
}

// hostile returns 200 files that are no reports, or broken ones.
func hostile(f *fixture) (all [][]byte) {
	good := f.day("shop.example", "1", 1, row("shop.example", ownSource, 1, "s", true, true)).xml()
	tls := []byte(`{"organization-name":"x","report-id":"1","date-range":{"start-datetime":"2026-11-01T00:00:00Z",` +
		`"end-datetime":"2026-11-01T23:59:59Z"},"policies":[]}`)
	add := func(files ...[]byte) { all = append(all, files...) }
	add(bomb("<feedback>", " ", 110<<20), bomb("{", " ", 20<<20), bomb("<feedback><x>", "<x>", 20<<20),
		bomb(`{"policies":`, "[", 30<<20), bomb(`{"policies":[`, `{"a":1},`, 20<<20), bomb("\x00", "\x00", 20<<20),
		dmarcrpttest.Zip("a.xml", []byte("<feedback>"+strings.Repeat(" ", 101<<20))))
	add([]byte(`<!DOCTYPE lolz [<!ENTITY a "x"><!ENTITY b "&a;&a;&a;">]><feedback>&b;</feedback>`),
		[]byte(`<!DOCTYPE f SYSTEM "file:///etc/passwd"><feedback/>`), []byte("<html><body>hi</body></html>"),
		[]byte("{}"), []byte("{"), []byte("<"), []byte("PK\x03\x04"), []byte{0x1f, 0x8b}, []byte("nothing at all"), tls,
		[]byte(strings.Repeat("{\"a\":", 100_000)), []byte(strings.Repeat("<feedback>", 100_000)),
		dmarcrpttest.Zip("a", good, "b", good), dmarcrpttest.Zip("a/", nil), dmarcrpttest.Gzip(dmarcrpttest.Gzip(good)),
		dmarcrpttest.Zip("a.gz", dmarcrpttest.Gzip(good)), wide(good, binary.LittleEndian), wide(good, binary.BigEndian),
		wide(tls, binary.LittleEndian))
	text := string(good)
	for _, change := range [][2]string{{"<count>1</count>", "<count>-1</count>"}, {"<count>1</count>", "<count>1e9</count>"},
		{"<count>1</count>", "<count>99999999999999999999</count>"}, {"<count>1</count>", ""},
		{ownSource, "not an address"}, {"<report_id>1</report_id>", ""}, {"<domain>shop.example</domain>", ""},
		{"</feedback>", "</feedback><feedback/>"}, {"</feedback>", ""}, {`<?xml version="1.0"?>`,
			`<?xml version="1.0" encoding="utf-16"?>`}, {`<?xml version="1.0"?>`, `<?xml version="1.0" encoding="ebcdic"?>`},
		{"<begin>", "<begin>9"}, {"<end>", "<end>-"}, {"<begin>1", "<begin>0"}} {
		add([]byte(strings.Replace(text, change[0], change[1], 1)))
	}
	random := rand.New(rand.NewPCG(200, 1))
	packed := dmarcrpttest.Gzip(good)
	for len(all) < 110 { // cut
		add(packed[:3+random.IntN(len(packed)-4)])
	}
	for len(all) < 150 { // cut XML
		add(good[:1+random.IntN(len(good)-2)])
	}
	for len(all) < 200 { // noise behind a correct beginning
		noise := make([]byte, 100+random.IntN(5000))
		for i := range noise {
			noise[i] = byte(random.IntN(256))
		}
		add(append([]byte([]string{"\x1f\x8b\x08\x00", "PK\x03\x04", "<feedback>\x00", "{\"\xff"}[len(all)%4]), noise...))
	}
	return all
}

// bomb returns a small file that becomes a large one when it is unpacked.
func bomb(start, repeated string, size int) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	io.WriteString(w, start)
	block := strings.Repeat(repeated, (64<<10)/len(repeated))
	for n := 0; n < size; n += len(block) {
		io.WriteString(w, block)
	}
	w.Close()
	return out.Bytes()
}

// wide returns a text in UTF-16.
func wide(text []byte, order binary.AppendByteOrder) (out []byte) {
	out = order.AppendUint16(out, 0xfeff)
	for _, u := range utf16.Encode([]rune(string(text))) {
		out = order.AppendUint16(out, u)
	}
	return out
}

// Repeated reports and those beyond the limits of a day leave no file.
func TestFloodStoresNoFiles(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		files := func(want int) {
			t.Helper()
			n := 0
			f.Must(f.Blobs.List(t.Context(), "reports/", func(blob.Info) error { n++; return nil }))
			if n != want {
				t.Errorf("%d files are stored, not %d", n, want)
			}
		}
		r := row(d.Name, ownSource, 1, "s", true, true)
		for range 3 {
			f.send(c, to, "mail.example", f.day(d.Name, "a", 1, r))
		}
		files(1)
		if all := f.list(d); len(all) != 1 || all[0].Repeats != 2 || !all[0].HasFile {
			t.Errorf("%+v", all)
		}
		f.Exec(`UPDATE report_reporters SET bytes = 10 << 20`)
		f.send(c, to, "mail.example", f.day(d.Name, "b", 2, r))
		f.Exec(`UPDATE report_days SET bytes = 6 << 20`)
		accept(t, c, to, f.compose(&mail{from: "mail.example", file: f.day(d.Name, "c", 3, r).xml()})) // not signed
		files(1)
		f.Exec(`UPDATE report_days SET reports = 2000, others = 200`)
		f.send(c, to, "google.com", f.day(d.Name, "d", 3, r))
		accept(t, c, to, f.compose(&mail{from: "mail.example", file: f.day(d.Name, "e", 4, r).xml()}))
		files(1)
		if n := f.Count(`SELECT dropped FROM report_days`); n != 2 || len(f.list(d)) != 3 {
			t.Errorf("%d are dropped", n)
		}
	})
}

// A report with very many different rows keeps all counts, and the details of the largest.
func TestManyRows(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		d, to := f.domain("shop.example")
		c := dial(t, f.listen(t))
		var want int64
		r := f.day("shop.example", "many", 1)
		for i := range 30_000 {
			n := int64(1 + i%7)
			if i == 29_999 {
				n = 1000
			}
			r.rows = append(r.rows, row("shop.example", fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), n, "", i%2 == 0,
				false))
			want += n
		}
		f.send(c, to, "big.example", r)
		v := f.dmarc(d, 20)
		if v.Messages != want || len(v.Days) != 1 || len(v.Sources) != 200 || v.MoreSources < 1500 {
			t.Errorf("%d of %d messages, %d sources and %d more", v.Messages, want, len(v.Sources), v.MoreSources)
		}
		if n := f.Count(`SELECT COUNT(*) FROM received_dmarc_rows`); n > 2010 {
			t.Errorf("%d rows", n)
		}
		var rest int64
		for _, x := range v.Sources {
			if x.Class == domainreports.Rest {
				rest += x.Messages
			}
		}
		if rest == 0 {
			t.Error("no messages without details")
		}
		tls := &tlsrpt.Report{Organization: "x", ID: "t", Begin: r.begin, End: r.end,
			Policies: []tlsrpt.PolicyReport{{Policy: tlsrpt.Policy{Type: tlsrpt.STS, Domain: "shop.example"}, Failed: 6000}}}
		for i := range 3000 {
			tls.Policies[0].Failures = append(tls.Policies[0].Failures, tlsrpt.Failure{Result: tlsrpt.NotTrusted,
				Host: fmt.Sprintf("mx%d.shop.example", i), Sessions: 2})
		}
		accept(t, c, to, f.tlsMail(t, tls, "big.example", "shop.example"))
		if v := f.tls(d); v.Failed != 6000 || f.Count(`SELECT COUNT(*) FROM received_tls_rows`) > 2010 {
			t.Errorf("%d failures", v.Failed)
		}
	})
}
