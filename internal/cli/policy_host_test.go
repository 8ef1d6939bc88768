package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/telemetry"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// A node serves the policy of a receiving domain at its own host, with a certificate that it gets on demand after the
// host was seen to lead here. The host serves nothing else. Without a policy, the host has no certificate.
func TestPolicyHost(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		n := p.startSecure()
		c, ctx := n.client(), t.Context()
		by, err := n.Teams.Authenticate(ctx, n.key)
		if err != nil {
			t.Fatal(err)
		}
		on := true
		d, err := n.Domains.AddVerified(ctx, by.TeamID, domains.NewDomain{Name: "in.example",
			Capabilities: domains.Capabilities{Receiving: &on}})
		if err != nil {
			t.Fatal(err)
		}
		const host = "mta-sts.in.example"
		may := func(host string) bool {
			t.Helper()
			answer, _ := n.get(c, "GET", "https://"+appHost+"/tls/ask?domain="+host)
			return answer.StatusCode == 200
		}
		if _, err := n.ServedPolicies.Set(ctx, by.TeamID, d.ID, servedpolicies.Change{Mode: servedpolicies.Testing}); err != nil {
			t.Fatal(err)
		}
		if may(host) {
			t.Error("a host may have a certificate before it was seen to lead here")
		}
		if err := n.ServedPolicies.Check(ctx); err != nil {
			t.Fatal(err)
		}
		if !may(host) || may("mta-sts.elsewhere.example") {
			t.Error("the host may have no certificate, or another one may")
		}
		answer, body := n.get(c, "GET", "https://"+host+"/.well-known/mta-sts.txt")
		if answer.StatusCode != 200 || !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain") ||
			!strings.HasPrefix(body, "version: STSv1\nmode: testing\nmx: ") {
			t.Errorf("the policy is %d %v %q", answer.StatusCode, answer.Header, body)
		}
		for _, path := range []string{"/", "/domains", "/app", "/docs", "/login", "/.well-known/mta-sts.txt/",
			"/.well-known/oauth-authorization-server", "/healthz", "/shared", "/mcp"} {
			answer, body := n.get(c, "GET", "https://"+host+path, "Authorization", "Bearer "+n.key, "Accept", "text/html")
			if answer.StatusCode != 404 {
				t.Errorf("the host of the policy answers %s with %d %.100s", path, answer.StatusCode, body)
			}
		}
		if answer, _ := n.get(c, "POST", "https://"+host+"/.well-known/mta-sts.txt"); answer.StatusCode != 405 {
			t.Errorf("POST is answered with %d", answer.StatusCode)
		}
		if answer, body := n.get(c, "HEAD", "https://"+host+"/.well-known/mta-sts.txt"); answer.StatusCode != 200 || body != "" {
			t.Errorf("HEAD is answered with %d", answer.StatusCode)
		}
		if err := n.Domains.Delete(ctx, by.TeamID, d.ID); err != nil {
			t.Fatal(err)
		}
		// Senders may have copies of the policy, so the host goes on and withdraws it.
		answer, body = n.get(c, "GET", "https://"+host+"/.well-known/mta-sts.txt")
		if answer.StatusCode != 200 || !strings.Contains(body, "\nmode: none\n") || !may(host) {
			t.Errorf("the policy of a deleted domain is %d %q", answer.StatusCode, body)
		}
	})
}

