package tlsrpt_test

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/postrider/postrider/internal/mail/tlsrpt"
)

//go:embed testdata/rfc8460.schema.json
var schemaText []byte

// checkSchema checks a report against the facts of RFC 8460 section 4.4.
func checkSchema(text []byte) error {
	var schema jsonschema.Schema
	if err := json.Unmarshal(schemaText, &schema); err != nil {
		return err
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		return err
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	return resolved.Validate(value)
}

// sample has each type of policy and each type of failure.
func sample() *tlsrpt.Report {
	day := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	r := &tlsrpt.Report{Organization: "Acme", Contact: "postmaster@acme.example", ID: "1@acme.example", Begin: day,
		End: day.Add(24*time.Hour - time.Second)}
	for _, p := range []tlsrpt.Policy{
		{Type: tlsrpt.NoPolicy, Domain: "example.com"},
		{Type: tlsrpt.STS, Domain: "example.com", MX: []string{"*.example.com", "mx.example.net"},
			Strings: []string{"version: STSv1", "mode: enforce", "mx: *.example.com", "mx: mx.example.net", "max_age: 604800"}},
		{Type: tlsrpt.TLSA, Domain: "mx.example.com", Strings: []string{"3 1 1 " + strings.Repeat("0a", 32)}},
	} {
		x := tlsrpt.PolicyReport{Policy: p, Successful: 5}
		for i, result := range tlsrpt.Results() {
			f := tlsrpt.Failure{Result: result, Sessions: int64(i + 1), SendingIP: "192.0.2.1", Host: "mx.example.com"}
			if i%2 == 0 {
				f.SendingIP, f.ReceivingIP, f.Hello = "2001:db8::1", "198.51.100.7", "mx"
				f.Information, f.Reason = "https://acme.example/tls", "no STARTTLS \"<ü>"
			}
			x.Failures, x.Failed = append(x.Failures, f), x.Failed+f.Sessions
		}
		r.Policies = append(r.Policies, x)
	}
	return r
}

// The writer's output satisfies the schema, and the reader reads the same report from it.
func TestReport(t *testing.T) {
	t.Parallel()
	want := sample()
	text, err := want.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if err := checkSchema(text); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
	packed, err := want.Gzip()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range [][]byte{text, packed, append([]byte("\ufeff"), text...), append(text, " \n"...)} {
		if got, err := tlsrpt.Read(file); err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%v\n%s", err, cmp.Diff(want, got))
		}
	}
}

// The schema is not satisfied by everything.
func TestSchemaRejects(t *testing.T) {
	t.Parallel()
	text, err := sample().JSON()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range [][2]string{{`"Acme"`, `""`}, {"T00:00:00Z", ""}, {"starttls-not", "starttls-un"}, {`"sts"`, `"mta-sts"`},
		{`"policy-domain"`, `"domain"`}, {`"failed-session-count":1`, `"failed-session-count":0`},
		{`"summary"`, `"summaries"`}, {"192.0.2.1", "localhost"}, {`["*.example.com","mx.example.net"]`, `"*.example.com"`}} {
		if !strings.Contains(string(text), c[0]) {
			t.Errorf("the report does not contain %s", c[0])
		}
		if checkSchema([]byte(strings.ReplaceAll(string(text), c[0], c[1]))) == nil {
			t.Errorf("a report with %s instead of %s satisfies the schema", c[1], c[0])
		}
	}
}

const lenient = `{"report-id":"x","date-range":{"start-datetime":"2026-12-01T00:00:00Z",
	"end-datetime":"2026-12-01T23:59:59Z"},"policies":[{"policy":{"policy-type":"sts","policy-domain":"a.example",
	"mx-host":["mx.a.example"],"policy-string":["mode: none"]},"summary":{"total-successful-session-count":7,
	"total-failure-session-count":2},"failure-details":[{"result-type":"validation-failure",
	"failed-session-count":2}]}]}`

