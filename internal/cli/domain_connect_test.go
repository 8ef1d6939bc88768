package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/sending/domainconnect"
)

// The commands print the template and the records of the key, of which each call prints the same.
func TestDomainConnectCommands(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.start()
		p.refused("domain_connect_provider", "domain-connect", "template")
		p.refused("domain_connect_provider", "domain-connect", "key")
		p.vars["POSTRIDER_DOMAIN_CONNECT_PROVIDER"] = "mail.example.net"
		var template domainconnect.Template
		if err := json.Unmarshal([]byte(p.must("domain-connect", "template")), &template); err != nil ||
			template.ProviderID != "mail.example.net" || template.ServiceID != "email" || len(template.Records) != 6 ||
			template.SyncPubKeyDomain != "mail.example.net" {
			t.Errorf("template %+v, %v", template, err)
		}
		first := p.must("domain-connect", "key")
		lines := strings.Count(first, "_dck1.mail.example.net. 3600 IN TXT \"p=")
		if lines < 2 || !strings.Contains(first, "\"p=1,a=RS256,t=x509,d=MII") {
			t.Errorf("%s", first)
		}
		if again := p.must("domain-connect", "key"); again != first {
			t.Errorf("another key: %s", again)
		}
		pr := &printer{p, map[string]bool{}}
		if data, _ := pr.json("domain-connect", "key")["data"].([]any); len(data) != lines {
			t.Errorf("records %v", data)
		}
	})
}
