package tlsreports_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	gomessage "github.com/emersion/go-message"
	"github.com/google/jsonschema-go/jsonschema"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/tlsreports"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// today is the day of the sessions.
var today = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// delivery is a report that arrived at a target.
type delivery struct {
	to     string // a URI
	id     string // of the email
	report *tlsrpt.Report
}

// fixture has nodes with one database, a DNS, a web server, and mailboxes.
type fixture struct {
	*testing.T
	d   *db.DB
	dns resolve.Fake
	web *httptest.Server
	ca  *smtptest.CA
	log *bytes.Buffer

	mu       sync.Mutex
	now      time.Time
	all      []delivery
	onMail   func(to string) error // called before an email arrives; an error refuses it
	statuses map[string]int        // of the web server, by path
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{T: t, d: d, now: today.Add(12 * time.Hour), ca: smtptest.NewCA(t), log: &bytes.Buffer{},
		dns: resolve.Fake{TXTRecords: map[string][]string{}, AddrRecords: map[string][]netip.Addr{
			"reports.example": {netip.MustParseAddr("127.0.0.1")}}}, statuses: map[string]int{}}
	f.web = httptest.NewUnstartedServer(http.HandlerFunc(f.receive))
	f.web.TLS = f.ca.ServerTLS("reports.example")
	f.web.StartTLS()
	t.Cleanup(f.web.Close)
	return f
}

// publish makes a domain ask for reports.
func (f *fixture) publish(domain, rua string) {
	f.dns.TXTRecords["_smtp._tls."+domain] = []string{"v=TLSRPTv1; rua=" + rua}
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
func (f *fixture) node(changes ...func(*tlsreports.Config, *tlsreports.Deps)) *tlsreports.Service {
	f.Helper()
	from, err := message.ParseFrom("Postrider <notices@acme.example>")
	if err != nil {
		f.Fatal(err)
	}
	_, port, err := net.SplitHostPort(f.web.Listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	c := tlsreports.Config{From: from, RootCAs: f.ca.Pool(), Now: f.clock}
	if c.Port, err = strconv.Atoi(port); err != nil {
		f.Fatal(err)
	}
	p := tlsreports.Deps{DB: f.d, DNS: f.dns, Mail: f.mail, Log: slog.New(slog.NewTextHandler(f.log, nil)),
		Guard: netguard.New(netguard.Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})}
	for _, change := range changes {
		change(&c, &p)
	}
	s, err := tlsreports.New(c, p)
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// mail receives an email.
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
	if kind, _, err := part.Header.ContentType(); err != nil || kind != "application/tlsrpt+gzip" ||
		from != "notices@acme.example" {
		f.Errorf("%s from %s, %v", kind, from, err)
	}
	file, err := io.ReadAll(part.Body)
	if err != nil {
		return err
	}
	return f.arrive("mailto:"+to, e.Header.Get("Message-ID"), file)
}

// receive is the web server.
func (f *fixture) receive(w http.ResponseWriter, r *http.Request) {
	file, err := io.ReadAll(r.Body)
	f.mu.Lock()
	status := f.statuses[r.URL.Path]
	f.mu.Unlock()
	if status != 0 {
		w.Header().Set("Location", "/other")
		w.WriteHeader(status)
		if status > 299 {
			return
		}
	}
	if kind := r.Header.Get("Content-Type"); err != nil || r.Method != "POST" || kind != "application/tlsrpt+gzip" {
		f.Errorf("%s %s: %s, %v", r.Method, r.URL, kind, err)
	}
	if err := f.arrive("https://reports.example"+r.URL.Path, "", file); err != nil {
		f.Error(err)
	}
}

func (f *fixture) arrive(to, messageID string, file []byte) error {
	r, err := tlsrpt.Read(file)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, delivery{to, messageID, r})
	return nil
}

// take returns the reports that arrived since the last call.
func (f *fixture) take() []delivery {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.all
	f.all = nil
	return all
}

func (f *fixture) flush(s *tlsreports.Service) {
	f.Helper()
	if err := s.Flush(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// send sends what is due and returns what arrives.
func (f *fixture) send(s *tlsreports.Service) []delivery {
	f.Helper()
	if err := s.Send(f.Context()); err != nil {
		f.Fatal(err)
	}
	return f.take()
}

// rows returns the number of rows of all tables.
func (f *fixture) rows() (n int) {
	f.Helper()
	for _, table := range []string{"tls_reports", "tls_report_policies", "tls_report_sessions"} {
		var rows int
		if err := f.d.QueryRow(f.Context(), `SELECT COUNT(*) FROM `+table).Scan(&rows); err != nil {
			f.Fatal(err)
		}
		n += rows
	}
	return n
}

// session is a session without a policy.
func session(domain string) tlsreports.Session {
	return tlsreports.Session{Domain: domain, Policy: tlsrpt.Policy{Type: tlsrpt.NoPolicy}, Host: "mx." + domain,
		Address: netip.MustParseAddr("192.0.2.1")}
}

// checkSchema checks a report against the facts of RFC 8460 section 4.4.
func checkSchema(t *testing.T, r *tlsrpt.Report) {
	t.Helper()
	text, err := os.ReadFile("../../mail/tlsrpt/testdata/rfc8460.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema jsonschema.Schema
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	body, err := r.JSON()
	if err = errors.Join(err, json.Unmarshal(body, &value)); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(value); err != nil {
		t.Errorf("%v\n%s", err, body)
	}
}
