package delivery

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
)

// sessions collects counted sessions.
type sessions struct {
	mu  sync.Mutex
	all []Session
}

func (s *sessions) add(x Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, x)
}

func (s *sessions) take() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// counting makes the delivery service of a fixture count sessions. Call it before run.
func (f *fixture) counting() *sessions {
	s := &sessions{}
	f.service.p.Sessions = s.add
	return s
}

// brokenTLS accepts STARTTLS but fails each handshake.
func brokenTLS(t *testing.T) *tls.Config {
	return &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return nil, net.ErrClosed
	}}
}

// Each kind of success and failure is counted once, with the policy that applied.
func TestSessions(t *testing.T) {
	t.Parallel()
	lab := ststest.New(t)
	right, wrong := lab.CA.ServerTLS("mx.test"), lab.CA.ServerTLS("other.test")
	expired := lab.CA.ServerTLS("mx.test")
	expired.Certificates[0] = lab.CA.Expired("mx.test")
	stranger := smtptest.NewCA(t).ServerTLS("mx.test")
	match, err := dane.For(right.Certificates[0].Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	zero := dane.Record{Usage: dane.UsageEE, Selector: dane.SelectorKey, Matching: dane.MatchingSHA256,
		Data: make([]byte, 32)}
	enforce, testing2 := policy("1", "enforce", "mx.test"), policy("1", "testing", "mx.test")
	sts := func(mode string, mx string) tlsrpt.Policy {
		return tlsrpt.Policy{Type: tlsrpt.STS, MX: []string{mx}, Strings: []string{"version: STSv1", "mode: " + mode, "mx: " + mx,
			"max_age: 86400"}}
	}
	tlsa := func(r dane.Record) tlsrpt.Policy {
		return tlsrpt.Policy{Type: tlsrpt.TLSA, Domain: "mx.test", Strings: []string{r.String()}}
	}
	none := tlsrpt.Policy{Type: tlsrpt.NoPolicy}
	for _, c := range []struct {
		name    string
		site    ststest.Site
		records []dane.Record
		bogus   string
		server  *tls.Config
		policy  tlsrpt.Policy
		result  tlsrpt.Result
		waits   bool // whether the email is not delivered
		further *Session
	}{
		{name: "plain", policy: none, result: tlsrpt.NoSTARTTLS},
		{name: "encrypted", server: stranger, policy: none},
		{name: "broken TLS", server: brokenTLS(t), policy: none, result: tlsrpt.ValidationFailure},
		{name: "enforced", site: enforce, server: right, policy: sts("enforce", "mx.test")},
		{name: "no STARTTLS", site: enforce, policy: sts("enforce", "mx.test"), result: tlsrpt.NoSTARTTLS, waits: true},
		{name: "other name", site: enforce, server: wrong, policy: sts("enforce", "mx.test"), result: tlsrpt.HostMismatch,
			waits: true},
		{name: "expired", site: enforce, server: expired, policy: sts("enforce", "mx.test"),
			result: tlsrpt.CertificateExpired, waits: true},
		{name: "untrusted", site: enforce, server: stranger, policy: sts("enforce", "mx.test"), result: tlsrpt.NotTrusted,
			waits: true},
		{name: "handshake", site: enforce, server: brokenTLS(t), policy: sts("enforce", "mx.test"),
			result: tlsrpt.ValidationFailure, waits: true},
		{name: "not in policy", site: policy("1", "enforce", "mx.other.test"), server: right,
			policy: sts("enforce", "mx.other.test"), result: tlsrpt.ValidationFailure, waits: true},
		{name: "tested", site: testing2, server: right, policy: sts("testing", "mx.test")},
		{name: "tested, other name", site: testing2, server: wrong, policy: sts("testing", "mx.test"),
			result: tlsrpt.HostMismatch},
		{name: "tested, no STARTTLS", site: testing2, policy: sts("testing", "mx.test"), result: tlsrpt.NoSTARTTLS},
		{name: "tested, not in policy", site: policy("1", "testing", "mx.other.test"), server: right,
			policy: sts("testing", "mx.other.test"), result: tlsrpt.ValidationFailure},
		{name: "withdrawn", site: policy("1", "none"), server: wrong, policy: none},
		{name: "not fetched", site: ststest.Site{TXT: ststest.Record("1"), Handler: http.NotFound}, server: right,
			policy: none, further: &Session{Domain: destination, Policy: tlsrpt.Policy{Type: tlsrpt.STS},
				Result: tlsrpt.FetchError}},
		{name: "invalid", site: ststest.Site{TXT: ststest.Record("1"), Policy: "x"}, server: right, policy: none,
			further: &Session{Domain: destination, Policy: tlsrpt.Policy{Type: tlsrpt.STS}, Result: tlsrpt.PolicyInvalid}},
		{name: "DANE", site: enforce, records: []dane.Record{match}, server: right, policy: tlsa(match)},
		{name: "DANE, no STARTTLS", records: []dane.Record{match}, policy: tlsa(match), result: tlsrpt.NoSTARTTLS,
			waits: true},
		{name: "DANE, no match", records: []dane.Record{zero}, server: right, policy: tlsa(zero),
			result: tlsrpt.ValidationFailure, waits: true},
		{name: "DANE, unusable", records: []dane.Record{unusable}, server: wrong, policy: none, further: &Session{
			Domain: destination, Policy: tlsrpt.Policy{Type: tlsrpt.TLSA, Domain: "mx.test"}, Host: "mx.test",
			Result: tlsrpt.TLSAInvalid}},
		{name: "DANE, forged", bogus: "tlsa " + tlsaName, server: right, waits: true,
			policy: tlsrpt.Policy{Type: tlsrpt.TLSA, Domain: "mx.test"}, result: tlsrpt.DNSSECInvalid},
		{name: "forged mail hosts", bogus: "mx " + destination, server: right, waits: true,
			policy: tlsrpt.Policy{Type: tlsrpt.TLSA}, result: tlsrpt.DNSSECInvalid},
	} {
		t.Run(c.name, func(t *testing.T) {
			mx := smtptest.NewServer(t, smtptest.Config{TLS: c.server})
			lab.Set(destination, c.site)
			n := one(mx.Addr)
			if len(c.records) > 0 || c.bogus != "" {
				n = signed(mx.Addr, c.records...)
			}
			if c.bogus != "" {
				n.dns.Bogus = []string{c.bogus}
			}
			cfg := n.config(1)
			cfg.DANE, cfg.RootCAs, cfg.Schedule = true, lab.CA.Pool(), []time.Duration{time.Hour}
			f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).withPolicies(lab)
			counted := f.counting()
			f.run()
			x, want := f.send(address(1)), events.EmailDelivered
			if c.waits {
				want = events.EmailDelayed
			}
			f.wait(x, want)
			expected := []Session{{Domain: destination, Policy: c.policy, Host: "mx.test", Result: c.result}}
			if c.name == "forged mail hosts" {
				expected[0].Host = ""
			}
			if c.further != nil {
				expected = append(expected, *c.further)
			}
			got := counted.take()
			if diff := cmp.Diff(expected, got, cmpopts.IgnoreFields(Session{}, "Address")); diff != "" {
				t.Error(diff)
			}
			barred := c.name == "not in policy" || strings.Contains(c.name, "forged")
			if at := got[0].Address; at.IsValid() == barred || !barred && at != netip.MustParseAddr("127.0.0.1") {
				t.Errorf("the address is %s", at)
			}
		})
	}
}

