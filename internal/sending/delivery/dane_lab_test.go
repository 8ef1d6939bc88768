//go:build linux

package delivery

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/dane/danetest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

// wholeLab says whether the test uses all domains of the lab and fails without Postfix's verdicts. It is set by the
// build tag tls.
var wholeLab bool

// For each domain of a lab with signed zones, this service sends an email or lets it wait as RFC 7672 demands, and as
// Postfix does. The sinks record what was sent, and whether it was encrypted. No differences from Postfix are allowed.
func TestDANELab(t *testing.T) {
	t.Parallel()
	done, why := danetest.Isolate(t)
	switch {
	case done:
		return
	case why != "" && wholeLab:
		t.Fatalf("Postfix's verdicts are missing: %s", why)
	case why != "":
		t.Logf("without Postfix's verdicts: %s", why)
	}
	lab := danetest.New(t, wholeLab)
	dns, err := resolve.NewDNS([]string{lab.DNS})
	if err != nil {
		t.Fatal(err)
	}
	dns.SignedZone = danetest.Zone
	if works, servers := dns.Believes(t.Context()); !works {
		t.Fatalf("the lab's DNS server does not validate: %+v", servers)
	}
	f := newFixture(t, dbtest.SQLite(t), Config{DANE: true, SMTPPort: lab.Port, Schedule: []time.Duration{time.Hour},
		LaneConnections: 2, Signers: 2, Timeouts: smtpclient.Timeouts{Connect: 5 * time.Second}},
		resolve.NewCached(dns, 10_000)).run()
	ids := map[string]string{}
	for _, d := range lab.Domains {
		ids[d.Name] = f.send("to@" + d.Name)
	}
	postfix, said := map[string]danetest.Verdict{}, map[string]string{}
	if danetest.Isolated() {
		postfix, said = lab.Verdicts()
	}
	verdicts := map[danetest.Verdict]int{}
	for _, d := range lab.Domains {
		got := f.verdict(lab, d.Name, ids[d.Name])
		verdicts[got]++
		theirs, asked := postfix[d.Name]
		if got != d.Want || asked && theirs != d.Want || !asked && danetest.Isolated() {
			t.Errorf("%s: ours is %q, Postfix's %q, and RFC 7672 demands %q\nattempts: %+v\n%s", d.Name, got, theirs, d.Want,
				f.attempts(ids[d.Name]), said[d.Name])
		}
		if lines := lab.InClear(d.Name); d.Want != danetest.Clear && len(lines) > 0 {
			t.Errorf("%s: hosts received in clear: %q", d.Name, lines)
		}
	}
	if n := len(lab.Domains); wholeLab && n < 170 || !wholeLab && n != 20 {
		t.Errorf("the lab has %d domains", n)
	}
	t.Logf("%d domains: %v; with Postfix: %v", len(lab.Domains), verdicts, danetest.Isolated())
}

// verdict waits until the first try of an email is over, and returns what happened to the email.
func (f *fixture) verdict(lab *danetest.Lab, domain, id string) danetest.Verdict {
	f.T.Helper()
	f.waitForAny(id, events.EmailDelivered, events.EmailDelayed, events.EmailBounced)
	got, a := lab.Received(domain), f.attempts(id)[0]
	switch {
	case len(got) == 0 && a.Outcome == "delayed":
		return danetest.Waits
	case len(got) != 1:
		f.T.Errorf("%s: %d emails arrived, and the attempt is %+v", domain, len(got), a)
		return ""
	case !strings.Contains(got[0].Data, "<p>Hello</p>"):
		f.T.Errorf("%s: the email is %q", domain, got[0].Data)
	}
	switch {
	case !got[0].TLS && a.TLS == "":
		return danetest.Clear
	case got[0].TLS && strings.HasSuffix(a.TLS, "certificate verified by DANE"):
		return danetest.Verified
	case got[0].TLS && strings.HasSuffix(a.TLS, "certificate not verified"):
		return danetest.Encrypted
	}
	f.T.Errorf("%s: the attempt says %q, and the host received it with TLS: %v", domain, a.TLS, got[0].TLS)
	return ""
}

// waitForAny waits until an event of one of the types has been recorded for an email.
func (f *fixture) waitForAny(emailID string, types ...events.Type) {
	f.T.Helper()
	deadline := time.After(30 * time.Second)
	for {
		f.mu.Lock()
		news := f.news
		found := slices.ContainsFunc(f.seen, func(e events.Event) bool {
			return e.EmailID == emailID && slices.Contains(types, e.Type)
		})
		f.mu.Unlock()
		if found {
			return
		}
		select {
		case <-news:
		case <-deadline:
			f.T.Fatalf("after half a minute none of %q happened; attempts: %+v", types, f.attempts(emailID))
		}
	}
}
