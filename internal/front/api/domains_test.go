package api

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// zone is a fake DNS resolver whose records a test can change.
type zone struct {
	mu sync.Mutex
	resolve.Fake
}

func newZone() *zone {
	return &zone{Fake: resolve.Fake{MXRecords: map[string][]resolve.MX{}, TXTRecords: map[string][]string{},
		CNAMERecords: map[string]string{}}}
}

func (z *zone) MX(ctx context.Context, name string) ([]resolve.MX, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.Fake.MX(ctx, name)
}

func (z *zone) TXT(ctx context.Context, name string) ([]string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.Fake.TXT(ctx, name)
}

func (z *zone) CNAME(ctx context.Context, name string) (string, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.Fake.CNAME(ctx, name)
}

// pointMX points the MX record of a name to one of this installation's hosts. Return path hosts have such MX records,
// as do abandoned domains of former customers.
func (z *zone) pointMX(name, host string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.MXRecords[name] = []resolve.MX{{Host: host, Pref: 10}}
}

// install adds a domain's DNS records to the zone, as the domain's owner would.
func (z *zone) install(root string, d shownDomain) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for _, r := range d.Records {
		name := r.Name
		if !strings.HasSuffix(name, root) {
			name += "." + root
		}
		switch r.Type {
		case "MX":
			z.MXRecords[name] = []resolve.MX{{Host: r.Value, Pref: uint16(r.Priority)}}
		case "TXT":
			z.TXTRecords[name] = append(z.TXTRecords[name], r.Value)
		case "CNAME":
			z.CNAMERecords[name] = r.Value
		}
	}
}

// shownDomain holds the response fields that these tests read.
type shownDomain struct {
	ID      string       `json:"id"`
	Name    string       `json:"name"`
	Status  string       `json:"status"`
	Records []recordWire `json:"records"`
}

// call sends a request with a key and returns the status code and the response.
func (f *fixture) call(t *testing.T, key, request, body string) (int, shownDomain, string) {
	t.Helper()
	w := f.do(t, request+"\nAuthorization: "+key+"\n\n"+body)
	var d shownDomain
	if w.Code < 300 {
		if err := json.Unmarshal(w.Body.Bytes(), &d); err != nil {
			t.Fatalf("%s: %v in %s", request, err, w.Body)
		}
	}
	return w.Code, d, w.Body.String()
}

// add adds a domain and fails the test if it is refused.
func (f *fixture) add(t *testing.T, key, body string) shownDomain {
	t.Helper()
	code, d, text := f.call(t, key, "POST /domains", body)
	if code != 201 {
		t.Fatalf("%s adds %s: %d %s", key, body, code, text)
	}
	return d
}

func (d *shownDomain) record(kind, typ string) string {
	for _, r := range d.Records {
		if r.Record == kind && r.Type == typ {
			return r.Status
		}
	}
	return ""
}