// The reader accepts forms that differ from the RFC.
func TestReadLenient(t *testing.T) {
	t.Parallel()
	want, err := tlsrpt.Read([]byte(lenient))
	if err != nil {
		t.Fatal(err)
	}
	if p := want.Policies[0]; p.Successful != 7 || p.Failed != 2 || p.Policy.MX[0] != "mx.a.example" ||
		p.Failures[0].Sessions != 2 {
		t.Errorf("%+v", p)
	}
	for _, c := range [][2]string{
		{`["mx.a.example"]`, `"mx.a.example"`}, {`["mode: none"]`, `"mode: none"`},
		{"2026-12-01T00:00:00Z", "2026-12-01T00:00:00"}, {"2026-12-01T00:00:00Z", "2026-12-01"},
		{"2026-12-01T23:59:59Z", "2026-12-01 23:59:59"}, {"2026-12-01T23:59:59Z", "2026-12-02T01:59:59+02:00"},
		{"2026-12-01T23:59:59Z", "2026-12-01T23:59:59.999Z"}, {"2026-12-01T23:59:59Z", "2026-12-01T23:59:59+0000"},
		{`:7`, `:"7"`}, {`:7`, `:7.0`}, {`{"report-id"`, `{"x":[{"y":[[]]}],"report-id"`},
		{`"report-id":"x"`, `"report-id":"y","report-id":"x"`}, {`"report-id":"x"`, `"contact-info":null,"report-id":"x"`},
		{`"policies":[`, `"policies":[null,`}, {`"failure-details":[`, `"failure-details":[[],`},
		{`["mx.a.example"]`, `["mx.a.example",{}]`}, {`"summary":{`, `"summary":3,"summary":{`},
	} {
		if !strings.Contains(lenient, c[0]) {
			t.Errorf("%s does not occur", c[0])
		}
		got, err := tlsrpt.Read([]byte(strings.Replace(lenient, c[0], c[1], 1)))
		if err != nil || cmp.Diff(want, got) != "" {
			t.Errorf("%s: %v\n%s", c[1], err, cmp.Diff(want, got))
		}
	}
}

