// Package dmarcrpttest writes DMARC aggregate reports as ten programs and providers do, for tests.
//
// # Invariants
//
// A dialect can write every model. It removes from the model what it cannot express, but never changes the counts of
// rows.
//
// # Failures
//
// The package panics if a file cannot be written, because its callers are tests.
//
// # Out of scope
//
// The package makes no reports with mistakes.
package dmarcrpttest

import (
	"archive/zip"
	"bytes"
	"compress/gzip"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/text/encoding/charmap"

	"github.com/postrider/postrider/internal/mail/dmarcrpt"
)

// Model is a report from which a dialect makes a file.
type Model struct {
	H    dmarcrpt.Header
	Rows []dmarcrpt.Row
}

// Dialect writes reports like a certain program or provider. File removes from the model what the dialect cannot
// express.
type Dialect struct {
	Name string
	File func(m *Model) []byte
}

// Dialects are those of ten programs and providers.
var Dialects = []Dialect{
	{"RFC 9990", func(m *Model) []byte {
		return Gzip(form{namespace: dmarcrpt.Namespace, version: "1.0", modern: true, extensions: true}.xml(m))
	}},
	{"RFC 9990 without a namespace", func(m *Model) []byte {
		return form{version: "1.0", modern: true, lang: true}.xml(m)
	}},
	{"RFC 7489", func(m *Model) []byte { return Gzip(form{version: "1.0"}.xml(m)) }},
	{"ZIP and no version", func(m *Model) []byte { return Zip("report.xml", form{}.xml(m)) }},
	{"schema instance, recipients", func(m *Model) []byte {
		return Gzip(form{version: "1.0", attributes: ` xmlns:xsd="http://www.w3.org/2001/XMLSchema" ` +
			`xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"`}.xml(m))
	}},
	{"Windows-1252, early namespace", func(m *Model) []byte {
		f := form{charset: "windows-1252", namespace: "http://dmarc.org/dmarc-xml/0.1"}
		out, err := charmap.Windows1252.NewEncoder().Bytes(f.xml(m))
		if err != nil {
			panic(err)
		}
		return Zip("a!b!1!2.xml", out)
	}},
	{"prefix at the root only", func(m *Model) []byte {
		return form{prefix: "ns1:", attributes: ` xmlns:ns1="http://dmarc.org/dmarc-xml/0.1" xmlns:xsi="http://www.w3.org/` +
			`2001/XMLSchema-instance" xsi:schemaLocation="http://dmarc.org/dmarc-xml/0.1 dmarc.xsd"`}.xml(m)
	}},
	{"reversed order and CRLF", func(m *Model) []byte {
		f := form{version: "1", reversed: true}
		return Gzip(bytes.ReplaceAll(f.xml(m), []byte("\n"), []byte("\r\n")))
	}},
	{"capitals, old words, byte order mark", func(m *Model) []byte {
		f := form{version: "1.0", capitals: true}
		return Zip("folder/", nil, "folder/REPORT.TXT", append([]byte("\ufeff\n "), f.xml(m)...))
	}},
	{"CDATA, comments, spaces, zeros", func(m *Model) []byte {
		return append(form{version: "1.0", modern: true, padded: true}.xml(m), "\n\x00\x00\n"...)
	}},
}

// form describes the XML of a dialect.
type form struct {
	namespace, prefix, attributes, charset, version      string
	modern, extensions, lang, reversed, capitals, padded bool
}