// A kept connection is one session, whatever the number of messages. Connections to relays, connections that fail
// before TLS, and reports are not counted.
func TestSessionsNotCounted(t *testing.T) {
	t.Parallel()
	mx := smtptest.NewServer(t, smtptest.Config{TLS: smtptest.NewCA(t).ServerTLS("mx.test")})
	relay := smtptest.NewServer(t, smtptest.Config{})
	n := one(mx.Addr)
	n.host("dead.example", "mx.dead.example", 10, "")
	cfg := n.config(1)
	cfg.Dial, cfg.Schedule = n.dialOr, []time.Duration{time.Hour}
	cfg.Relays = []routing.Relay{{Name: "provider", Address: relay.Addr, Domains: []string{"elsewhere.example"}}}
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns)
	counted := f.counting()
	f.Must(f.service.SendReport(t.Context(), f.Acme.TeamID, "a@"+from, address(1), reportMessage()))
	f.run()
	f.wait(f.send("a@elsewhere.example"), events.EmailDelivered)
	f.wait(f.send("a@dead.example"), events.EmailDelayed)
	if all := counted.take(); len(all) > 0 {
		t.Errorf("counted: %+v", all)
	}
	for i := range 3 {
		f.wait(f.send(address(i)), events.EmailDelivered)
	}
	if all := counted.take(); len(all) != 1 || len(mx.Messages()) != 4 {
		t.Errorf("counted: %+v", all)
	}
}
