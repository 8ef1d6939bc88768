package cli

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/sending/domains"
)

// The command begins a rotation of the keys of a verified domain, and records it in the team's audit log.
func TestRotateKeysCommand(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_TRUST_DOMAINS"] = "true"
		id := p.must("teams", "create", "Acme")
		n, pr := p.start(), &printer{p, map[string]bool{}}
		for _, name := range []string{"acme.example", "shop.example"} {
			if _, err := n.Domains.AddVerified(t.Context(), id, domains.NewDomain{Name: name}); err != nil {
				t.Fatal(err)
			}
		}
		out := p.must("domains", "rotate-keys", "Acme.example")
		keys, next, _ := strings.Cut(out, "\n\n")
		if strings.Count(keys, "\n") != 3 || strings.Count(keys, "next") != 2 ||
			!strings.HasPrefix(next, "Next: the owner of the domain adds the TXT records") || !strings.Contains(out, "v=DKIM1; k=ed25519") {
			t.Errorf("%s", out)
		}
		got := pr.json("domains", "rotate-keys", "shop.example", "--emergency")
		if all, _ := got["keys"].([]any); len(all) != 4 || got["domain"] != "shop.example" || got["team_id"] != id {
			t.Errorf("%v", got)
		}
		p.refused("no team has added the domain", "domains", "rotate-keys", "other.example")
		p.refused("DOMAIN is missing", "domains", "rotate-keys")
		entries := p.must("audit", "export", "--team", id, "--format", "ndjson", "--action", "domain.keys_rotated")
		if strings.Count(entries, "domain.keys_rotated") != 2 || strings.Count(entries, `"command: ordinary; signing: `) != 1 ||
			strings.Count(entries, `"command: emergency; signing: `) != 1 {
			t.Errorf("%s", entries)
		}
	})
}

// The owner of a delegated domain has nothing to do after a rotation.
func TestAfterRotation(t *testing.T) {
	d := domains.Domain{Name: "mail.acme.example", Setup: domains.SetupDelegation}
	if text := afterRotation(&d); !strings.HasPrefix(text, "Next: nothing.") {
		t.Errorf("%s", text)
	}
}
