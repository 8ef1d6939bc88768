package cli

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/client"
)

const domainSetup = `
[domains."acme.net"]
tls = "enforced"
setup = "cname"
dmarc = " v=DMARC1; p=reject "
bimi = "v=BIMI1; l=https://acme.net/logo.svg"
`

// The set-up of a domain and its DMARC and BIMI records are chosen when the domain is created. They are found again,
// changed one by one, and removed by an empty text.
func TestApplyDomainSetup(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_DNS_ZONE"] = "dns.host.example"
		p.vars["POSTRIDER_DNS_NAMES"] = "ns1.host.example,ns2.host.example"
		p.vars["POSTRIDER_DNS_ADDRESSES"] = "ns1.host.example=192.0.2.1,ns2.host.example=192.0.2.2"
		s, ctx := newSetup(t, p, domainSetup), t.Context()
		out := s.apply(0)
		if !strings.Contains(out, ".dns.host.example") || strings.Contains(out, "DKIM1") {
			t.Errorf("the records to add are not those of the set-up:\n%s", out)
		}
		const same = "No changes: the team matches the file.\n"
		for _, flags := range [][]string{{"--drift"}, {}} {
			if out := s.apply(0, flags...); out != same {
				t.Errorf("apply %q again prints\n%s", flags, out)
			}
		}
		domains, err := s.api.Domains.List(ctx, client.Page{})
		if err != nil || len(domains.Data) != 1 {
			t.Fatalf("%+v, %v", domains, err)
		}
		id := domains.Data[0].ID
		check := func(setup, dmarc, bimi, tls string) {
			t.Helper()
			got, err := s.api.Domains.GetSetup(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			text := func(p *string) string {
				if p == nil {
					return ""
				}
				return *p
			}
			d, err := s.api.Domains.Get(ctx, id)
			if err != nil || got.Setup != setup || text(got.DMARC) != dmarc || text(got.BIMI) != bimi || d.TLS != tls {
				t.Errorf("%s, %q, %q, %s, %v", got.Setup, text(got.DMARC), text(got.BIMI), d.TLS, err)
			}
		}
		const dmarc, bimi = "v=DMARC1; p=reject", "v=BIMI1; l=https://acme.net/logo.svg"
		check("cname", dmarc, bimi, "enforced")

		// Somebody changes the domain in the dashboard.
		_, err = s.api.Domains.ChangeSetup(ctx, id, client.ChangeSetup{Setup: new("records"), DMARC: new("")})
		if err != nil {
			t.Fatal(err)
		}
		out = s.apply(1, "--drift")
		for _, line := range []string{`    setup: "records" → "cname"`, `    dmarc: "" → "v=DMARC1; p=reject"`} {
			if !strings.Contains(out, line) {
				t.Errorf("the drift lacks %q:\n%s", line, out)
			}
		}
		if strings.Contains(out, "bimi") {
			t.Errorf("the drift has the record that was not changed:\n%s", out)
		}
		s.apply(0)
		check("cname", dmarc, bimi, "enforced")

		s.write("[domains.\"acme.net\"]\ntls = \"opportunistic\"\nbimi = \"\"\n")
		s.apply(0)
		check("cname", dmarc, "", "opportunistic")
		s.write("[domains.\"acme.net\"]\n")
		if out := s.apply(0); out != same {
			t.Errorf("fields that the file leaves out are changed:\n%s", out)
		}
	})
}

// A wrong set-up is reported with its line, and nothing is created. A set-up that this installation does not offer is
// reported when the domain has been created, and another set-up can then be chosen.
func TestApplyDomainSetupProblems(t *testing.T) {
	t.Parallel()
	s := newSetup(t, migratedInstallation(t, "sqlite"), `[domains."a.example"]
setup = "cnames"
[domains."b.example"]
dmarc = "v=DMARC1; p=never"
[domains."not a domain"]
bimi = "v=spf1"
`)
	out := s.apply(1)
	for _, want := range []string{`:2: domains."a.example".setup: `, `:4: domains."b.example".dmarc: `,
		`:5: domains."not a domain": `, `:6: domains."not a domain".bimi: `} {
		if !strings.Contains(out, "team.toml"+want) {
			t.Errorf("the problems lack %q:\n%s", want, out)
		}
	}
	if s.counts() != nothingMade {
		t.Errorf("the team has %s", s.counts())
	}
	s.write("[domains.\"a.example\"]\nsetup = \"delegation\"\n")
	for range 2 {
		if out := s.apply(1); !strings.Contains(out, "dns_zone") {
			t.Errorf("the problem is\n%s", out)
		}
	}
	s.write("[domains.\"a.example\"]\nsetup = \"records\"\n")
	if out := s.apply(0); out != "No changes: the team matches the file.\n" {
		t.Errorf("the third run prints\n%s", out)
	}
}
