package domainreports_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domainreports"
	"github.com/postrider/postrider/internal/sending/domains"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// Sources of the test's mail.
const (
	ownSource      = "198.51.100.10" // in the SPF record of this installation
	googleSource   = "203.0.113.7"   // in an include of the domains
	zendeskSource  = "203.0.113.80"
	unlistedSource = "192.0.2.50"
	forwardSource  = "192.0.2.60"
	foreignSource  = "192.0.2.66"
)

// fixture is a node that receives reports. The team Acme has unverified domains.
type fixture struct {
	*testnode.Node
	dns     resolve.Fake
	service *receiving.Service
	team    teams.Actor
	other   teams.Actor
	key     *dkim.Key
	now     time.Time
}

func newFixture(t testing.TB, d *db.DB) *fixture {
	t.Helper()
	key, err := dkim.GenerateEd25519()
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{key: key, dns: resolve.Fake{TXTRecords: map[string][]string{
		"spf.postrider.test":    {"v=spf1 ip4:198.51.100.0/28 -all"},
		"_spf.google.com":       {"v=spf1 include:_netblocks.google.com ~all"},
		"_netblocks.google.com": {"v=spf1 ip4:203.0.113.0/27 ~all"},
		"mail.zendesk.com":      {"v=spf1 ip4:203.0.113.80/29 -all"},
	}, AddrRecords: map[string][]netip.Addr{}}}
	f.Node = testnode.Bare(t, d, testnode.Options{DNS: f.dns})
	f.service = testnode.Must(receiving.New(receiving.Config{Hostname: "mx.postrider.test",
		Hosts: []string{"mx.postrider.test", "inbound.postrider.test"}, PublicURL: testnode.PublicURL},
		receiving.Deps{DB: d, Quotas: f.Quotas, Recorder: f.Recorder, Blobs: f.Blobs, Keys: f.Keys, Domains: f.Domains,
			Reports: f.Reports, Emails: f.Emails, Teams: f.Teams, Log: f.Log,
			Auth: authres.New("mx.postrider.test", resolve.NetForm{Resolver: f.dns})}))
	f.now = f.DB.Now().UTC()
	return f
}

func (f *fixture) today() time.Time { return f.now.Truncate(24 * time.Hour) }

// teamsOf creates the two teams.
func (f *fixture) teamsOf() {
	f.team, _ = f.Team("Acme")
	f.other, _ = f.Team("Other")
}

func each(t *testing.T, run func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.teamsOf()
		run(t, f)
	})
}

// domain adds an unverified domain whose SPF record includes two services.
func (f *fixture) domain(name string) (*domains.Domain, string) {
	f.T.Helper()
	f.dns.TXTRecords[name] = []string{"v=spf1 include:_spf.google.com include:mail.zendesk.com -all"}
	d, err := f.Domains.Create(context.Background(), f.team.TeamID, domains.NewDomain{Name: name})
	f.Must(err)
	address, err := f.Reports.Address(context.Background(), &d)
	f.Must(err)
	return &d, address
}

// reporter publishes the records of a reporter.
func (f *fixture) reporter(name string) {
	f.dns.TXTRecords["s1._domainkey."+name] = []string{f.key.Record()}
	f.dns.TXTRecords["_dmarc."+name] = []string{"v=DMARC1; p=reject"}
}

// mail is a message with a report.
type mail struct {
	from, subject  string // from is the reporter's domain
	header         string // further fields, each with a line end
	name, kind     string // of the file
	file           []byte
	isBody, signed bool // isBody means that the file is the body
}

func (f *fixture) compose(m *mail) []byte {
	f.T.Helper()
	var b bytes.Buffer
	if m.kind == "" {
		m.kind = "application/octet-stream"
	}
	fmt.Fprintf(&b, "From: reports@%s\r\nTo: you@example.com\r\nSubject: %s\r\nDate: %s\r\n"+
		"Message-ID: <%d@%[1]s>\r\n%[5]sMIME-Version: 1.0\r\n", m.from, m.subject, f.now.Format(time.RFC1123Z), len(m.file), m.header)
	part := func() {
		fmt.Fprintf(&b, "Content-Type: %s; name=%q\r\nContent-Disposition: attachment; filename=%[2]q\r\n"+
			"Content-Transfer-Encoding: base64\r\n\r\n", m.kind, m.name)
		text := base64.StdEncoding.EncodeToString(m.file)
		for len(text) > 76 {
			b.WriteString(text[:76] + "\r\n")
			text = text[76:]
		}
		b.WriteString(text + "\r\n")
	}
	if m.isBody {
		part()
	} else {
		b.WriteString("Content-Type: multipart/mixed; boundary=xx\r\n\r\n--xx\r\nContent-Type: text/plain\r\n\r\n" +
			"A report.\r\n--xx\r\n")
		part()
		b.WriteString("--xx--\r\n")
	}
	if !m.signed {
		return b.Bytes()
	}
	signature, err := dkim.Sign(b.Bytes(), f.now, dkim.Signer{Domain: m.from, Selector: "s1", Key: f.key})
	f.Must(err)
	return append(signature, b.Bytes()...)
}

