package dmarcrpt_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/dmarcrpt/dmarcrpttest"
)

func write(h dmarcrpt.Header, rows ...dmarcrpt.Row) ([]byte, error) {
	var out bytes.Buffer
	err := dmarcrpt.Write(&out, h, slices.Values(rows))
	return out.Bytes(), err
}

// samples returns what the writer makes of generated reports, and the models.
func samples(t *testing.T, n int) (files [][]byte, models []dmarcrpttest.Model) {
	t.Helper()
	random := rand.New(rand.NewPCG(1, 9990))
	for i := range n {
		m := dmarcrpttest.Generate(random, i)
		m.H.Policy.Percent = 100 // RFC 9990 has no percentage
		file, err := write(m.H, m.Rows...)
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		files, models = append(files, file), append(models, m)
	}
	return files, models
}

// The reader reads what the writer writes. Only the order of signatures may differ.
func TestWriteAndRead(t *testing.T) {
	t.Parallel()
	files, models := samples(t, 300)
	byText := func(a, b dmarcrpt.Result) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) }
	for i, m := range models {
		h, rows, err := read(files[i])
		if err != nil {
			t.Fatalf("%d: %v\n%s", i, err, files[i])
		}
		for j := range rows {
			slices.SortFunc(rows[j].Signatures, byText)
			slices.SortFunc(m.Rows[j].Signatures, byText)
		}
		if !reflect.DeepEqual(m.H, h) || !reflect.DeepEqual(m.Rows, rows) {
			t.Fatalf("%d: %s", i, cmp.Diff(m.H, h, same)+cmp.Diff(m.Rows, rows, same))
		}
	}
}

// Everything that the writer makes is valid by a schema that was written from RFC 9990.
func TestSchema(t *testing.T) {
	t.Parallel()
	lint, err := exec.LookPath("xmllint")
	if err != nil {
		t.Fatalf("%v: run `make deps`, or install Debian's package libxml2-utils", err)
	}
	dir := t.TempDir()
	validate := func(files ...string) (string, error) {
		out, err := exec.Command(lint, append([]string{"--nonet", "--noout", "--schema", "testdata/rfc9990.xsd"},
			files...)...).CombinedOutput()
		return string(out), err
	}
	save := func(name string, file []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	files, _ := samples(t, 300)
	var paths []string
	for i, file := range files {
		paths = append(paths, save(fmt.Sprintf("%d.xml", i), file))
	}
	least, err := write(leastHeader(), leastRow())
	if err != nil {
		t.Fatal(err)
	}
	if out, err := validate(append(paths, save("least.xml", least))...); err != nil {
		t.Errorf("%v: %.4000s", err, out)
	}
	// The schema itself refuses reports with mistakes.
	for i, change := range [][2]string{
		{dmarcrpt.Namespace, "urn:x"}, {"<version>1.0", "<version>2"}, {"<report_id>1</report_id>", ""},
		{"<count>1", "<count>-1"}, {"<count>1", "<count>x"}, {"192.0.2.1", "192.0.2.256"}, {"<p>none", "<p>block"},
		{"<dkim>fail", "<dkim>none"}, {"<begin>0", "<begin>"}, {"</row>", "</row><row/>"}, {"<testing>n", "<testing>x"},
		{"<identifiers>", "<x/><identifiers>"}, {"<disposition>none</disposition>", ""}, {"<org_name>R", "<org_name>"},
	} {
		if !bytes.Contains(least, []byte(change[0])) {
			t.Errorf("%q is not in %s", change[0], least)
		}
		file := bytes.ReplaceAll(least, []byte(change[0]), []byte(change[1]))
		if out, err := validate(save(fmt.Sprintf("wrong%d.xml", i), file)); err == nil {
			t.Errorf("%q: %s", change, out)
		}
	}
}

func leastHeader() dmarcrpt.Header {
	return dmarcrpt.Header{Org: "R", Email: "r@r.example", ID: "1", Begin: time.Unix(0, 0), End: time.Unix(0, 0),
		Policy: dmarcrpt.Policy{Domain: "a.example", P: "none"}}
}

func leastRow() dmarcrpt.Row {
	return dmarcrpt.Row{Source: netip.MustParseAddr("192.0.2.1"), Count: 1, Disposition: "none", HeaderFrom: "a.example"}
}

// The text of a report, in full.
func TestWrite(t *testing.T) {
	t.Parallel()
	h := dmarcrpt.Header{Org: "A & B", Email: "r@r.example", Contact: "https://r.example/", ID: "x.1@r.example",
		Begin: time.Unix(1767225600, 0), End: time.Unix(1767311999, 0), Errors: []string{"one", "two\x00"}, Generator: "G 1",
		Policy: dmarcrpt.Policy{Domain: "a.example", Discovery: "treewalk", P: "reject", SP: "quarantine", NP: "reject",
			StrictDKIM: true, Testing: true, FailureReports: "1", Percent: 50}}
	row := leastRow()
	row.Source = netip.MustParseAddr("::ffff:192.0.2.1")
	row.Disposition, row.EnvelopeFrom, row.EnvelopeTo = "quarantine", "b.example", "c.example"
	row.Reasons = []dmarcrpt.Reason{{"policy_test_mode", "t=y"}, {Type: "other"}}
	row.Signatures = []dmarcrpt.Result{{Domain: "d.example", Selector: "s", Result: "fail", Detail: "<broken>"}}
	row.Paths = []dmarcrpt.Result{{Domain: "b.example", Scope: "mfrom", Result: "softfail"}}
	got, err := write(h, row)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/report.xml")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
		t.Error(diff)
	}
}

