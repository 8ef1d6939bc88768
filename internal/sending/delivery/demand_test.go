package delivery

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// tlsaName is the name of the TLSA records of the only host of the network that one returns.
const tlsaName = "_25._tcp.mx.test"

// unusable is a TLSA record that mail clients must not obey.
var unusable = dane.Record{Usage: 1, Selector: 1, Matching: 1, Data: make([]byte, 32)}

// signed returns a network with one host, whose zones are signed.
func signed(addr string, records ...dane.Record) *network {
	n := one(addr)
	n.dns.SignedZones = []string{destination, "test"}
	n.dns.TLSARecords = map[string][]resolve.TLSA{}
	if len(records) > 0 {
		n.dns.TLSARecords[tlsaName] = records
	}
	return n
}

// The TLSA records, the MTA-STS policy and the settings decide in this order what a connection must prove.
func TestDemand(t *testing.T) {
	t.Parallel()
	usable, err := dane.For(smtptest.NewCA(t).Certificate("mx.test").Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	enforce := mtasts.Policy{Mode: mtasts.Enforce, MX: []string{"mx.test"}}
	others := mtasts.Policy{Mode: mtasts.Enforce, MX: []string{"*.test.example"}}
	tested := mtasts.Policy{Mode: mtasts.Testing, MX: []string{"other.test"}}
	none := []dane.Record{}
	for _, c := range []struct {
		name    string
		records []dane.Record // nil if the zones are not signed
		policy  mtasts.Policy
		tls     string
		mode    smtpclient.TLSMode
		rule    evidence.Rule
		skip    evidence.Skip
	}{
		{"nothing", nil, mtasts.Policy{}, "", smtpclient.TLSOpportunistic, 0, 0},
		{"no records", none, mtasts.Policy{}, "", smtpclient.TLSOpportunistic, 0, 0},
		{"enforced", none, mtasts.Policy{}, domains.Enforced, smtpclient.TLSRequired, evidence.SenderRequires, 0},
		{"records", []dane.Record{usable}, mtasts.Policy{}, "", smtpclient.TLSDANE, evidence.DANE, 0},
		{"records satisfy enforced", []dane.Record{usable}, mtasts.Policy{}, domains.Enforced, smtpclient.TLSDANE,
			evidence.DANE, 0},
		{"records decide alone", []dane.Record{usable, unusable}, others, "", smtpclient.TLSDANE, evidence.DANE, 0},
		{"unusable", []dane.Record{unusable}, mtasts.Policy{}, "", smtpclient.TLSEncrypted, evidence.DANEUnusable, 0},
		{"unusable and enforced", []dane.Record{unusable}, mtasts.Policy{}, domains.Enforced, smtpclient.TLSRequired,
			evidence.SenderRequires, 0},
		{"policy and enforced", nil, enforce, domains.Enforced, smtpclient.TLSRequired, evidence.MTASTS, 0},
		{"unusable and a policy", []dane.Record{unusable}, enforce, "", smtpclient.TLSRequired, evidence.MTASTS, 0},
		{"unusable and a tested policy", []dane.Record{unusable}, tested, "", smtpclient.TLSEncrypted,
			evidence.DANEUnusable, 0},
		{"policy", nil, enforce, "", smtpclient.TLSRequired, evidence.MTASTS, 0},
		{"policy with another host", nil, others, "", 0, 0, evidence.NotInPolicy},
		{"policy that is tested", nil, tested, "", smtpclient.TLSOpportunistic, evidence.MTASTSTesting, 0},
		{"policy that was withdrawn", nil, mtasts.Policy{Mode: mtasts.None}, "", smtpclient.TLSOpportunistic, 0, 0},
	} {
		n := signed("", c.records...)
		if c.records == nil {
			n.dns.SignedZones, n.dns.TLSARecords[tlsaName] = nil, []dane.Record{usable}
		}
		cfg := n.config(1)
		cfg.DANE = true
		s := newService(cfg, Deps{DNS: n.dns})
		_, by, err := s.mailHosts(t.Context(), destination)
		if err != nil || by.signed != (c.records != nil) {
			t.Fatalf("%s: %+v %v", c.name, by, err)
		}
		by.policy = c.policy
		addrs, err := s.addresses(t.Context(), "mx.test", by)
		if err != nil {
			t.Fatal(err)
		}
		d, skip, err := s.demandOf(t.Context(), "mx.test", addrs, by, c.tls)
		if (err != nil) != (c.skip != 0) || skip != c.skip {
			t.Errorf("%s: skip %d, %v", c.name, skip, err)
		}
		if err == nil && (d.mode != c.mode || d.rule != c.rule) {
			t.Errorf("%s: mode %d by rule %d, want %d by %d", c.name, d.mode, d.rule, c.mode, c.rule)
		}
	}
}

// The operator's mode for a destination never weakens what the recipient's domain demands.
func TestOperatorDoesNotWeakenDemands(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule                 evidence.Rule
		demanded, mode, want smtpclient.TLSMode
		wantRule             evidence.Rule
	}{
		{evidence.DANE, smtpclient.TLSDANE, smtpclient.TLSNone, smtpclient.TLSDANE, evidence.DANE},
		{evidence.MTASTS, smtpclient.TLSRequired, smtpclient.TLSNone, smtpclient.TLSRequired, evidence.MTASTS},
		{evidence.DANEUnusable, smtpclient.TLSEncrypted, smtpclient.TLSNone, smtpclient.TLSEncrypted,
			evidence.DANEUnusable},
		{evidence.DANEUnusable, smtpclient.TLSEncrypted, smtpclient.TLSRequired, smtpclient.TLSRequired,
			evidence.OperatorRequires},
		{evidence.MTASTSTesting, smtpclient.TLSOpportunistic, smtpclient.TLSNone, smtpclient.TLSNone,
			evidence.MTASTSTesting},
		{0, smtpclient.TLSOpportunistic, smtpclient.TLSRequired, smtpclient.TLSRequired, evidence.OperatorRequires},
	} {
		d := demand{mode: c.demanded, rule: c.rule}
		d.operator(domains.Opportunistic, &routing.Destination{TLS: &c.mode})
		if d.mode != c.want || d.rule != c.wantRule {
			t.Errorf("rule %d and mode %d: mode %d by rule %d", c.rule, c.mode, d.mode, d.rule)
		}
	}
}

