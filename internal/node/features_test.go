package node

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/config"
)

// The log of a start says which features are off, and what that means.
func TestFeatures(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, args string
		on, off    []string // off: a feature, a colon, and a part of its effect
	}{
		{"defaults on a machine called vm", "", []string{"api", "delivery", "jobs"}, []string{
			"receiving: bounces and complaints are lost", "domains: would lead to vm, which",
			"notices: People cannot be invited", "public address: http://localhost:8080",
			"https: Set https_listen", "submission: Add submission to roles",
			"domains set up by one DNS record: Set dns_names", "retention of sent emails: Set email_retention"}},
		{"relay", "--transport=relay --relay-addr=relay.example:25", []string{"domains"}, []string{"receiving: lost"}},
		{"all", "--hostname=mail.example.com --roles=api,delivery,jobs,receiving,submission --notice-from=a@example.com " +
			"--public-url=https://mail.example.com --feedback-address=fbl@example.com --email-retention=2160h",
			[]string{"https", "domains", "notices", "public address", "receiving", "submission", "feedback loops",
				"retention of sent emails", "checks of received mail"}, []string{"certificate for SMTP: tls_cert_file", "content filter: Set milter"}},
	} {
		given := map[string]string{}
		for arg := range strings.FieldsSeq(c.args) {
			name, value, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
			given[name] = value
		}
		loaded, err := config.Load(config.Source{Given: given, Environ: func() []string { return nil },
			Hostname: func() (string, error) { return "vm", nil }})
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]Feature{}
		for _, f := range Features(loaded) {
			have[f.Name] = f
		}
		for _, name := range c.on {
			if f, ok := have[name]; !ok || !f.On {
				t.Errorf("%s: %s is not on", c.name, name)
			}
		}
		for _, line := range c.off {
			name, effect, _ := strings.Cut(line, ": ")
			if f := have[name]; f.On || !strings.Contains(f.Effect, effect) {
				t.Errorf("%s: %s is on, or has the effect %q", c.name, name, f.Effect)
			}
		}
	}
}