// If a row has many signatures, those that passed for an aligned domain are reported first (RFC 9990 section 3.1.3).
func TestSignaturesAreBounded(t *testing.T) {
	t.Parallel()
	row := leastRow()
	row.HeaderFrom = "news.a.example"
	for i := range 150 {
		row.Signatures = append(row.Signatures, dmarcrpt.Result{Domain: "x.example", Selector: fmt.Sprint(i), Result: "fail"})
	}
	for _, domain := range []string{"other.example", "a.example", "b.news.a.example", "news.a.example"} {
		row.Signatures = append(row.Signatures, dmarcrpt.Result{Domain: domain, Selector: "s", Result: "pass"})
	}
	file, err := write(leastHeader(), row)
	if err != nil {
		t.Fatal(err)
	}
	_, rows, err := read(file)
	if err != nil {
		t.Fatal(err)
	}
	var domains []string
	for _, s := range rows[0].Signatures {
		domains = append(domains, s.Domain)
	}
	want := append([]string{"news.a.example", "a.example", "b.news.a.example", "other.example"},
		slices.Repeat([]string{"x.example"}, 96)...)
	if diff := cmp.Diff(want, domains); diff != "" {
		t.Error(diff)
	}
	if got := rows[0].Signatures[99].Selector; got != "95" {
		t.Errorf("the last signature is %s", got)
	}
}

func TestWriteInvalidReports(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(h *dmarcrpt.Header, r *dmarcrpt.Row){
		"no name":            func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Org = "" },
		"no address":         func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Email = "" },
		"no id":              func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.ID = "" },
		"id with brackets":   func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.ID = "<1@r.example>" },
		"id with a space":    func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.ID = "1 2" },
		"id with empty part": func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.ID = "1..2" },
		"id of three parts":  func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.ID = "1@2@3" },
		"id not in ASCII":    func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.ID = "é" },
		"reversed period":    func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Begin = time.Unix(1, 0) },
		"no period":          func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Begin = time.Time{} },
		"no domain":          func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Policy.Domain = "" },
		"domain in capitals": func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Policy.Domain = "A.example" },
		"no policy":          func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Policy.P = "" },
		"no such sp":         func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Policy.SP = "block" },
		"no such np":         func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Policy.NP = "block" },
		"no such discovery":  func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Policy.Discovery = "guess" },
		"no source":          func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.Source = netip.Addr{} },
		"source with a zone": func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.Source = netip.MustParseAddr("fe80::1%a") },
		"no messages":        func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.Count = 0 },
		"too many messages":  func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.Count = 1_000_000_000_001 },
		"no From":            func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.HeaderFrom = "" },
		"address in From":    func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.HeaderFrom = "a@a.example" },
		"invalid MAIL FROM":  func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.EnvelopeFrom = "a b" },
		"invalid RCPT TO":    func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.EnvelopeTo = "A" },
		"no disposition":     func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.Disposition = "" },
		"unexplained":        func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.Disposition = "reject" },
		"reason of RFC 7489": func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
			r.Reasons = []dmarcrpt.Reason{{Type: "sampled_out"}}
		},
		"no selector": func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
			r.Signatures = []dmarcrpt.Result{{Domain: "a.example", Result: "pass"}}
		},
		"no such result of DKIM": func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
			r.Signatures = []dmarcrpt.Result{{Domain: "a.example", Selector: "s", Result: "softfail"}}
		},
		"two results of SPF": func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
			r.Paths = slices.Repeat([]dmarcrpt.Result{{Domain: "a.example", Result: "pass"}}, 2)
		},
		"SPF of EHLO": func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
			r.Paths = []dmarcrpt.Result{{Domain: "a.example", Scope: "helo", Result: "pass"}}
		},
	} {
		h, row := leastHeader(), leastRow()
		if _, err := write(h, row); err != nil {
			t.Fatal(err)
		}
		change(&h, &row)
		if file, err := write(h, row); err == nil {
			t.Errorf("%s: %s", name, file)
		}
	}
	if _, err := write(leastHeader()); err == nil {
		t.Error("a report without rows is written")
	}
}

type full struct{ left int }

func (f *full) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errors.New("no space")
	}
	return len(p), nil
}

func TestWriterThatFails(t *testing.T) {
	t.Parallel()
	for _, left := range []int{0, 50, 5_000, 100_000} {
		err := dmarcrpt.Write(&full{left}, leastHeader(), slices.Values(slices.Repeat([]dmarcrpt.Row{leastRow()}, 1000)))
		if err == nil || !strings.Contains(err.Error(), "no space") {
			t.Errorf("after %d bytes: %v", left, err)
		}
	}
}