// A host with TLSA records gets a message only over TLS with a certificate that matches them.
func TestDeliverDANE(t *testing.T) {
	t.Parallel()
	ca := smtptest.NewCA(t)
	server := ca.ServerTLS("other.test")
	matching, err := dane.For(server.Certificates[0].Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	wrong := matching
	wrong.Data = make([]byte, len(matching.Data))
	for _, c := range []struct {
		name    string
		server  smtptest.Config
		records []dane.Record
		bogus   bool
		reply   string // the beginning; "" if the email is delivered
		tls     string // the end
	}{
		{"match", smtptest.Config{TLS: server}, []dane.Record{wrong, matching}, false, "", "certificate verified by DANE"},
		{"no match", smtptest.Config{TLS: server}, []dane.Record{wrong}, false, "454 4.7.5", ""},
		{"no STARTTLS", smtptest.Config{}, []dane.Record{matching}, false, "454 4.7.4", ""},
		{"unusable", smtptest.Config{TLS: server}, []dane.Record{unusable}, false, "", "certificate not verified"},
		{"unusable, no STARTTLS", smtptest.Config{}, []dane.Record{unusable}, false, "454 4.7.4", ""},
		{"wrong signatures", smtptest.Config{TLS: server}, []dane.Record{matching}, true, "451 4.7.5", ""},
		{"no records", smtptest.Config{}, nil, false, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mx := smtptest.NewServer(t, c.server)
			n := signed(mx.Addr, c.records...)
			if c.bogus {
				n.dns.Bogus = []string{"tlsa " + tlsaName}
			}
			cfg := n.config(1)
			cfg.DANE, cfg.Schedule = true, []time.Duration{time.Hour}
			f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
			x, want := f.send(address(1)), events.EmailDelivered
			if c.reply != "" {
				want = events.EmailDelayed
			}
			f.wait(x, want)
			if got := len(mx.Messages()); got > 0 != (c.reply == "") {
				t.Errorf("the host has %d messages", got)
			}
			if rule := f.evidence(x)[0].Rule; c.bogus && rule != evidence.DANE {
				t.Errorf("the rule is %d", rule)
			}
			if a := f.attempts(x)[0]; !strings.HasPrefix(a.Reply, c.reply) || !strings.HasSuffix(a.TLS, c.tls) ||
				(a.TLS == "") != (c.tls == "") {
				t.Errorf("attempt %+v", a)
			}
		})
	}
}