// listen serves the receiving service on a local port until the test ends.
func (f *fixture) listen(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		c := smtpserver.Config{Hostname: "mx.postrider.test", MaxCommands: 100_000}
		if err := smtpserver.New(c, f.service, slog.New(slog.DiscardHandler)).Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return l.Addr().String()
}

// sender is a connection to the receiving service.
func dial(t testing.TB, addr string) *smtp.Client {
	t.Helper()
	c, err := smtp.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// deliver sends a message and returns the code of the reply.
func deliver(c *smtp.Client, to string, raw []byte) int {
	err := c.SendMail("bounces@reporter.example", []string{to}, bytes.NewReader(raw))
	if e, ok := errors.AsType[*smtp.SMTPError](err); ok {
		c.Reset()
		return e.Code
	}
	if err != nil {
		return 0
	}
	return 250
}

// accept sends a message that must be accepted.
func accept(t testing.TB, c *smtp.Client, to string, raw []byte) {
	t.Helper()
	if code := deliver(c, to, raw); code != 250 {
		t.Fatalf("the reply is %d\n%.500s", code, raw)
	}
}

// list returns the reports about a domain, the oldest first.
func (f *fixture) list(d *domains.Domain) []domainreports.Report {
	f.T.Helper()
	all, _, err := f.Reports.Reports(context.Background(), d, page.Page{})
	f.Must(err)
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

func (f *fixture) dmarc(d *domains.Domain, days int) *domainreports.DMARCView {
	f.T.Helper()
	v, err := f.Reports.DMARC(context.Background(), d, f.Reports.LastDays(days))
	f.Must(err)
	return v
}

func (f *fixture) tls(d *domains.Domain) *domainreports.TLSView {
	f.T.Helper()
	v, err := f.Reports.TLS(context.Background(), d, f.Reports.LastDays(20))
	f.Must(err)
	return v
}

// report is a DMARC report in the form of RFC 7489.
type report struct {
	domain, id, org string
	by              string // domain of the reporter
	begin, end      time.Time
	rows            []dmarcrpt.Row
}

// day returns a report about a domain's messages on a day, which is counted back from today.
func (f *fixture) day(domain, id string, back int, rows ...dmarcrpt.Row) report {
	begin := f.today().AddDate(0, 0, -back)
	return report{domain, id, "Reporter", "mail.example", begin, begin.Add(24*time.Hour - time.Second), rows}
}

func (r report) xml() []byte {
	var b strings.Builder
	fmt.Fprintf(&b, `<?xml version="1.0"?><feedback><report_metadata><org_name>%s</org_name><email>dmarc@%s</email>`+
		`<report_id>%s</report_id><date_range><begin>%d</begin><end>%d</end></date_range></report_metadata>`+
		`<policy_published><domain>%s</domain><p>none</p></policy_published>`, r.org, r.by, r.id, r.begin.Unix(), r.end.Unix(),
		r.domain)
	for _, x := range r.rows {
		fmt.Fprintf(&b, `<record><row><source_ip>%s</source_ip><count>%d</count><policy_evaluated><disposition>none`+
			`</disposition><dkim>%s</dkim><spf>%s</spf></policy_evaluated></row><identifiers><header_from>%s</header_from>`+
			`</identifiers><auth_results>`, x.Source, x.Count, passes(x.DKIM), passes(x.SPF), x.HeaderFrom)
		for _, s := range x.Signatures {
			fmt.Fprintf(&b, `<dkim><domain>%s</domain><selector>%s</selector><result>%s</result></dkim>`, s.Domain, s.Selector,
				s.Result)
		}
		for _, s := range x.Paths {
			fmt.Fprintf(&b, `<spf><domain>%s</domain><result>%s</result></spf>`, s.Domain, s.Result)
		}
		b.WriteString(`</auth_results></record>`)
	}
	b.WriteString(`</feedback>`)
	return []byte(b.String())
}

func passes(is bool) string {
	if is {
		return "pass"
	}
	return "fail"
}

// row returns messages from a source. An empty selector means that they are not signed.
func row(domain, source string, n int64, selector string, dkim, spf bool) dmarcrpt.Row {
	path := domain
	if netip.MustParsePrefix("198.51.100.0/28").Contains(netip.MustParseAddr(source)) { // this installation
		path = "send." + strings.TrimPrefix(domain, "news.")
	}
	r := dmarcrpt.Row{Source: netip.MustParseAddr(source), Count: n, Disposition: "none", DKIM: dkim, SPF: spf,
		HeaderFrom: domain, Paths: []dmarcrpt.Result{{Domain: path, Result: passes(spf)}}}
	if selector != "" {
		r.Signatures = []dmarcrpt.Result{{Domain: domain, Selector: selector, Result: passes(dkim)}}
	}
	return r
}

// send sends a signed DMARC report of a reporter.
func (f *fixture) send(c *smtp.Client, to, reporter string, r report) {
	f.T.Helper()
	f.reporter(reporter)
	r.by = reporter
	accept(f.T, c, to, f.compose(&mail{from: reporter, subject: "Report", name: "r.xml", kind: "text/xml", file: r.xml(),
		signed: true}))
}

// Exec runs a statement that changes rows.
func (f *fixture) Exec(text string) {
	f.T.Helper()
	f.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), text)
		return err
	})
}
