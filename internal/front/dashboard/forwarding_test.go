package dashboard_test

import (
	"context"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

var signingSecret = regexp.MustCompile(`whsec_[\w+/]{43}=`)

// A member creates a rule, switches it off and on, and deletes it. Others see what they may.
func TestForwarding(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		id := b.api("POST", "/domains", `{"name":"in.acme.example"}`)["id"].(string)
		path := "/app/domains/" + id + "/forwarding"
		if page := v.shows(path, 200, "No forwarding rules", "does not receive mail"); strings.Contains(page, "Create rule") {
			t.Error("a domain that does not receive mail has a form for rules")
		}
		b.api("PATCH", "/domains/"+id, `{"capabilities":{"receiving":"enabled"}}`)
		v.shows("/app/domains/"+id, 200, path)
		if page := v.shows("/app/domains/"+id+"/settings", 200, "MTA-STS policy", "must not be “Enforce”"); strings.Contains(page, "`") {
			t.Errorf("the settings have names of fields as the API has them:\n%s", page)
		}
		v.shows(path, 200, "Received mail of this domain is only stored", "Create rule")
		for _, test := range []struct{ match, address, says string }{
			{"", "https://hooks.example.net/x", "match"},
			{"sales*", "https://hooks.example.net/x", "whole local part"},
			{"sales", "", "address"},
			{"sales", "<script>", "&lt;script&gt;"},
			{"sales", "ftp://hooks.example.net", "must"},
			{"sales", "bob@b.example", "notice_from"},
		} {
			status, page := v.post(path, url.Values{"match": {test.match}, "address": {test.address}})
			if status != 422 && status != 400 || !strings.Contains(page, test.says) {
				t.Errorf("%q to %q: %d\n%s", test.match, test.address, status, page)
			}
		}
		status, page := v.post(path, url.Values{"match": {"Sales"}, "address": {"https://hooks.example.net/x?k=s3cr3t"}})
		created := signingSecret.FindString(html.UnescapeString(page))
		if status != 200 || !strings.Contains(page, "The rule is active.") || created == "" {
			t.Fatalf("create: %d\n%s", status, page)
		}
		page = v.shows(path, 200, "x?k=s3cr3t", "Show secret", "Rotate secret")
		rule := regexp.MustCompile(path + `/[0-9a-f-]{36}`).FindString(page)
		if strings.Contains(html.UnescapeString(page), created) {
			t.Error("the list of rules has the secret")
		}
		if status, page := v.post(rule+"/secret", nil); status != 200 || signingSecret.FindString(html.UnescapeString(page)) != created ||
			!strings.Contains(page, "Back to rules") {
			t.Errorf("show the secret: %d\n%s", status, page)
		}
		v.shows(rule+"/rotate", 200, "Rotate the signing secret?", "hooks.example.net/x?k=s3cr3t")
		status, page = v.post(rule+"/rotate", nil)
		if rotated := signingSecret.FindString(html.UnescapeString(page)); status != 200 || rotated == "" || rotated == created {
			t.Errorf("rotate: %d, from %s to %s\n%s", status, created, rotated, page)
		}
		if status, page := v.post(rule+"/switch", url.Values{"enabled": {"0"}}); status != 200 ||
			!strings.Contains(page, "The rule is switched off.") || !strings.Contains(page, "Switch on") {
			t.Errorf("off: %d\n%s", status, page)
		}
		if status, page := v.post(rule+"/switch", url.Values{"enabled": {"1"}}); status != 200 ||
			!strings.Contains(page, "The rule is switched on.") {
			t.Errorf("on: %d\n%s", status, page)
		}
		if status, page := v.post(rule+"/ask", nil); status != 422 || !strings.Contains(page, "does not wait") {
			t.Errorf("ask: %d\n%s", status, page)
		}
		page = b.visitor(teams.Viewer).shows(path, 200, "hooks.example.net/x?[redacted]")
		if strings.Contains(page, "Switch o") || strings.Contains(page, "Create rule") || strings.Contains(page, "s3cr3t") {
			t.Errorf("a viewer sees forms or credentials:\n%s", page)
		}
		if status, _ := b.visitor(teams.Viewer).post(rule+"/secret", nil); status != 403 {
			t.Errorf("a viewer asks for the secret: %d", status)
		}
		other := b.visitorOf(b.other.TeamID, teams.Owner)
		other.shows(path, 404)
		other.shows(rule+"/rotate", 404)
		for _, action := range []string{"/delete", "/secret", "/rotate"} {
			if status, _ := other.post(rule+action, nil); status != 404 {
				t.Errorf("%s of another team's rule: %d", action, status)
			}
		}
		if status, page := v.post(rule+"/delete", nil); status != 200 || !strings.Contains(page, "The rule is deleted.") ||
			!strings.Contains(page, "No forwarding rules") {
			t.Errorf("delete: %d\n%s", status, page)
		}
		names := b.auditNames()
		for _, name := range []string{"domain.forward_created", "domain.forward_updated", "domain.forward_deleted",
			"domain.forward_secret_shown", "domain.forward_secret_rotated"} {
			if !strings.Contains(names, name) {
				t.Errorf("the audit log has no %s: %s", name, names)
			}
		}
		log := b.visitor(teams.Admin).shows("/app/settings/audit", 200)
		for _, words := range []string{"created", "changed", "deleted", "looked at the signing secret of",
			"rotated the signing secret of"} {
			if words += " a forwarding rule of the domain"; !strings.Contains(log, words) {
				t.Errorf("the page of the audit log has no %q", words)
			}
		}
	})
}

// The page of an email that a rule forwarded leads to the rules. It does not judge the author's domain as the team's own.
func TestForwardedEmail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		domain := b.api("GET", "/domains", "")["data"].([]any)[0].(map[string]any)["id"].(string)
		to, err := message.ParseAddress("laura@example.org")
		b.must(err)
		email, err := b.Emails.Forward(t.Context(), emails.Forward{TeamID: b.acme.TeamID, DomainID: domain, RuleID: id.New(),
			From: "author@elsewhere.example", Subject: "Hello", MessageID: "<1@elsewhere.example>", To: to,
			Message: []byte("From: author@elsewhere.example\r\nMessage-ID: <1@elsewhere.example>\r\nSubject: Hello\r\n\r\nHello\r\n")},
			func(context.Context, *db.Tx, string) error { return nil })
		b.must(err)
		v, path := b.visitor(teams.Admin), "/app/emails/"+email
		page := v.shows(path, 200, "A rule forwarded this email as it was received.", "Another author wrote this email",
			`/app/domains/`+domain+`/forwarding">A forwarding rule`)
		for _, wrong := range []string{"has no text", "is not verified", "no key to sign with"} {
			if strings.Contains(page, wrong) {
				t.Errorf("the page says %q", wrong)
			}
		}
		v.shows(path+"?view=raw", 200, "This is the message as a rule forwarded it")
	})
}