// If the state of a host's TLSA records is unknown, another host takes the mail.
func TestDeliverToAnotherHostWithDANE(t *testing.T) {
	t.Parallel()
	first, second := smtptest.NewServer(t, smtptest.Config{}), smtptest.NewServer(t, smtptest.Config{})
	n := signed(first.Addr)
	n.host(destination, "mx2.test", 20, second.Addr)
	n.dns.Fail = []string{"tlsa " + tlsaName}
	cfg := n.config(1)
	cfg.DANE = true
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
	f.wait(f.send(address(1)), events.EmailDelivered)
	if len(first.Messages()) > 0 || len(second.Messages()) != 1 {
		t.Errorf("the hosts have %d and %d messages", len(first.Messages()), len(second.Messages()))
	}
}

// A connection that was opened for a domain without DANE carries no mail of a domain with DANE, although both have the
// same host.
func TestKeptConnectionsWithDANE(t *testing.T) {
	t.Parallel()
	mx := smtptest.NewServer(t, smtptest.Config{TLS: smtptest.NewCA(t).ServerTLS("mx.test")})
	wrong := dane.Record{Usage: dane.UsageEE, Selector: dane.SelectorKey, Matching: dane.MatchingSHA256,
		Data: make([]byte, 32)}
	n := signed(mx.Addr, wrong)
	n.dns.MXRecords["plain.example"] = []resolve.MX{{Host: "mx.test", Pref: 10}}
	cfg := n.config(1)
	cfg.DANE, cfg.Schedule = true, []time.Duration{time.Hour}
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
	f.wait(f.send("to@plain.example"), events.EmailDelivered)
	f.wait(f.send(address(1)), events.EmailDelayed)
	if got := len(mx.Messages()); got != 1 {
		t.Errorf("the host has %d messages", got)
	}
}

// Two connections prove the same only if the same records verified both.
func TestProof(t *testing.T) {
	t.Parallel()
	record := func(b byte) *dane.Set {
		return dane.Parse([]dane.Record{{Usage: dane.UsageEE, Selector: dane.SelectorKey, Matching: dane.MatchingSHA256,
			Data: append(make([]byte, 31), b)}})
	}
	names := []string{"mx.test", destination}
	one, two := demand{mode: smtpclient.TLSDANE, dane: record(1), names: names}, demand{mode: smtpclient.TLSDANE,
		dane: record(2), names: names}
	if one.proof("mx.test") == two.proof("mx.test") {
		t.Error("different records prove the same")
	}
	required := demand{mode: smtpclient.TLSRequired}
	if required.proof("a.test") == required.proof("b.test") {
		t.Error("certificates of different hosts prove the same")
	}
	if d := (demand{mode: smtpclient.TLSEncrypted}); d.proof("a.test") != "" {
		t.Errorf("any certificate proves %q", d.proof("a.test"))
	}
}

// If the policy of the domain names none of its hosts, the mail waits.
func TestAnswerForPolicies(t *testing.T) {
	t.Parallel()
	n := one("")
	s := newService(n.config(1), Deps{DNS: n.dns})
	_, _, err := s.demandOf(t.Context(), "mx.test", resolve.Answer[netip.Addr]{}, security{domain: destination,
		policy: mtasts.Policy{Mode: mtasts.Enforce, MX: []string{"mx.example"}}}, "")
	if a := answerForPlanError(err); !errors.Is(err, errNotInPolicy) || a.reply.Code != 451 ||
		a.reply.Enhanced != "4.7.5" {
		t.Errorf("%v: %+v", err, a)
	}
}

