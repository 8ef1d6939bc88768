package dmarcreports_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	gomessage "github.com/emersion/go-message"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/dmarcrpt"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var (
	today = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC) // the day of the messages
	later = today.Add(29 * time.Hour)                    // when all reports are due
)

// delivery is a report that arrived at a target.
type delivery struct {
	to, subject, id, file string
	header                dmarcrpt.Header
	rows                  []dmarcrpt.Row
}

// fixture has nodes with one database, a DNS and mailboxes.
type fixture struct {
	*testing.T
	d   *db.DB
	dns resolve.Fake
	log *bytes.Buffer

	mu     sync.Mutex
	now    time.Time
	all    []delivery
	onMail func(to string) error // called before an email arrives; an error refuses it
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	return &fixture{T: t, d: d, now: today.Add(12 * time.Hour), log: &bytes.Buffer{},
		dns: resolve.Fake{TXTRecords: map[string][]string{}}}
}

func (f *fixture) at(t time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.now = t
}

func (f *fixture) clock() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

// node returns another node. The changes apply to its configuration.
func (f *fixture) node(changes ...func(*dmarcreports.Config, *dmarcreports.Deps)) *dmarcreports.Service {
	f.Helper()
	from, err := message.ParseFrom("Postrider <notices@acme.example>")
	if err != nil {
		f.Fatal(err)
	}
	c := dmarcreports.Config{From: from, Generator: "Postrider", Now: f.clock}
	p := dmarcreports.Deps{DB: f.d, DNS: f.dns, Mail: f.mail, Log: slog.New(slog.NewTextHandler(f.log, nil))}
	for _, change := range changes {
		change(&c, &p)
	}
	s, err := dmarcreports.New(c, p)
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// mail receives an email with a report, which a schema that was written from RFC 9990 must accept.
func (f *fixture) mail(_ context.Context, from, to string, raw []byte) error {
	f.mu.Lock()
	hook := f.onMail
	f.mu.Unlock()
	if hook != nil {
		if err := hook(to); err != nil {
			return err
		}
	}
	e, err := gomessage.Read(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	parts := e.MultipartReader()
	if _, err := parts.NextPart(); err != nil {
		return err
	}
	part, err := parts.NextPart()
	if err != nil {
		return err
	}
	kind, _, _ := part.Header.ContentType()
	_, disposition, _ := part.Header.ContentDisposition()
	if kind != "application/gzip" || from != "notices@acme.example" || e.Header.Get("Auto-Submitted") != "auto-generated" {
		f.Errorf("%s from %s", kind, from)
	}
	file, err := io.ReadAll(part.Body)
	if err != nil {
		return err
	}
	got := delivery{to: to, subject: e.Header.Get("Subject"), id: e.Header.Get("Message-ID"), file: disposition["filename"]}
	if got.header, err = dmarcrpt.Read(bytes.NewReader(file), int64(len(file)), func(r dmarcrpt.Row) error {
		got.rows = append(got.rows, r)
		return nil
	}); err != nil {
		f.Errorf("our own reader refuses the report: %v", err)
	}
	f.check(file)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, got)
	return nil
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

// take returns the reports that arrived since the last call.
func (f *fixture) take() []delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.all
	f.all = nil
	return all
}

func (f *fixture) flush(s *dmarcreports.Service) {
	f.Helper()
	if err := s.Flush(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// send sends what is due and returns what arrives.
func (f *fixture) send(s *dmarcreports.Service) []delivery {
	f.Helper()
	if err := s.Send(f.Context()); err != nil {
		f.Fatal(err)
	}
	return f.take()
}

// rows returns the number of rows of a table.
func (f *fixture) rows(table string) (n int) {
	f.Helper()
	if err := f.d.QueryRow(f.Context(), `SELECT COUNT(*) FROM `+table).Scan(&n); err != nil {
		f.Fatal(err)
	}
	return n
}

// publish gives a domain the record with a policy and targets.
func (f *fixture) publish(domain, tags string) {
	f.dns.TXTRecords["_dmarc."+domain] = []string{"v=DMARC1; " + tags}
}

// facts returns the facts about a message from a domain, whose client has the address source. The record in the DNS
// applies. Messages pass DKIM if the last byte of the address is even.
func (f *fixture) facts(from, source string) *authres.Facts {
	f.Helper()
	d, err := dmarc.NewWalker(f.dns.TXT).Discover(f.Context(), from)
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
