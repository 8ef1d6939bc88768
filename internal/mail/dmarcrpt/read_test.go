package dmarcrpt_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/dmarcrpt/dmarcrpttest"
)

// same compares reports. IP addresses have no exported fields.
var same = cmp.Options{cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmpopts.EquateEmpty()}

func read(file []byte) (h dmarcrpt.Header, rows []dmarcrpt.Row, err error) {
	h, err = dmarcrpt.Read(bytes.NewReader(file), int64(len(file)), func(r dmarcrpt.Row) error {
		rows = append(rows, r)
		return nil
	})
	return h, rows, err
}

// sums are totals over reports.
type sums struct {
	Reports, Rows, Signatures, Paths, Reasons int
	Messages, Pass, ByDKIM, BySPF, Rejected   int64
	Failed                                    map[string]int64 // messages that fail, by policy domain
}

func (s *sums) add(h *dmarcrpt.Header, rows []dmarcrpt.Row) {
	if s.Failed == nil {
		s.Failed = map[string]int64{}
	}
	s.Reports++
	s.Rows += len(rows)
	for _, r := range rows {
		s.Signatures, s.Paths, s.Reasons = s.Signatures+len(r.Signatures), s.Paths+len(r.Paths), s.Reasons+len(r.Reasons)
		s.Messages += r.Count
		if r.DKIM {
			s.ByDKIM += r.Count
		}
		if r.SPF {
			s.BySPF += r.Count
		}
		if r.DKIM || r.SPF {
			s.Pass += r.Count
		} else {
			s.Failed[h.Policy.Domain] += r.Count
		}
		if r.Disposition == "reject" {
			s.Rejected += r.Count
		}
	}
}