// If the signatures of the MX records are wrong, the rule is DANE: the sender's setting did not hold the mail back. If
// the database does not say which policy applies, the rule is MTA-STS, and the name servers are not to blame.
func TestRuleWithoutHosts(t *testing.T) {
	t.Parallel()
	n := signed("")
	n.dns.Bogus = []string{"mx " + destination}
	cfg := n.config(1)
	cfg.DANE = true
	s := newService(cfg, Deps{DNS: n.dns})
	w, err := s.choose(t.Context(), destination, "", "", nil)
	if a := answerForPlanError(err); w.rule != evidence.DANE || a.reply.Enhanced != "4.7.5" {
		t.Errorf("rule %d, %v: %+v", w.rule, err, a)
	}

	lab := ststest.New(t)
	lab.Set(destination, policy("1", "enforce", "mx.test"))
	n = one("")
	f := newFixture(t, dbtest.SQLite(t), n.config(1), n.dns).withPolicies(lab)
	f.DB.Close()
	w, err = f.service.choose(t.Context(), destination, "", "", nil)
	if a := answerForPlanError(err); w.rule != evidence.MTASTS || a.reply.Enhanced != "4.7.5" || !fault.IsOutage(err) {
		t.Errorf("rule %d, %v: %+v", w.rule, err, a)
	}
	if strings.Contains(err.Error(), noHostError) {
		t.Errorf("error %v", err)
	}
}

// A first try is the last one if the lifetime of the destination, which its mail hosts decide, ends before the next
// try.
func TestFirstTryCanBeTheLast(t *testing.T) {
	t.Parallel()
	lab := ststest.New(t)
	n := one("")
	cfg := n.config(1)
	cfg.Schedule = []time.Duration{time.Hour}
	cfg.Destinations = []routing.Destination{{Name: "hosts", Hosts: []string{"mx.test"}, Lifetime: 30 * time.Minute}}
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).withPolicies(lab)
	x := &try{job: jobs.Job{CreatedAt: f.DB.Now()}, d: emails.Delivery{Domain: destination}}
	var last []bool
	_, err := f.service.choose(t.Context(), destination, "", "", func(d *routing.Destination) bool {
		last = append(last, f.service.lastTry(x, d))
		return false
	})
	if err != nil || !slices.Equal(last, []bool{true}) || f.service.lastTry(x, nil) {
		t.Errorf("last %v, and without rules %v; %v", last, f.service.lastTry(x, nil), err)
	}
	x.job.CreatedAt = x.job.CreatedAt.Add(-3 * time.Hour)
	if !f.service.lastTry(x, nil) {
		t.Error("a job that is older than the schedule has another try")
	}
}

func BenchmarkLastTry(b *testing.B) {
	n := one("")
	f := newFixture(b, dbtest.SQLite(b), n.config(1), n.dns)
	x := &try{job: jobs.Job{CreatedAt: f.DB.Now()}, d: emails.Delivery{Domain: destination}}
	b.ReportAllocs()
	for b.Loop() {
		f.service.lastTry(x, nil)
	}
}

// An alarm that is sent without the queue obeys TLSA records too.
func TestSendUnqueuedWithDANE(t *testing.T) {
	t.Parallel()
	server := smtptest.NewCA(t).ServerTLS("other.test")
	record, err := dane.For(server.Certificates[0].Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	mx := smtptest.NewServer(t, smtptest.Config{TLS: server})
	n := signed(mx.Addr, record)
	cfg := n.config(1)
	cfg.DANE = true
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns)
	message := []byte("From: a@" + from + "\r\nTo: " + address(1) + "\r\nSubject: Alarm\r\n\r\nThe disk is full.\r\n")
	f.Must(f.service.SendUnqueued(t.Context(), f.Acme.TeamID, "a@"+from, address(1), message))
	record.Data = make([]byte, len(record.Data))
	n.dns.TLSARecords[tlsaName] = []dane.Record{record}
	if err := f.service.SendUnqueued(t.Context(), f.Acme.TeamID, "a@"+from, address(1), message); err == nil {
		t.Error("a certificate that does not match was accepted")
	}
	if got := mx.Messages(); len(got) != 1 || !got[0].TLS {
		t.Errorf("messages %+v", got)
	}
}