// looked requests the verification of a domain and waits until done returns true for the domain.
func (f *fixture) looked(t *testing.T, key, id, what string, done func(shownDomain) bool) shownDomain {
	t.Helper()
	if code, _, text := f.call(t, key, "POST /domains/"+id+"/verify", ""); code != 200 {
		t.Fatalf("verify: %d %s", code, text)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(30 * time.Second); ; {
		_, d, text := f.call(t, key, "GET /domains/"+id, "")
		if done(d) {
			return d
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("not in time: %s: %s", what, text)
		}
	}
}

func isVerified(d shownDomain) bool { return d.Status == "verified" }

// port25 serves the SMTP listener for incoming mail on a local port until the test ends.
func (f *fixture) port25(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	server := smtpserver.New(smtpserver.Config{MaxSize: 1 << 20}, f.Services.Receiving, slog.New(slog.DiscardHandler))
	go func() { ended <- server.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// smtpRcpt sends a message by SMTP and returns the reply code.
func smtpRcpt(t *testing.T, addr, to string) int {
	t.Helper()
	c, err := smtp.Dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.SendMail("ca@issuer.example", []string{to},
		strings.NewReader("Subject: Confirm\r\n\r\nThe code is 12345.\r\n"))
	if refused, ok := err.(*smtp.SMTPError); ok {
		return refused.Code
	} else if err != nil {
		t.Fatal(err)
	}
	return 250
}

// received returns the number of emails received by the team that owns the given API key.
func (f *fixture) received(t *testing.T, key string) int {
	t.Helper()
	w := f.do(t, "GET /emails/receiving\nAuthorization: "+key)
	var list struct{ Data []json.RawMessage }
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return len(list.Data)
}

const onlyReceiving = `{"name":"%s","capabilities":{"sending":"disabled","receiving":"enabled"}}`

// An MX record that points to this installation does not prove that a team owns the domain. Return path hosts and
// abandoned domains also have such MX records. Only the DNS record with the team's own key proves ownership.
func TestMailIsNotHijacked(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		f := newFixtureOn(t, d, Options{}, dns, "")
		addr := f.port25(t)

		// The other team adds the return path host as a domain before the owner adds the parent domain.
		stolen := f.add(t, "other", fmt.Sprintf(onlyReceiving, "send.acme.example"))
		left := f.add(t, "other", fmt.Sprintf(onlyReceiving, "left.example"))
		both := f.add(t, "other", `{"name":"gone.example","capabilities":{"receiving":"enabled"}}`)
		acme := f.add(t, "full", `{"name":"acme.example"}`)
		dns.install("acme.example", acme)
		f.looked(t, "full", acme.ID, "the owner's domain is verified", isVerified)
		dns.pointMX("left.example", "inbound.postrider.test")
		dns.pointMX("send.acme.example", "inbound.postrider.test")
		dns.pointMX("gone.example", "inbound.postrider.test")
		dns.pointMX("send.gone.example", "bounces.postrider.test")
		dns.install("gone.example", shownDomain{Records: []recordWire{{Name: "send", Type: "TXT",
			Value: "v=spf1 include:spf.postrider.test ~all"}}})
		for _, taken := range []shownDomain{stolen, left, both} {
			after := f.looked(t, "other", taken.ID, "the MX record is found", func(d shownDomain) bool {
				return d.record("Receiving", "MX") == "verified" && d.record("DKIM", "TXT") != "not_started"
			})
			if after.Status != "pending" || after.record("DKIM", "TXT") != "pending" {
				t.Errorf("%s is %s without proof: %+v", taken.Name, after.Status, after.Records)
			}
			if code := smtpRcpt(t, addr, "admin@"+taken.Name); code != 550 {
				t.Errorf("mail for admin@%s: %d", taken.Name, code)
			}
		}
		if n := f.received(t, "other"); n != 0 {
			t.Errorf("the other team reads %d emails of domains that are not its own", n)
		}

		// If receiving is enabled later, the same proof of ownership is required before mail is accepted.
		own := f.add(t, "full", fmt.Sprintf(onlyReceiving, "in.acme.example"))
		dns.install("acme.example", own)
		f.looked(t, "full", own.ID, "a domain that only receives is verified", isVerified)
		if code, _, text := f.call(t, "full", "PATCH /domains/"+acme.ID,
			`{"capabilities":{"receiving":"enabled"}}`); code != 200 {
			t.Fatal(text)
		}
		if code := smtpRcpt(t, addr, "admin@acme.example"); code != 550 {
			t.Errorf("mail comes in before the MX record is found: %d", code)
		}
		dns.pointMX("acme.example", "inbound.postrider.test")
		f.looked(t, "full", acme.ID, "receiving is verified too", isVerified)
		for _, to := range []string{"admin@in.acme.example", "admin@acme.example"} {
			if code := smtpRcpt(t, addr, to); code != 250 {
				t.Errorf("mail for %s: %d", to, code)
			}
		}
		if n := f.received(t, "full"); n != 2 {
			t.Errorf("%d emails received", n)
		}
	})
}

// A team cannot add host names under another team's domain, or the operator's host names, in any spelling.
func TestNamesOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		f := newFixtureOn(t, d, Options{}, dns, "")
		squatted := f.add(t, "other", fmt.Sprintf(onlyReceiving, "send.acme.example"))
		acme := ""
		for name, body := range map[string]string{
			"acme.example":              `{"name":"acme.example","tracking_subdomain":"links"}`,
			"xn--mnchen-3ya.example":    `{"name":"münchen.example"}`,
			"in.postrider-user.example": fmt.Sprintf(onlyReceiving, "in.postrider-user.example"),
		} {
			own := f.add(t, "full", body) // succeeds even though the other team has already added the return path host
			if name == "acme.example" {
				acme = own.ID
			}
			dns.install(name[strings.LastIndex(name[:strings.LastIndexByte(name, '.')], ".")+1:], own)
			f.looked(t, "full", own.ID, name+" is verified", func(d shownDomain) bool {
				return isVerified(d) && (len(d.Records) < 5 || d.record("Tracking", "CNAME") == "verified")
			})
		}
		later := f.add(t, "other", `{"name":"postrider-user.example"}`)
		dns.install("acme.example", squatted)
		dns.pointMX("send.acme.example", "bounces.postrider.test")
		f.looked(t, "other", squatted.ID, "the squatter was looked at",
			func(d shownDomain) bool { return d.Status == "pending" })

		for _, path := range []string{"/domains", "/domains/claim"} {
			for _, name := range []string{"SEND.Acme.Example.", "below.send.acme.example", "links.acme.example",
				"a.links.acme.example", "send.münchen.example", "send.MÜNCHEN.example.", "send.xn--mnchen-3ya.example",
				"send。münchen。example", "x.send.XN--MNCHEN-3YA.example"} {
				f.refused(t, "POST "+path, `{"name":"`+name+`"}`, 403, "of another team's domain")
			}
			for _, name := range []string{"mx.postrider.test", "MX.Postrider.test.", "api.postrider.test",
				"bounces.postrider.test", "inbound.postrider.test", "links.postrider.test", "inbox.postrider.test",
				"team.inbox.postrider.test", "a.b.inbox.postrider.test", "send.resend.dev"} {
				f.refused(t, "POST "+path, `{"name":"`+name+`"}`, 422, "belongs to this service")
			}
		}
		for _, c := range []struct {
			request, body string
			code          int
			words         string
		}{
			{"POST /domains", `{"name":"postrider.test","custom_return_path":"Bounces"}`, 422, "`custom_return_path`"},
			{"POST /domains", `{"name":"postrider.test","custom_return_path":"inbox"}`, 422, "`custom_return_path`"},
			{"POST /domains", `{"name":"postrider.test","tracking_subdomain":"LINKS"}`, 422, "`tracking_subdomain`"},
			{"PATCH /domains/" + later.ID, `{"tracking_subdomain":"in"}`, 403, "`tracking_subdomain`"},
			{"PATCH /domains/" + squatted.ID, `{"capabilities":{"sending":"enabled"}}`, 403, "send.acme.example"},
		} {
			f.refused(t, c.request, c.body, c.code, c.words)
		}
		if code, _, text := f.call(t, "other", "DELETE /domains/"+later.ID, ""); code != 200 {
			t.Fatal(text)
		}
		for _, field := range []string{"custom_return_path", "tracking_subdomain"} {
			f.refused(t, "POST /domains", `{"name":"postrider-user.example","`+field+`":"in"}`, 403, "`"+field+"`")
		}

		// Another team can add the parent domain of a team's domain, and subdomains that the owner does not use as hosts. A
		// team can add a host under its own domain as a separate domain.
		f.add(t, "other", `{"name":"mail.acme.example"}`)
		f.add(t, "other", `{"name":"postrider-user.example"}`)
		f.add(t, "full", `{"name":"links.acme.example"}`)

		// After a team has deleted its domain, other teams can add the name.
		if code, _, text := f.call(t, "full", "DELETE /domains/"+acme, ""); code != 200 {
			t.Fatal(text)
		}
		f.add(t, "other", `{"name":"a.links.acme.example"}`)
	})
}