// 2,000 reports in ten dialects are read exactly. The totals are constants, so that a mistake that the generator and
// the reader share does not go unnoticed.
func TestDialects(t *testing.T) {
	t.Parallel()
	const reports = 2000
	random := rand.New(rand.NewPCG(9990, 7489))
	var want, got sums
	for i := range reports {
		m, d := dmarcrpttest.Generate(random, i), dmarcrpttest.Dialects[i%len(dmarcrpttest.Dialects)]
		file := d.File(&m)
		want.add(&m.H, m.Rows)
		h, rows, err := read(file)
		if err != nil {
			t.Fatalf("%d, %s: %v\n%.2000s", i, d.Name, err, file)
		}
		got.add(&h, rows)
		if !reflect.DeepEqual(m.H, h) || !reflect.DeepEqual(m.Rows, rows) {
			t.Fatalf("%d, %s: %s", i, d.Name, cmp.Diff(m.H, h, same)+cmp.Diff(m.Rows, rows, same))
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	var failed int64
	for _, n := range got.Failed {
		failed += n
	}
	exact := sums{Reports: reports, Rows: 20_930, Signatures: 31_376, Paths: 18_840, Reasons: 2_332, Messages: 52_269_186,
		Pass: 46_356_638, ByDKIM: 34_547_847, BySPF: 34_677_736, Rejected: 2_012_032,
		Failed: map[string]int64{"all": 5_912_548}}
	got.Failed = map[string]int64{"all": failed}
	if diff := cmp.Diff(exact, got); diff != "" {
		t.Error(diff)
	}
}

// page returns a report with changes: pairs of an old and a new text.
func page(changes ...string) []byte {
	const text = `<feedback><report_metadata><org_name>R</org_name><email>r@r.example</email><report_id>1</report_id>
<date_range><begin>1767225600</begin><end>1767311999</end></date_range></report_metadata>
<policy_published><domain>a.example</domain><p>reject</p></policy_published>
<record><row><source_ip>192.0.2.1</source_ip><count>5</count><policy_evaluated><disposition>none</disposition>
<dkim>pass</dkim><spf>fail</spf></policy_evaluated></row><identifiers><header_from>a.example</header_from></identifiers>
<auth_results><spf><domain>b.example</domain><result>fail</result></spf></auth_results></record></feedback>`
	out := text
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(out, changes[i]) {
			panic("no " + changes[i])
		}
		out = strings.Replace(out, changes[i], changes[i+1], 1)
	}
	return []byte(out)
}

func TestBadReports(t *testing.T) {
	t.Parallel()
	deep := strings.Repeat("<a>", 40)
	// The errors of files that are something other than a report.
	strangers := []string{"it is empty", "not XML", "begins with white space", "first element", "no element"}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"nothing":            {nil, "it is empty"},
		"text":               {[]byte("Dear postmaster"), "not XML"},
		"white space":        {bytes.Repeat([]byte(" "), 100_000), "begins with white space"},
		"HTML":               {[]byte("<html><body>"), "first element"},
		"only a declaration": {[]byte(`<?xml version="1.0"?>`), "no element"},
		"UTF-16":             {[]byte("\xff\xfe<\x00f\x00"), "not XML"},
		"other namespace":    {page("<feedback", `<feedback xmlns="urn:x"`), "first element"},
		"other charset":      {append([]byte(`<?xml version="1.0" encoding="utf-7"?>`), page()...), "charset"},
		"cut":                {page()[:400], "unexpected EOF"},
		"cut within gzip":    {dmarcrpttest.Gzip(page())[:100], "unexpected EOF"},
		"wrong checksum":     {damaged(dmarcrpttest.Gzip(page())), "checksum"},
		"more behind it":     {append(page(), "<feedback/>"...), "continues after its end"},
		"crossed elements":   {page("</row>", "</record>"), "closed by"},
		"invalid UTF-8":      {page("<org_name>R", "<org_name>\xff"), "UTF-8"},
		"control character":  {page("<org_name>R", "<org_name>\x01"), "illegal character"},

		"document type": {append([]byte("<!DOCTYPE feedback>"), page()...), "document type"},
		"entity": {append([]byte(`<!DOCTYPE f [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>`),
			page("<org_name>R", "<org_name>&b;")...), "document type"},
		"external entity":   {append([]byte(`<!DOCTYPE f SYSTEM "file:///etc/passwd">`), page()...), "document type"},
		"unknown entity":    {page("<org_name>R", "<org_name>&nbsp;"), "invalid character entity"},
		"nested deeply":     {page("<record>", deep+"<record>"), "nested"},
		"nested in a value": {page("<count>5", "<count>"+deep), "nested"},

		"no id":                {page("<report_id>1</report_id>", ""), "no report_id"},
		"empty id":             {page("<report_id>1", "<report_id> "), "no report_id"},
		"long id":              {page("<report_id>1", "<report_id>"+strings.Repeat("1", 1025)), "too long"},
		"two ids":              {page("<report_id>1", "<report_id>2</report_id><report_id>1"), "two values"},
		"two counts":           {page("<count>5", "<count>6</count><count>5"), "two values"},
		"two rows":             {page("</row>", "</row><row></row>"), "row occurs twice"},
		"two policies":         {page("<record>", "<policy_published/><record>"), "policy_published occurs twice"},
		"no period":            {page("<begin>1767225600</begin>", ""), "no date_range"},
		"reversed period":      {page("<begin>1767225600", "<begin>1767312000"), "ends before"},
		"period without time":  {page("<begin>1767225600", "<begin>yesterday"), "whole number"},
		"time too late":        {page("<end>1767311999", "<end>99999999999999"), "whole number"},
		"no domain":            {page("<domain>a.example</domain>", ""), "no domain in policy"},
		"no such domain":       {page("<domain>a.example", "<domain>a b"), "no domain in policy"},
		"no address":           {page("<source_ip>192.0.2.1</source_ip>", ""), "no source_ip"},
		"wrong address":        {page("<source_ip>192.0.2.1", "<source_ip>192.0.2.256"), "not an IP address"},
		"address with a zone":  {page("<source_ip>192.0.2.1", "<source_ip>fe80::1%eth0"), "not an IP address"},
		"no count":             {page("<count>5</count>", ""), "no count"},
		"empty count":          {page("<count>5", "<count>"), "whole number"},
		"negative count":       {page("<count>5", "<count>-5"), "whole number"},
		"count with a sign":    {page("<count>5", "<count>+5"), "whole number"},
		"fraction":             {page("<count>5", "<count>5.0"), "whole number"},
		"power":                {page("<count>5", "<count>5e3"), "whole number"},
		"hexadecimal":          {page("<count>5", "<count>0x5"), "whole number"},
		"other digits":         {page("<count>5", "<count>٥"), "whole number"},
		"huge count":           {page("<count>5", "<count>1000000000001"), "whole number"},
		"overflow":             {page("<count>5", "<count>18446744073709551621"), "whole number"},
		"wrong percentage":     {page("<p>", "<pct>101</pct><p>"), "whole number"},
		"no From":              {page("<header_from>a.example</header_from>", ""), "no domain in header_from"},
		"record without a row": {page("<record>", "<record/><record>"), "no source_ip"},
	} {
		h, _, err := read(c.file)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if diff := cmp.Diff(dmarcrpt.Header{}, h, same); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		is := errors.Is(err, dmarcrpt.ErrNoReport)
		if want := slices.Contains(strangers, c.want); is != want {
			t.Errorf("%s: %v is ErrNoReport: %v", name, err, is)
		}
	}
}

func damaged(file []byte) []byte {
	file[len(file)-5] ^= 1 // within the checksum
	return file
}