func (f form) xml(m *Model) []byte {
	charset := f.charset
	if charset == "" {
		charset = "UTF-8"
	}
	if f.namespace != "" {
		f.attributes += fmt.Sprintf(" xmlns=%q", f.namespace)
	}
	if f.extensions {
		f.attributes += ` xmlns:e="urn:example:extension"`
	}
	h, p := &m.H, &m.H.Policy
	if f.modern {
		p.Percent = 100
	} else {
		h.Generator, p.Discovery, p.NP, p.Testing = "", "", "", false
	}
	parts := []string{
		f.value("version", f.version),
		f.group("report_metadata", f.value("org_name", h.Org), f.value("email", h.Email),
			f.note("extra_contact_info", h.Contact), f.value("report_id", h.ID),
			f.group("date_range", f.value("begin", fmt.Sprint(h.Begin.Unix())), f.value("end", fmt.Sprint(h.End.Unix()))),
			f.note("error", strings.Join(h.Errors, "; ")), f.value("generator", h.Generator)),
		f.group("policy_published", f.value("domain", p.Domain), f.value("discovery_method", p.Discovery),
			f.value("adkim", pick(p.StrictDKIM, "s", "r")), f.value("aspf", pick(p.StrictSPF, "s", "r")), f.value("p", p.P),
			f.value("sp", p.SP), f.value("np", p.NP), f.value("fo", p.FailureReports),
			f.value("testing", pick(p.Testing, "y", "")), f.value("pct", pick(f.modern, "", fmt.Sprint(p.Percent)))),
	}
	if f.extensions {
		parts = append(parts, "<extension><e:count>99</e:count><e:record><row><count>5</count></row></e:record>"+
			"</extension>\n")
	}
	for i := range m.Rows {
		parts = append(parts, f.record(&m.Rows[i]))
	}
	return []byte(fmt.Sprintf("<?xml version=\"1.0\" encoding=%q ?>\n", charset) +
		strings.Replace(f.group(f.prefix+"feedback", parts...), ">", f.attributes+">", 1))
}

func (f form) record(r *dmarcrpt.Row) string {
	evaluated := []string{f.word("disposition", r.Disposition), f.word("dkim", pick(r.DKIM, "pass", "fail")),
		f.word("spf", pick(r.SPF, "pass", "fail"))}
	for i := range r.Reasons {
		if reason := &r.Reasons[i]; !f.modern && reason.Type == "policy_test_mode" {
			reason.Type = "sampled_out"
		}
		evaluated = append(evaluated, f.group("reason", f.word("type", r.Reasons[i].Type), f.note("comment",
			r.Reasons[i].Comment)))
	}
	var results []string
	for _, s := range r.Signatures {
		results = append(results, f.group("dkim", f.value("domain", s.Domain), f.value("selector", s.Selector),
			f.word("result", s.Result), f.note("human_result", s.Detail)))
	}
	for _, s := range r.Paths {
		results = append(results, f.group("spf", f.value("domain", s.Domain), f.value("scope", s.Scope),
			f.word("result", s.Result)))
	}
	parts := []string{
		f.group("row", f.value("source_ip", r.Source.String()), f.value("count", fmt.Sprint(r.Count)),
			f.group("policy_evaluated", evaluated...)),
		f.group("identifiers", f.value("envelope_to", r.EnvelopeTo), f.value("envelope_from", r.EnvelopeFrom),
			f.word("header_from", r.HeaderFrom)),
		f.group("auth_results", results...)}
	if f.extensions {
		parts = append(parts, `<e:results count="7"><count>8</count><e:x/></e:results>`+"\n")
	}
	return f.group("record", parts...)
}

func (f form) group(name string, parts ...string) string {
	switch {
	case !f.reversed || name == "auth_results" || name == "policy_evaluated": // lists whose order has a meaning
	case name == "feedback":
		parts = append(slices.Clone(parts[3:]), parts[2], parts[1], parts[0]) // records first
	default:
		slices.Reverse(parts)
	}
	if f.padded {
		parts = append([]string{"<!-- a comment -->\n<?note x?>"}, parts...)
	}
	return "<" + name + ">\n" + strings.Join(parts, "") + "</" + name + ">\n"
}

var escaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "ü", "&#xFC;")

func (f form) value(name, text string) string {
	switch {
	case text == "" && f.capitals:
		return "<" + name + "/>\n"
	case text == "":
		return ""
	case f.padded:
		return fmt.Sprintf("<%s>\n\t<![CDATA[%s]]><!-- - -->%s \n</%[1]s>\n", name, text[:1], escaper.Replace(text[1:]))
	case f.charset != "":
		return fmt.Sprintf("<%s>%s</%[1]s>\n", name, strings.NewReplacer("&", "&amp;", "<", "&#60;").Replace(text))
	}
	return fmt.Sprintf("<%s>%s</%[1]s>\n", name, escaper.Replace(text))
}

func (f form) note(name, text string) string {
	if v := f.value(name, text); f.lang {
		return strings.Replace(v, ">", ` lang="de">`, 1)
	} else {
		return v
	}
}

