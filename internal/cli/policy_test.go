package cli

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// The commands show and forget the cached policy of a domain. Only a change is recorded in the audit log.
func TestPolicyCommands(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		n, pr := p.start(), &printer{p, map[string]bool{}}
		lab := ststest.New(t)
		s := policiesOf(t, lab, n.DB, nil, tlspolicies.Limits{})
		const domain = "xn--bcher-kva.example"
		lab.Set(domain, ststest.Site{TXT: ststest.Record("one"), Policy: ststest.Policy("enforce", 86400, "*.mx.example")})
		lab.Set("broken.example", ststest.Site{TXT: ststest.Record("1"), Handler: http.NotFound})
		s.For(t.Context(), domain)
		s.For(t.Context(), "broken.example")
		lab.Set("spoilt.example", ststest.Site{TXT: ststest.Record("1"), Policy: ststest.Policy("none", 86400)})
		s.For(t.Context(), "spoilt.example")

		for _, name := range []string{domain, "Bücher.example"} {
			out := p.must("policy", "show", name)
			for _, want := range []string{domain, "enforce", "*.mx.example", "one", "expires"} {
				if !strings.Contains(out, want) {
					t.Errorf("%q is not in %s", want, out)
				}
			}
		}
		if got := pr.json("policy", "show", domain); got["mode"] != "enforce" || got["max_age"] != 86400.0 ||
			got["expired"] != false || got["failure"] != nil || got["id"] != "one" {
			t.Errorf("%v", got)
		}
		out := p.must("policy", "show", "broken.example")
		for _, want := range []string{"no policy could be fetched yet", "sts-policy-fetch-error: ", "404", "next try"} {
			if !strings.Contains(out, want) {
				t.Errorf("%q is not in %s", want, out)
			}
		}
		if err := n.DB.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE mta_sts_policies SET policy = 'x' WHERE domain = 'spoilt.example'`)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if out := p.must("policy", "show", "spoilt.example"); !strings.Contains(out, "the stored policy is invalid") {
			t.Errorf("%s", out)
		}
		failure, _ := pr.json("policy", "show", "broken.example")["failure"].(map[string]any)
		if failure["type"] != "sts-policy-fetch-error" || failure["id"] != "1" {
			t.Errorf("%v", failure)
		}
		if out := p.must("policy", "forget", domain); !strings.Contains(out, domain) {
			t.Errorf("%s", out)
		}
		if got := pr.json("policy", "forget", "broken.example"); got["forgotten"] != true ||
			got["domain"] != "broken.example" {
			t.Errorf("%v", got)
		}
		p.refused("No policy of "+domain+" is cached", "policy", "show", domain)
		p.refused("No policy of "+domain+" is cached", "policy", "forget", domain)
		p.refused("is an address", "policy", "show", "192.0.2.1")
		p.refused("DOMAIN is missing", "policy", "show")
		entries := strings.Split(strings.TrimSpace(p.must("audit", "export", "--format", "ndjson", "--action",
			"tls_policy.forgotten")), "\n")
		if len(entries) != 2 || !strings.Contains(strings.Join(entries, ""), domain) {
			t.Errorf("%d entries: %q", len(entries), entries)
		}
	})
}
