package cli

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The owner of a domain gets an email when another team claims the domain, and a second email when that claim is
// proven.
func TestOwnersAreToldOfClaims(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.vars["POSTRIDER_NOTICE_FROM"] = "Postrider <notices@resend.dev>"
		operator := p.key("Operator")
		owner := p.key("Acme", "--email", "owner@acme.example")
		other := p.key("Other")
		n := p.start()
		ask := func(key, method, path, body string, out any) {
			t.Helper()
			status, text := n.ask(key, method, path, body)
			if status/100 != 2 {
				t.Fatalf("%s %s: %d %s", method, path, status, text)
			}
			if err := json.Unmarshal([]byte(text), out); err != nil {
				t.Fatal(err)
			}
		}
		var domain struct{ ID, Status string }
		ask(owner, http.MethodPost, "/domains", `{"name":"acme.example"}`, &domain)
		ask(owner, http.MethodPost, "/domains/"+domain.ID+"/verify", "", &domain)
		eventually(t, "the domain is verified", func() bool {
			ask(owner, http.MethodGet, "/domains/"+domain.ID, "", &domain)
			return domain.Status == "verified"
		})
		team, err := n.Teams.Find(t.Context(), "Acme")
		if err != nil {
			t.Fatal(err)
		}
		sent := func(id string) bool {
			t.Helper()
			lately, err := n.Domains.SentSince(t.Context(), team.ID, id, time.Now().Add(-time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			return lately
		}
		if sent(domain.ID) {
			t.Error("an email was sent before there was one")
		}
		var email struct{ ID string }
		ask(owner, http.MethodPost, "/emails", `{"from":"a@acme.example","to":"b@one.example","subject":"s","text":"t"}`,
			&email)
		eventually(t, "it is known that an email was sent", func() bool { return sent(domain.ID) })
		if sent(email.ID) {
			t.Error("it was sent from any domain")
		}
		var claim struct {
			DomainID string `json:"domain_id"`
			Status   string
			Blocked  string `json:"blocked_reason"`
		}
		told := func(subject string) {
			t.Helper()
			eventually(t, "the owner is told: "+subject, func() bool {
				var list struct {
					Data []struct {
						Subject string
						To      []string
					}
				}
				ask(operator, http.MethodGet, "/emails", "", &list)
				for _, e := range list.Data {
					if e.Subject == subject && strings.Join(e.To, " ") == "owner@acme.example" {
						return true
					}
				}
				return false
			})
		}
		ask(other, http.MethodPost, "/domains/claim", `{"name":"acme.example"}`, &claim)
		told("A team claims your domain acme.example")
		ask(other, http.MethodPost, "/domains/"+claim.DomainID+"/claims/verify", "", &claim)
		told("Your domain acme.example is about to go to another team")
		if ask(other, http.MethodGet, "/domains/"+claim.DomainID+"/claim", "", &claim); claim.Status != "blocked" ||
			claim.Blocked != "grace_period" {
			t.Errorf("the claim: %+v", claim)
		}
	})
}
