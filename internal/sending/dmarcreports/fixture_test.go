package dmarcreports_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/dailyreports/reportstest"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var (
	today = reportstest.Today         // the day of the messages
	later = today.Add(29 * time.Hour) // when all reports are due
)

// delivery is a report that arrived at a target.
type delivery struct {
	to, subject, id, file string
	header                dmarcrpt.Header
	rows                  []dmarcrpt.Row
}

type fixture struct {
	*reportstest.Fixture[delivery]
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{reportstest.New[delivery](t, d)}
	f.Read = f.read
	return f
}

// node returns another node. The changes apply to its configuration.
func (f *fixture) node(changes ...func(*dmarcreports.Config, *dmarcreports.Deps)) *dmarcreports.Service {
	f.Helper()
	c := dmarcreports.Config{From: f.From(), Generator: "Postrider", Now: f.Clock}
	p := dmarcreports.Deps{DB: f.DB, DNS: f.DNS, Mail: f.Mail, Log: f.Logger()}
	for _, change := range changes {
		change(&c, &p)
	}
	s, err := dmarcreports.New(c, p)
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// read reads a report, which a schema that was written from RFC 9990 must accept.
func (f *fixture) read(m reportstest.Email) (got delivery, err error) {
	if m.Kind != "application/gzip" || m.From != "notices@acme.example" || m.AutoSubmitted != "auto-generated" {
		f.Errorf("%s from %s", m.Kind, m.From)
	}
	file := m.Content
	got = delivery{to: m.To, subject: m.Subject, id: m.ID, file: m.File}
	if got.header, err = dmarcrpt.Read(bytes.NewReader(file), int64(len(file)), func(r dmarcrpt.Row) error {
		got.rows = append(got.rows, r)
		return nil
	}); err != nil {
		f.Errorf("our own reader refuses the report: %v", err)
	}
	f.check(file)
	return got, nil
}

// check validates a compressed report.
func (f *fixture) check(file []byte) {
	f.Helper()
	lint, err := exec.LookPath("xmllint")
	if err != nil {
		f.Errorf("%v: run `make deps`, or install Debian's package libxml2-utils", err)
		return
	}
	schema, err := filepath.Abs("../../mail/dmarcrpt/testdata/rfc9990.xsd")
	if err != nil {
		f.Fatal(err)
	}
	text, err := unpack(file)
	if err != nil {
		f.Error(err)
		return
	}
	cmd := exec.Command(lint, "--nonet", "--noout", "--schema", schema, "-")
	cmd.Stdin = bytes.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		f.Errorf("xmllint: %v\n%s\n%s", err, out, text)
	}
}

// publish gives a domain the record with a policy and targets.
func (f *fixture) publish(domain, tags string) {
	f.DNS.TXTRecords["_dmarc."+domain] = []string{"v=DMARC1; " + tags}
}

// facts returns the facts about a message from a domain, whose client has the address source. The record in the DNS
// applies. Messages pass DKIM if the last byte of the address is even.
func (f *fixture) facts(from, source string) *authres.Facts {
	f.Helper()
	d, err := dmarc.NewWalker(f.DNS.TXT).Discover(f.Context(), from)
	if err != nil {
		f.Fatal(err)
	}
	addr := netip.MustParseAddr(source)
	passes := addr.As4()[3]%2 == 0
	x := &authres.Facts{Source: addr, From: from, MailFrom: "bounces." + from, Found: d, DKIM: passes,
		Path: authres.Verdict{Result: "softfail", Domain: "bounces." + from},
		Signatures: []authres.Signature{{Verdict: authres.Verdict{Result: "fail", Domain: "other.example"}, Selector: "s"},
			{Verdict: authres.Verdict{Result: "permerror", Domain: "odd.example"}, Selector: "a\x00b"}}}
	if passes {
		x.Signatures = append(x.Signatures, authres.Signature{Verdict: authres.Verdict{Result: "pass", Domain: from},
			Selector: "k1"})
	}
	return x
}

// fill counts as many messages as a day needs for reports.
func fill(s *dmarcreports.Service) {
	for range 100 {
		s.Count(nil)
	}
}

// sums describes the rows of a report.
func sums(d delivery) string {
	var all []string
	for _, r := range d.rows {
		all = append(all, fmt.Sprintf("%s %d %s %v %v", r.Source, r.Count, r.Disposition, r.DKIM, r.SPF))
	}
	return strings.Join(all, "\n")
}
