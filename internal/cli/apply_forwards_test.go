package cli

import (
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/client"
)

const forwardsSetup = `
[domains."acme.net"]
capabilities = {receiving = "enabled"}

[forwards."Sales@acme.net -> Bob@elsewhere.example"]

[forwards."*@acme.net -> https://hooks.acme.example/mail"]
enabled = false
`

// Forwarding rules are created after their domain, found again, changed and deleted. A rule with an address still waits
// for its owner.
func TestApplyForwards(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_NOTICE_FROM"] = "Postrider <notices@resend.dev>"
		s, ctx := newSetup(t, p, forwardsSetup), t.Context()
		out := s.apply(0)
		if !strings.Contains(out, "The owner of Bob@elsewhere.example must open the link") {
			t.Errorf("applying printed\n%s", out)
		}
		secrets := regexp.MustCompile(`The secret of forwards (.*), which is shown only once: (whsec_\S+)`).
			FindAllStringSubmatch(out, -1)
		if len(secrets) != 1 || secrets[0][1] != "*@acme.net -> https://hooks.acme.example/mail" {
			t.Fatalf("applying printed the secrets %q\n%s", secrets, out)
		}
		s.apply(0, "--drift")
		domains, err := s.api.Domains.List(ctx, client.Page{})
		if err != nil || len(domains.Data) != 1 {
			t.Fatalf("%+v, %v", domains, err)
		}
		domainID := domains.Data[0].ID
		rules := func() map[string]client.ForwardItem {
			t.Helper()
			all, err := s.api.Domains.ListForwards(ctx, domainID, client.Page{})
			if err != nil {
				t.Fatal(err)
			}
			by := map[string]client.ForwardItem{}
			for _, f := range all.Data {
				by[f.Match] = f
			}
			return by
		}
		if all := rules(); len(all) != 2 || all["sales"].State != "waiting_for_confirmation" || all["*"].Enabled {
			t.Errorf("%+v", all)
		}
		full, err := s.api.Domains.GetForward(ctx, domainID, rules()["*"].ID)
		if err != nil || full.SigningSecret == nil || *full.SigningSecret != secrets[0][2] {
			t.Errorf("the rule is %+v, %v; the shown secret is %s", full, err, secrets[0][2])
		}
		// Comparing rules does not read their secrets.
		audit, err := s.api.AuditLog.List(ctx, client.AuditLogListParams{})
		if err != nil {
			t.Fatal(err)
		}
		shown := 0
		for _, e := range audit.Data {
			if e.Action == "domain.forward_secret_shown" {
				shown++
			}
		}
		if shown != 1 {
			t.Errorf("secrets were read %d times, and not once", shown)
		}
		// Somebody changes a rule in the dashboard.
		_, err = s.api.Domains.UpdateForward(ctx, domainID, rules()["*"].ID, client.UpdateForward{
			Enabled: client.Set(true), Match: client.Set("info")})
		if err != nil {
			t.Fatal(err)
		}
		out = s.apply(1, "--drift")
		if !strings.Contains(out, "enabled: true → false") || !strings.Contains(out, `"*@acme.net -> https`) {
			t.Errorf("the drift is\n%s", out)
		}
		s.apply(0)
		if all := rules(); len(all) != 2 || all["*"].Enabled {
			t.Errorf("after the second run: %+v", all)
		}
		// One rule is no longer in the file.
		short, _, _ := strings.Cut(forwardsSetup, `[forwards."*@`)
		s.write(short)
		s.apply(0, "--prune")
		if all := rules(); len(all) != 1 || all["sales"].ID == "" {
			t.Errorf("after --prune: %+v", all)
		}
		s.write(`[forwards."sales@acme.net to bob@elsewhere.example"]
[forwards."sa*@acme.net -> bob@elsewhere.example"]
[forwards."sales@other.example -> nobody"]
`)
		out = s.apply(1)
		for _, part := range []string{"must be such as", "Patterns such as", "Invalid target"} {
			if !strings.Contains(out, part) {
				t.Errorf("the problems lack %q:\n%s", part, out)
			}
		}
	})
}

// The next run shows the signing secret of a rule that an interrupted run has created. A rule with an address has none.
func TestApplyShowsSecretOfInterruptedRule(t *testing.T) {
	t.Parallel()
	p := migratedInstallation(t, "sqlite")
	p.vars["POSTRIDER_NOTICE_FROM"] = "Postrider <notices@resend.dev>"
	const domain = "[domains.\"acme.net\"]\ncapabilities = {receiving = \"enabled\"}\n"
	s := newSetup(t, p, domain)
	s.apply(0)
	for _, target := range []string{"https://hooks.acme.example/mail", "bob@elsewhere.example"} {
		name, url := "*@acme.net -> "+target, strings.Contains(target, "://")
		s.write(domain + "[forwards.\"" + name + "\"]\n")
		for allowed := 1; s.n.count(`SELECT COUNT(*) FROM forwards`) == 0; allowed++ {
			address, _ := s.crashing(allowed)
			if out, errOut, code := s.command("apply", s.file, "--url", address); code == 0 {
				t.Fatalf("the run was not interrupted\n%s%s", out, errOut)
			}
		}
		for i, want := range []bool{url, false} {
			if out := s.apply(0); strings.Contains(out, "The secret of forwards "+name) != want ||
				strings.Contains(out, "whsec_") != want ||
				!strings.Contains(out, "No changes: the team matches the file.\n") {
				t.Errorf("%s: run %d after the interruption prints\n%s", name, i+1, out)
			}
		}
		s.write(domain)
		s.apply(0, "--prune")
	}
}