func pack(t testing.TB, texts ...string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	for _, text := range texts {
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// hostile returns files that are no reports.
func hostile(t testing.TB) (all [][]byte) {
	add := func(texts ...string) {
		for _, text := range texts {
			all = append(all, []byte(text), pack(t, text))
		}
	}
	for _, c := range [][2]string{
		{`"report-id":"x"`, `"report-id":""`}, {`"report-id":"x"`, `"report-id":["x"]`}, {"2026-12-01T00", "2026-13-01T00"},
		{"2026-12-01T00", "2026-12-03T00"}, {"2026-12-01T00", "0000-12-01T00"}, {"2026-12-01T00", "9999-12-01T00"},
		{`"date-range"`, `"x"`}, {`"policies"`, `"x"`}, {`"policies":[`, `"policies":[],"x":[`}, {":7", ":-7"}, {":7", ":1e300"},
		{":7", `:"NaN"`}, {":7", `:"many"`}, {`"x"`, `"x`}, {`{"report`, `["report`}, {`]}]}`, `]}`}, {`]}]}`, `]}]}{}`},
		{`]}]}`, `]}]},`}, {`:7`, `:07`}, {`:7`, `:`},
	} {
		add(strings.Replace(lenient, c[0], c[1], 1))
	}
	add("", "null", "[]", `""`, "7", "<xml/>", "\x00", "{", `{"`, "\xff\xfe{\x00}\x00", "PK\x03\x04", strings.Repeat("[", 1000))
	for n := range 40 { // cut or changed at random
		r := rand.New(rand.NewPCG(1, uint64(n)))
		all = append(all, []byte(lenient[:1+r.IntN(len(lenient)-1)]))
		packed := pack(t, lenient)
		packed[10+r.IntN(len(packed)-10)] ^= byte(1 + r.IntN(255))
		all = append(all, pack(t, lenient)[:1+r.IntN(len(packed)-1)], packed)
	}
	large := strings.Repeat("x", 1<<20)
	mega := make([]string, 64)
	for i := range mega {
		mega[i] = large
	}
	many := func(head, element, tail string) {
		all = append(all, pack(t, head, strings.Repeat(element+",", 9<<20/(len(element)+1)), element, tail))
	}
	all = append(all, pack(t, append([]string{`{"x":"`}, mega...)...), pack(t, mega...), []byte(strings.Repeat(" ", 10<<20+1)),
		append(pack(t, lenient), make([]byte, 1<<20)...), bytes.Repeat(pack(t, ""), 1<<20/len(pack(t, ""))),
		pack(t, strings.Repeat(`{"x":`, 1<<20)), pack(t, strings.Repeat("[", 9<<20)),
		pack(t, `{"policies":`+strings.Repeat("[", 9<<20)), pack(t, `{"report-id":"x`, strings.Repeat(large, 9)))
	many(`{"policies":[`, "{}", "]}")
	many(`{"policies":[{"policy":{"mx-host":[`, `""`, `]}}]}`)
	many(`{"policies":[{"failure-details":[`, `{}`, `]}]}`)
	many(`{"policies":[{"failure-details":[`, `{"failed-session-count":1}`, `]}]}`)
	many(`{`, `"policies":[{}]`, `}`)
	many(`{"x":[`, `0`, `]}`)
	many(`{`, `"x":0`, `}`)
	return all
}

// Hostile files are refused within bounded memory. The test would exceed the time limit of go test if one took long.
func TestReadHostile(t *testing.T) {
	all := hostile(t)
	if len(all) < 200 {
		t.Errorf("only %d files", len(all))
	}
	for i, file := range all {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r, err := tlsrpt.Read(file)
		runtime.ReadMemStats(&after)
		if err == nil && !harmless(file) {
			t.Errorf("file %d is a report: %.300q is %+v", i, file, r)
		}
		// The decoder doubles its buffer until it holds the largest string, so that the total is 2 to 4 times the
		// limit.
		if used := after.TotalAlloc - before.TotalAlloc; used > 6*tlsrpt.MaxSize {
			t.Errorf("file %d of %d bytes needs %d MB: %.100q", i, len(file), used>>20, file)
		}
	}
}

// harmless reports whether a changed file still is the report, as after a change in the header of gzip.
func harmless(file []byte) bool {
	got, err := tlsrpt.Read(file)
	want, _ := tlsrpt.Read([]byte(lenient))
	return err == nil && cmp.Equal(got, want)
}

func TestFileName(t *testing.T) {
	t.Parallel()
	r := sample()
	for id, want := range map[string]string{
		"":      "acme.example!example.com!1796083200!1796169599.json.gz",
		"1":     "acme.example!example.com!1796083200!1796169599!1.json.gz",
		"a/b!c": "acme.example!example.com!1796083200!1796169599!a_b_c.json.gz",
	} {
		if got := tlsrpt.FileName("acme.example", "example.com", r.Begin, r.End, id); got != want {
			t.Errorf("%q: %s, want %s", id, got, want)
		}
	}
	if got := tlsrpt.Subject("acme.example", "example.com", "1@acme.example"); got !=
		"Report Domain: example.com Submitter: acme.example Report-ID: <1@acme.example>" {
		t.Error(got)
	}
}

func FuzzReport(f *testing.F) {
	text, err := sample().JSON()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(lenient))
	f.Add(pack(f, lenient))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := tlsrpt.Read(file)
		if err != nil {
			return
		}
		packed, err := r.Gzip()
		if err != nil {
			t.Fatal(err)
		}
		again, err := tlsrpt.Read(packed)
		if err != nil {
			t.Fatal(fmt.Errorf("the report that was read cannot be read again: %w", err))
		}
		if r.Policies == nil || cmp.Diff(r, again, cmp.Transformer("", emptied)) != "" {
			t.Error(cmp.Diff(r, again))
		}
	})
}

// emptied omits lists without elements, which the writer omits.
func emptied(p tlsrpt.PolicyReport) (x struct {
	Policy             tlsrpt.Policy
	Successful, Failed int64
	Failures           string
}) {
	x.Policy, x.Successful, x.Failed, x.Failures = p.Policy, p.Successful, p.Failed, fmt.Sprint(p.Failures)
	return x
}
