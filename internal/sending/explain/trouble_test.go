package explain

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/evidence"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// explained returns the answer about one deferred attempt.
func explained(reply, conversation, tls string, e *evidence.Evidence) (Answer, *AttemptAnswer) {
	t := try("delayed", reply, 0, time.Second, 61*time.Minute, e)
	t.Conversation, t.TLS = conversation, tls
	a := Explain(facts("delivery_delayed", []events.Entry{event("delivery_delayed", time.Second, "")}, t))
	return a, &a.Attempts[0]
}

// The hosts, the certificate, the reverse DNS and the same answers of others appear in the answer and in its text.
func TestTroubleIsShown(t *testing.T) {
	e := recorded()
	e.Cert = evidence.OtherName
	e.Trouble = &evidence.Trouble{
		Route: evidence.Route{Kept: time.Minute, Hosts: []evidence.Host{
			{Name: "mx1.example.net", Pref: 10, Addrs: []evidence.Addr{{IP: netip.MustParseAddr("192.0.2.1"), Tried: true}}},
			{Name: "mx2.example.net", Pref: 20, Skipped: evidence.NotPublic}}},
		Peer: evidence.Peer{Names: []string{"other.example"}, Issuer: "Some CA", Problem: "x509: another name",
			Expires: after(time.Hour)},
		PTR:  evidence.PTR{State: evidence.PTRElsewhere, Name: "host.isp.example"},
		Same: evidence.Same{Counted: true, Own: 12, Teams: 10, Others: 50}}
	a, got := explained("451 4.3.2 busy", "4 C: MAIL FROM:<b-x@send.example.com> SIZE=3\n", "TLS 1.3 X", e)
	if d := got.DNS; d == nil || len(d.Hosts) != 2 || !d.Hosts[0].Addresses[0].Tried || d.Hosts[1].LeftOut != "not_public" ||
		d.Kept != 60_000 {
		t.Errorf("the DNS: %+v", got.DNS)
	}
	if x := got.TLS; x.Certificate != "other_name" || !slices.Equal(x.Names, []string{"other.example"}) ||
		x.Issuer != "Some CA" || x.Problem != "x509: another name" || x.Expires == nil {
		t.Errorf("the TLS: %+v", x)
	}
	if s := got.Signing; s.ReturnPath != "send.example.com" || s.SPFApart() || s.DKIMApart() {
		t.Errorf("the authentication: %+v", s)
	}
	if s := got.Same; s == nil || s.Own != 12 || *s.Others != 50 || *s.Teams != 10 {
		t.Errorf("the same answers: %+v", s)
	}
	for _, want := range []string{"10 mx1.example.net 192.0.2.1 (tried)", "no public address", "host.isp.example, which does",
		"It names other.example.", "x509: another name", "SPF: checked for send.example.com, aligned with",
		"At least 12 other attempts of your team", "50 attempts of 10 other teams", "probably not your email"} {
		if text := a.Text(); !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	for _, missing := range []string{"MX records", "PTR", "certificate"} {
		if slices.ContainsFunc(got.NotRecorded, func(s string) bool { return strings.Contains(s, missing) }) {
			t.Errorf("%s is recorded: %q", missing, got.NotRecorded)
		}
	}
}

// A reply about the email itself is not excused by the same replies to other teams.
func TestSameAnswerAboutTheEmail(t *testing.T) {
	e := recorded()
	e.Trouble = &evidence.Trouble{Same: evidence.Same{Counted: true, Teams: 20, Others: 200}}
	_, got := explained("550 5.1.1 user unknown", "", "", e)
	if s := got.Same; !strings.Contains(s.Says, "No other attempt of your team") || !strings.Contains(s.Says, "20 other teams") ||
		strings.Contains(s.Says, "probably not") {
		t.Errorf("%+v", s)
	}
	e.Trouble.Same = evidence.Same{Counted: true}
	if _, got := explained("550 5.1.1 user unknown", "", "", e); got.Same.Others != nil || got.Same.Teams != nil {
		t.Errorf("without other teams: %+v", got.Same)
	}
}

// Facts that were not recorded are named. The transcript has the certificate of an attempt that went well.
func TestTroubleUnknown(t *testing.T) {
	const note = "3 * TLS 1.3 X, certificate of mx.example.net "
	_, got := explained("250 ok", note+"not verified: x509: expired\n", "TLS 1.3 X, certificate not verified", recorded())
	if !slices.Equal(got.TLS.Names, []string{"mx.example.net"}) || got.TLS.Problem != "x509: expired" {
		t.Errorf("%+v", got.TLS)
	}
	_, got = explained("250 ok", note+"verified\n", "TLS 1.3 X, certificate verified", recorded())
	if !slices.Equal(got.TLS.Names, []string{"mx.example.net"}) || got.TLS.Problem != "" {
		t.Errorf("%+v", got.TLS)
	}
	if want := []string{"MX records", "PTR record of the source address"}; !slices.Equal(got.NotRecorded, want) {
		t.Errorf("not recorded: %q", got.NotRecorded)
	}
	_, got = explained("250 ok", "0 * message 2 over this connection\n", "TLS 1.3 X", recorded())
	if !slices.Contains(got.NotRecorded, "names in the certificate") || got.Signing.SPFAligned != nil {
		t.Errorf("%+v", got)
	}
}

// A certificate that ended the handshake is described, although no connection was established.
func TestRefusedCertificate(t *testing.T) {
	e := &evidence.Evidence{Local: true, Stage: evidence.StageOf("tls"), Trouble: &evidence.Trouble{
		Peer: evidence.Peer{Names: []string{"other.example"}, Problem: "x509: another name"}}}
	_, got := explained("454 4.7.5 no secure connection: x509: another name", "", "", e)
	if x := got.TLS; x.State != "no_connection" || x.Certificate != "invalid" || x.Problem == "" ||
		!strings.Contains(x.Says, "is not valid") {
		t.Errorf("%+v", x)
	}
}

// The advice goes to the one who can change the rule: the owner of the recipient's domain, or the sender.
func TestRefusalsByRule(t *testing.T) {
	for rule, want := range map[evidence.Rule]Advice{0: CheckTLS, evidence.SenderRequires: CheckTLS, evidence.DANE: TellDomain,
		evidence.DANEUnusable: TellDomain, evidence.MTASTS: TellDomain} {
		for _, reply := range []string{"454 4.7.5 no secure connection: x509: another name", "454 4.7.4 no TLS",
			"451 4.7.5 the DNSSEC signatures are not valid"} {
			e := &evidence.Evidence{Local: true, Stage: evidence.StageOf("tls"), Rule: rule}
			if m := (&Try{Evidence: e}).meaning(reply, false); m.Class != TLS || m.Advice != want {
				t.Errorf("rule %d, %s: %+v", rule, reply, m)
			}
		}
	}
	e := &evidence.Evidence{Local: true, Rule: evidence.MTASTS}
	text := "451 4.7.5 " + tlspolicies.ErrUnknown.Error() + " of one.example: no database"
	if m := (&Try{Evidence: e}).meaning(text, false); m.Class != TLS || m.Act != Operator || m.Blames != BlamesServer {
		t.Errorf("an unknown policy: %+v", m)
	}
	e = &evidence.Evidence{Local: true, Rule: evidence.DANE}
	if m := (&Try{Evidence: e}).meaning("451 4.4.1 no connection", false); m.Class != Unreachable || m.Advice == TellDomain {
		t.Errorf("%+v", m)
	}
}

// SPF and DKIM are aligned if the domains belong to one organization.
func TestAligned(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{"example.com", "example.com", true}, {"send.example.com", "News.Example.com", true},
		{"example.co.uk", "other.co.uk", false}, {"example.com", "example.net", false}, {"localhost", "localhost", true},
		{"", "", true}, {"", "example.com", false}, {"com", "example.com", false},
	} {
		if got := aligned(c.a, c.b); got != c.want {
			t.Errorf("%q and %q: %v", c.a, c.b, got)
		}
	}
	for text, want := range map[string]string{"1 C: MAIL FROM:<a@One.test> SIZE=1\n2 S: 250 ok\n": "one.test",
		"1 C: MAIL FROM:<>\n": "", "1 C: MAIL FROM:<a@cut": "", "": "", "1 S: 250 x\n": ""} {
		if got := returnPathDomain(text); got != want {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// An email of a paused broadcast waits for the person who paused it, and a canceled broadcast cancels its emails.
func TestBroadcastStates(t *testing.T) {
	for _, state := range []string{"queued", "delivery_delayed"} {
		f := facts(state, nil)
		f.Broadcast, f.Paused = true, true
		if r := Explain(f).Recipients[0]; !strings.Contains(r.Verdict, "its broadcast is paused") || r.Act != You ||
			r.Advice != ResumeBroadcast || len(r.Steps) == 0 {
			t.Errorf("%s: %+v", state, r)
		}
	}
	f := facts("canceled", []events.Entry{event("canceled", time.Second, "")})
	f.Broadcast = true
	if r := Explain(f).Recipients[0]; !strings.Contains(r.Verdict, "together with its broadcast") || r.Act != Nobody {
		t.Errorf("canceled: %+v", r)
	}
}

// The verdict on several recipients does not say that a captured or simulated email was delivered.
func TestCapturedForSeveral(t *testing.T) {
	for host, reply := range map[string]string{"outbox": "250 2.0.0 captured as 01", "test addresses": "250 2.0.0 simulated"} {
		got := try("delivered", reply, 0, time.Second, 0, nil)
		got.Host = host
		f := facts("suppressed", []events.Entry{event("delivered", time.Second, "")}, got)
		f.Recipients = append(f.Recipients, To{Address: "bob@example.net", State: "suppressed"})
		f.Recipients[0].State = "delivered"
		a := Explain(f)
		if !strings.HasPrefix(a.Verdict, "Suppressed for 1, ") || strings.Contains(a.Verdict, "delivered to") ||
			!strings.Contains(a.Verdict, "captured for 1") && !strings.Contains(a.Verdict, "simulated for 1") {
			t.Errorf("%s: %s", host, a.Verdict)
		}
	}
}

// Sentences about the operator's relay do not blame the recipient's mail server.
func TestRelayIsNamed(t *testing.T) {
	for _, reply := range []string{"451 4.4.1 the host cannot be reached: refused", "451 4.3.0 busy", "550 5.1.1 unknown"} {
		m := Translate(evidence.Relay, "", reply, reply[4:9] == "4.4.1", true)
		if !strings.HasPrefix(m.Says, "The relay ") || m.Act == Provider {
			t.Errorf("%s: %+v", reply, m)
		}
	}
}