// The command shows the key of each host that receives mail and the next one, and starts and ends a change.
func TestTLSACommands(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	p.vars["POSTRIDER_INBOUND_HOST"] = mailHost
	p.vars["POSTRIDER_DNS_SERVERS"] = startZone(t).addr
	p.startSecure()
	out := p.must("policy", "tlsa")
	for _, want := range []string{mailHost, "_25._tcp." + mailHost + ". IN TLSA 3 1 1 ", "key in use", "next key",
		"published"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in %s", want, out)
		}
	}
	var all []struct {
		Host, Name, Source, Zone string
		InUse, Next              *string
		Published                []string
	}
	if err := json.Unmarshal([]byte(p.must("policy", "tlsa", "--json")), &all); err != nil || len(all) != 1 ||
		all[0].Host != mailHost || all[0].Source != "acme" || all[0].Published == nil {
		t.Errorf("the records are %+v, %v", all, err)
	}
	out = p.must("policy", "next-key", mailHost, "--ttl", "168h")
	if !strings.Contains(out, "336h") {
		t.Errorf("the change is announced by %s", out)
	}
	if out = p.must("policy", "next-key", mailHost, "--cancel"); !strings.Contains(out, "cancelled") {
		t.Errorf("the end of the change is announced by %s", out)
	}
	for _, args := range [][]string{{"policy", "next-key", "elsewhere.example"},
		{"policy", "next-key", mailHost, "--ttl", "999h"}} {
		if out, _, code := p.command(args...); code == 0 {
			t.Errorf("%v succeeds: %s", args, out)
		}
	}
}

// A node that cannot read the keys of its mail hosts says so in /readyz.
func TestUnreadableMailKeys(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	for name, value := range map[string]string{"INBOUND_HOST": mailHost, "TRUST_DOMAINS": "false",
		"DNS_SERVERS": startZone(t).addr} {
		p.vars["POSTRIDER_"+name] = value
	}
	first := p.startSecure()
	eventually(t, "the next key", func() bool {
		return first.count(`SELECT count(*) FROM certificate_values WHERE path LIKE 'mailkeys/%'`) > 0
	})
	first.end()
	n := p.start(func(n *node.Node) {
		if err := errors.Join(n.ListenHTTPS(), n.ListenInboundDev("")); err != nil {
			t.Fatal(err)
		}
		if err := n.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE certificate_values SET value = $1 WHERE path LIKE 'mailkeys/%'`, []byte{0})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	})
	eventually(t, "the check tlsa fails", func() bool {
		return slices.ContainsFunc(n.Ready(t.Context()).Checks, func(c telemetry.Result) bool {
			return c.Name == "tlsa" && c.Status == telemetry.StatusDegraded
		})
	})
}

// The command says whether the published records match the keys.
func TestTLSAResult(t *testing.T) {
	record := func(digest byte) dane.Record {
		return dane.Record{Usage: 3, Selector: 1, Matching: 1, Data: bytes.Repeat([]byte{digest}, 32)}
	}
	for _, test := range []struct {
		published []dane.Record
		zone, say string
	}{
		{nil, node.ZoneSigned, ""},
		{[]dane.Record{record(1)}, node.ZoneUnsigned, ""},
		{[]dane.Record{record(1), record(2)}, node.ZoneSigned, "the published records match the keys"},
		{[]dane.Record{record(1), record(9)}, node.ZoneSigned, "1 of 2 records match neither key"},
		{[]dane.Record{record(9)}, node.ZoneSigned, "a published record matches the certificate"},
		{[]dane.Record{{Usage: 1, Selector: 1, Matching: 1, Data: record(1).Data}}, node.ZoneSigned, "support none of them"},
	} {
		x := node.MailTLSA{Published: test.published, Zone: test.zone}
		x.Host, x.InUse, x.Next = mailHost, record(1), record(2)
		var out strings.Builder
		if err := writeTLSA(&out, &x); err != nil {
			t.Fatal(err)
		}
		_, result, _ := strings.Cut(out.String(), "\nresult")
		if (test.say == "") != (result == "") || !strings.Contains(result, test.say) {
			t.Errorf("%v: %s", test.published, out.String())
		}
	}
	for problem, want := range map[string]error{"": nil, "no TLSA record matches": errReported} {
		for _, asJSON := range []bool{false, true} {
			var out bytes.Buffer
			e := &env{out: &out, json: asJSON}
			if err := e.printTLSA([]node.MailTLSA{{Problem: problem}}); !errors.Is(err, want) ||
				!strings.Contains(out.String(), problem) {
				t.Errorf("the problem %q ends with %v and %s", problem, err, out.String())
			}
		}
	}
}
