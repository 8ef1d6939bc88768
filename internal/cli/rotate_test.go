package cli

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
)

// After a rotation of the secret key, the node seals all secrets again, and old links go on working.
func TestRotateMasterKey(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		n := p.start()
		key := p.key("Acme")
		domain := n.made(key, "/domains", `{"name":"acme.example"}`)
		n.ask(key, http.MethodPost, "/domains/"+domain+"/verify", "")
		delivered := func() {
			t.Helper()
			eventually(t, "an email of the domain is delivered", func() bool {
				status, _ := n.ask(key, http.MethodPost, "/emails",
					`{"from":"a@acme.example","to":"bob@example.net","subject":"s","text":"t"}`)
				return status == http.StatusOK && n.count(`SELECT COUNT(*) FROM jobs WHERE kind = 'deliver'`) == 0
			})
		}
		delivered()
		webhook := n.made(key, "/webhooks", `{"endpoint":"http://127.0.0.1:9/","events":["email.bounced"]}`)
		receiving := n.made(key, "/domains", `{"name":"in.acme.example","capabilities":{"receiving":"enabled"}}`)
		rule := "/domains/" + receiving + "/forwards/" + n.made(key, "/domains/"+receiving+"/forwards",
			`{"match":"*","url":"http://127.0.0.1:9/mail"}`)
		n.ask(key, http.MethodPost, rule+"/signing-secret/rotate", "")
		id := n.withFile(key)
		_, text := n.ask(key, http.MethodPost, "/emails/"+id+"/share", `{"expires_in":"1 hour"}`)
		var shared struct{ URL string }
		if err := json.Unmarshal([]byte(text), &shared); err != nil || shared.URL == "" {
			t.Fatalf("share: %s", text)
		}
		_, link, _ := strings.Cut(shared.URL, "/shared")
		former := p.fact(db.FactKeyCheck)
		_, secret := n.ask(key, http.MethodGet, "/webhooks/"+webhook, "")
		_, ruleSecret := n.ask(key, http.MethodGet, rule, "")
		if !strings.Contains(ruleSecret, "whsec_") {
			t.Errorf("the forwarding rule is %s", ruleSecret)
		}
		n.end()

		file := filepath.Join(p.dir, "secret.key")
		p.must("keys", "rotate-master")
		if p.fact(db.FactKeyCheck) != former {
			t.Error("the check value has changed before the secrets were sealed again")
		}
		n = p.start()
		eventually(t, "the secrets are sealed again", func() bool { return p.fact(db.FactKeyCheck) != former })
		if status, _ := n.ask(key, http.MethodGet, "/shared"+link, ""); status == http.StatusOK {
			t.Error("a link that the former key signed until a time still works")
		}
		n.end()

		// The new key alone opens all secrets.
		both, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		now, _, _ := strings.Cut(string(both), "\n")
		if err := os.WriteFile(file, []byte(now), 0o600); err != nil {
			t.Fatal(err)
		}
		n = p.start()
		delivered()
		if _, text := n.ask(key, http.MethodGet, "/webhooks/"+webhook, ""); text != secret {
			t.Errorf("the webhook is %s, and was %s", text, secret)
		}
		if _, text := n.ask(key, http.MethodGet, rule, ""); text != ruleSecret {
			t.Errorf("the forwarding rule is %s, and was %s", text, ruleSecret)
		}
		n.end()
		if err := os.WriteFile(file, []byte(testSecretKey), 0o600); err != nil {
			t.Fatal(err)
		}
		p.refused("is not the one of this installation", "teams", "list")
	})
}