// refused sends a request from the other team and checks that it is refused with the given reason.
func (f *fixture) refused(t *testing.T, request, body string, code int, words string) {
	t.Helper()
	got, _, text := f.call(t, "other", request, body)
	if got != code || !strings.Contains(text, words) || !strings.Contains(text, "validation_error") {
		t.Errorf("%s %s: %d %s, want %d with %q", request, body, got, text, code, words)
	}
}

// Generating a DKIM key takes 0.1 s of CPU time. No key is generated for requests that are refused or that return an
// existing domain.
func TestNoKeysAreMadeForWhatIsRefused(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		var made atomic.Int32
		f.Services.Domains.GenerateRSA = func() (*dkim.Key, error) {
			made.Add(1)
			return dkim.GenerateRSA()
		}
		f.add(t, "full", `{"name":"acme.example"}`)
		f.verified("acme.example")
		if code, _, text := f.call(t, "other", "POST /domains/claim", `{"name":"acme.example"}`); code != 201 {
			t.Fatal(text)
		}
		if n := made.Load(); n != 2 {
			t.Fatalf("%d keys for a domain and a claim", n)
		}
		for _, c := range []struct {
			path, body string
			code       int
		}{
			{"/domains", `{"name":"acme.example"}`, 403},
			{"/domains", `{"name":"Acme.Example."}`, 403},
			{"/domains", `{"name":"send.acme.example"}`, 403},
			{"/domains", `{"name":"mx.postrider.test"}`, 422},
			{"/domains", `{"name":"new.example","region":"mars-1"}`, 422},
			{"/domains", `{"name":"new.example","tracking_subdomain":"-"}`, 422},
			{"/domains", `{"name":"new.example","capabilities":{"sending":"disabled"}}`, 422},
			{"/domains/claim", `{"name":"nobodys.example"}`, 404},
			{"/domains/claim", `{"name":"send.acme.example"}`, 403},
			{"/domains/claim", `{"name":"acme.example"}`, 200},
		} {
			if code, _, text := f.call(t, "other", "POST "+c.path, c.body); code != c.code {
				t.Errorf("%s %s: %d %s", c.path, c.body, code, text)
			}
		}
		if code, _, text := f.call(t, "full", "POST /domains/claim", `{"name":"acme.example"}`); code != 403 {
			t.Errorf("a claim on one's own: %d %s", code, text)
		}
		if n := made.Load(); n != 2 {
			t.Errorf("%d keys were made for what was refused", n-2)
		}
	})
}

// With NoAliases, all operations except the aliases are served.
func TestAliasesCanBeTurnedOff(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{NoAliases: true})
		for _, o := range (&API{}).operations() {
			path := pathParam.ReplaceAllString(o.Path, "0190a5e0-0000-7000-8000-000000000000")
			w := f.do(t, o.Method+" "+path)
			if there := w.Code != 405 && !strings.Contains(w.Body.String(), "endpoint does not exist"); there == o.IsAlias() {
				t.Errorf("%s %s: %d, an alias: %v", o.Method, o.Path, w.Code, o.IsAlias())
			}
		}
	})
}