// word writes a value that some dialects spell otherwise.
func (f form) word(name, text string) string {
	if f.capitals {
		switch {
		case name == "result" && text == "temperror":
			text = "unknown"
		case name == "result" && text == "permerror":
			text = "Error"
		default:
			text = strings.ToUpper(text)
		}
	}
	return f.value(name, text)
}

func pick(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// Gzip returns bytes packed by gzip.
func Gzip(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

// Zip returns an archive with files, which are given as pairs of name and content.
func Zip(files ...any) []byte {
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for i := 0; i < len(files); i += 2 {
		f, err := w.Create(files[i].(string))
		if err != nil {
			panic(err)
		}
		if content, _ := files[i+1].([]byte); content != nil {
			f.Write(content)
		}
	}
	w.Close()
	return out.Bytes()
}

// Generate returns the model of a report that is also valid by RFC 9990.
func Generate(r *rand.Rand, i int) Model {
	one := func(words ...string) string { return words[r.IntN(len(words))] }
	domain := fmt.Sprintf("d%d.example", r.IntN(50))
	begin := time.Unix(1_767_225_600+86_400*int64(r.IntN(300)), 0).UTC()
	m := Model{H: dmarcrpt.Header{Org: one("Reporter", "Empfänger & Söhne <Ltd>", "Büro"),
		Email: "reports@reporter.example", Contact: one("", "https://reporter.example/?a=1&b=2"),
		ID:    fmt.Sprintf("r%d.%d@reporter.example", i, r.IntN(1e6)),
		Begin: begin, End: begin.Add(86_399 * time.Second), Generator: one("", "maker 1.2"),
		Policy: dmarcrpt.Policy{Domain: domain, Discovery: one("", "psl", "treewalk"), P: one("none", "quarantine", "reject"),
			SP: one("", "none", "reject"), NP: one("", "quarantine"), StrictDKIM: r.IntN(2) == 0, StrictSPF: r.IntN(2) == 0,
			Testing: r.IntN(4) == 0, FailureReports: one("", "0", "1:d:s"), Percent: 1 + r.IntN(100)}}}
	if r.IntN(5) == 0 {
		m.H.Errors = []string{"der Tag »sp« ist ungültig"}
	}
	for range 1 + r.IntN(20) {
		m.Rows = append(m.Rows, generateRow(r, one, domain))
	}
	return m
}

func generateRow(r *rand.Rand, one func(...string) string, domain string) dmarcrpt.Row {
	row := dmarcrpt.Row{Source: netip.AddrFrom4([4]byte{192, 0, 2, byte(r.IntN(256))}), Count: 1 + r.Int64N(5_000),
		DKIM: r.IntN(3) > 0, SPF: r.IntN(3) > 0, HeaderFrom: one("", "news.", "a.b.") + domain,
		EnvelopeFrom: one("", "bounce."+domain, "list.example"), EnvelopeTo: one("", "", "receiver.example")}
	if r.IntN(3) == 0 {
		row.Source = netip.MustParseAddr(fmt.Sprintf("2001:db8::%x:%x", r.IntN(65536), 1+r.IntN(65535)))
	}
	row.Disposition = one("none", "pass")
	if !row.DKIM && !row.SPF {
		row.Disposition = one("none", "quarantine", "reject")
		row.Reasons = append(row.Reasons, dmarcrpt.Reason{Type: one("local_policy", "mailing_list", "other",
			"policy_test_mode", "trusted_forwarder"), Comment: one("", "arc=pass as[1].d=list.example", "Größe < 5 & mehr")})
	}
	for range r.IntN(4) {
		row.Signatures = append(row.Signatures, dmarcrpt.Result{Domain: one(domain, "list.example"),
			Selector: one("s1", "2026-a"), Result: one("pass", "fail", "temperror", "permerror", "none"),
			Detail: one("", "Prüfsumme falsch")})
	}
	if r.IntN(10) > 0 {
		row.Paths = []dmarcrpt.Result{{Domain: one(domain, "list.example"), Scope: one("", "mfrom"),
			Result: one("pass", "fail", "softfail", "neutral", "temperror", "permerror")}}
	}
	return row
}
