package tlsreports_test

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/dailyreports/reportstest"
	"github.com/postrider/postrider/internal/sending/tlsreports"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// today is the day of the sessions.
var today = reportstest.Today

// delivery is a report that arrived at a target.
type delivery struct {
	to     string // a URI
	id     string // of the email
	report *tlsrpt.Report
}

// fixture also has a web server for reports.
type fixture struct {
	*reportstest.Fixture[delivery]
	web *httptest.Server
	ca  *smtptest.CA

	mu       sync.Mutex
	statuses map[string]int // of the web server, by path
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{Fixture: reportstest.New[delivery](t, d), ca: smtptest.NewCA(t), statuses: map[string]int{}}
	f.DNS.AddrRecords = map[string][]netip.Addr{"reports.example": {netip.MustParseAddr("127.0.0.1")}}
	f.Read = func(m reportstest.Email) (delivery, error) {
		if m.Kind != "application/tlsrpt+gzip" || m.From != "notices@acme.example" {
			f.Errorf("%s from %s", m.Kind, m.From)
		}
		r, err := tlsrpt.Read(m.Content)
		return delivery{"mailto:" + m.To, m.ID, r}, err
	}
	f.web = httptest.NewUnstartedServer(http.HandlerFunc(f.receive))
	f.web.TLS = f.ca.ServerTLS("reports.example")
	f.web.StartTLS()
	t.Cleanup(f.web.Close)
	return f
}

// publish makes a domain ask for reports.
func (f *fixture) publish(domain, rua string) {
	f.DNS.TXTRecords["_smtp._tls."+domain] = []string{"v=TLSRPTv1; rua=" + rua}
}

// node returns another node. The changes apply to its configuration.
func (f *fixture) node(changes ...func(*tlsreports.Config, *tlsreports.Deps)) *tlsreports.Service {
	f.Helper()
	_, port, err := net.SplitHostPort(f.web.Listener.Addr().String())
	if err != nil {
		f.Fatal(err)
	}
	c := tlsreports.Config{From: f.From(), RootCAs: f.ca.Pool(), Now: f.Clock}
	if c.Port, err = strconv.Atoi(port); err != nil {
		f.Fatal(err)
	}
	p := tlsreports.Deps{DB: f.DB, DNS: f.DNS, Mail: f.Mail, Log: f.Logger(),
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
	report, err := tlsrpt.Read(file)
	if err != nil {
		f.Error(err)
	}
	f.Arrive(delivery{"https://reports.example" + r.URL.Path, "", report})
}

// rows returns the number of rows of all tables.
func (f *fixture) rows() int {
	f.Helper()
	return f.Rows("tls_reports", "tls_report_policies", "tls_report_sessions")
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