// Deviations that are no mistakes, and what is read.
func TestOddReports(t *testing.T) {
	t.Parallel()
	list := func(n int, name, inner string) string {
		var all strings.Builder
		for i := range n {
			fmt.Fprintf(&all, "<%s>"+inner+"</%[1]s>", name, i)
		}
		return all.String()
	}
	for name, c := range map[string]struct {
		file []byte
		want func(h *dmarcrpt.Header, r *dmarcrpt.Row)
	}{
		"nothing":              {page(), nil},
		"the same value twice": {page("<count>5", "<count>5</count><count> 5"), nil},
		"unknown elements":     {page("<row>", "<x><count>7</count></x><row><y/>", "<count>5", "<count>5<z>6</z>"), nil},
		"attributes":           {page("<count>", `<count a="1" b='2'>`), nil},
		"foreign namespace":    {page("<count>5", `<count xmlns="urn:x">6</count><count>5`), nil},
		"unknown prefix":       {page("<count>5", `<x:count>6</x:count><count>5`), nil},
		"elements elsewhere":   {page("<row>", "<count>6</count><row>", "</record>", "</record><count>7</count>"), nil},
		"text elsewhere":       {page("<row>", "text<row>6"), nil},
		"no count of messages": {page("<count>5", "<count>0"), func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.Count = 0 }},
		"mapped address":       {page("<source_ip>", "<source_ip>::ffff:"), nil},
		"IPv6": {page("<source_ip>192.0.2.1", "<source_ip>2001:DB8:0:0::1"), func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
			r.Source = netip.MustParseAddr("2001:db8::1")
		}},
		"unknown words": {page("<p>reject", "<p>block", "<disposition>none", "<disposition>delayed", "<dkim>pass",
			"<dkim>yes", "<result>fail", "<result>broken"), func(h *dmarcrpt.Header, r *dmarcrpt.Row) {
			h.Policy.P, r.Disposition, r.DKIM, r.Paths[0].Result = "", "", false, ""
		}},
		"no evaluation": {page("<dkim>pass</dkim><spf>fail</spf>", ""), func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
			r.DKIM = false
		}},
		"reasons": {page("</policy_evaluated>", "<reason><type>Forwarded</type></reason><reason><type>new</type><comment>"+
			" a\n b</comment></reason><reason/></policy_evaluated>"), func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
			r.Reasons = []dmarcrpt.Reason{{Type: "forwarded"}, {"other", "a b"}, {Type: "other"}}
		}},
		"domains": {page("<header_from>a.example", "<header_from>News.A.EXAMPLE.", "<identifiers>",
			"<identifiers><envelope_from>&lt;x@B.example&gt;</envelope_from><envelope_to>a b</envelope_to>"),
			func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
				r.HeaderFrom, r.EnvelopeFrom = "news.a.example", "b.example"
			}},
		"U-labels": {page("<header_from>a.example", "<header_from>münchen.example"),
			func(_ *dmarcrpt.Header, r *dmarcrpt.Row) { r.HeaderFrom = "münchen.example" }},
		"several results of SPF": {page("<auth_results>", "<auth_results><spf><domain>h.example</domain><scope>helo</scope>"+
			"<result>hardfail</result></spf>"), func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
			r.Paths = []dmarcrpt.Result{{Domain: "h.example", Scope: "helo", Result: "fail"}, r.Paths[0]}
		}},
		"empty percentage": {page("<p>", "<pct/><p>"), nil},
		"percentage": {page("<p>", "<pct>0</pct><p>"), func(h *dmarcrpt.Header, _ *dmarcrpt.Row) {
			h.Policy.Percent = 0
		}},
		"long texts": {page("<org_name>R", "<org_name>x"+strings.Repeat("ü", 2000)),
			func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Org = "x" + strings.Repeat("ü", 511) }},
		"long list": {page("<auth_results>", "<auth_results>"+list(150, "dkim", "<domain>d%d.example</domain>")),
			func(_ *dmarcrpt.Header, r *dmarcrpt.Row) {
				for i := range 99 {
					r.Signatures = append(r.Signatures, dmarcrpt.Result{Domain: fmt.Sprintf("d%d.example", i)})
				}
				r.Signatures = append(r.Signatures, dmarcrpt.Result{Domain: "d149.example"})
			}},
		"many errors": {page("</report_metadata>", list(150, "error", "e%d")+"</report_metadata>"),
			func(h *dmarcrpt.Header, _ *dmarcrpt.Row) {
				for i := range 100 {
					h.Errors = append(h.Errors, fmt.Sprintf("e%d", i))
				}
			}},
		"ISO-8859-1": {append([]byte(`<?xml version="1.0" encoding="ISO-8859-1"?>`),
			page("<org_name>R", "<org_name>\x80\xfc")...),
			func(h *dmarcrpt.Header, _ *dmarcrpt.Row) { h.Org = "€ü" }},
	} {
		wantHeader, wantRows, err := read(page())
		if err != nil {
			t.Fatal(err)
		}
		if c.want != nil {
			c.want(&wantHeader, &wantRows[0])
		}
		h, rows, err := read(c.file)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(wantHeader, h, same) + cmp.Diff(wantRows, rows, same); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	if _, rows, err := read(page("<record>", "<!--<record>", "</record>", "</record>-->")); err != nil || len(rows) != 0 {
		t.Errorf("no records: %v, %v", rows, err)
	}
}

func TestErrorOfTheCaller(t *testing.T) {
	t.Parallel()
	file, stop := page(), errors.New("stop")
	_, err := dmarcrpt.Read(bytes.NewReader(file), int64(len(file)), func(dmarcrpt.Row) error { return stop })
	if !errors.Is(err, stop) {
		t.Error(err)
	}
}
