package dashboard_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// wrongText matches the sentences beside fields and above forms.
var wrongText = regexp.MustCompile(`(?s)<p class="wrong"[^>]*>(.*?)</p>|<div class="banner bad"[^>]*>(.*?)</div></div>`)

// A refused form says what is wrong in the words of the page, beside the field, not with the names of the API.
func TestRefusedFormsNameLabels(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Owner)
		scheduled := b.api("POST", "/emails", `{"from":"a@acme.example","to":"b@example.org","subject":"Later","text":"x",
			"scheduled_at":"in 2 hours"}`)["id"].(string)
		domain := b.api("GET", "/domains", "")["data"].([]any)[0].(map[string]any)["id"].(string)
		email := url.Values{"from": {"a@acme.example"}, "to": {"b@example.org"}, "subject": {"S"}, "text": {"T"}}
		with := func(name, value string) url.Values {
			form := url.Values{name: {value}}
			for k, v := range email {
				if k != name {
					form[k] = v
				}
			}
			return form
		}
		long := strings.Repeat("x", 300)
		for _, x := range []struct {
			path string
			form url.Values // of a POST request; nil for a list
			id   string     // of the element with the sentence; "" for a banner
			says string
		}{
			{"/app/logs?status=abc", nil, "search-error", "The status must be a class such as 4xx"},
			{"/app/logs?method=FETCH", nil, "search-error", "The method must be one of GET"},
			{"/app/logs?path=%2F" + strings.Repeat("x", 5000), nil, "search-error", "The path is longer than"},
			{"/app/suppressions?q=nobody", nil, "search-error", "address"},
			{"/app/suppressions?origin=other", nil, "search-error", "The reason must be bounce, complaint or manual"},
			{"/app/emails?tag=" + strings.Repeat("x", 600), nil, "search-error", "The tag is longer than"},
			{"/app/emails/new", with("from", "nobody"), "from-error", "Use email@example.com"},
			{"/app/emails/new", with("to", "nobody"), "to-error", "Use email@example.com"},
			{"/app/emails/new", with("to", strings.Repeat("b@example.org,", 60)), "to-error", "This field has 60 addresses"},
			{"/app/emails/new", with("subject", ""), "subject-error", "Enter a value"},
			{"/app/emails/new", with("text", ""), "html-error", "Enter “HTML” or “Text”"},
			{"/app/emails/new", with("scheduled_at", "the day before"), "scheduled_at-error", ""},
			{"/app/emails/" + scheduled + "/reschedule", url.Values{"scheduled_at": {"the day before"}}, "at-error", ""},
			{"/app/domains/new", url.Values{"name": {"no domain"}}, "name-error", "This must be a domain name"},
			{"/app/domains/" + domain + "/settings", url.Values{"tls": {"other"}, "sending": {"1"}}, "tls-error", ""},
			{"/app/domains/" + domain + "/settings", url.Values{"tls": {"opportunistic"}}, "use-error", "at least one use"},
			{"/app/keys/new", url.Values{"name": {long}, "permission": {"full_access"}}, "name-error", "This must have at most"},
			{"/app/keys/new", url.Values{"name": {"a"}, "permission": {"other"}}, "permission-error", "This must be"},
			{"/app/webhooks/new", url.Values{"endpoint": {"nowhere"}, "events": {"email.sent"}}, "endpoint-error", ""},
			{"/app/suppressions/add", url.Values{"addresses": {"nobody"}}, "addresses-error", ""},
			{"/app/settings/name", url.Values{"name": {""}}, "name-error", "Enter a value"},
			{"/app/settings/name", url.Values{"name": {long}}, "name-error", ""},
		} {
			status, page := 0, ""
			if x.form == nil {
				status, page = v.get(x.path)
			} else {
				status, page = v.post(x.path, x.form)
			}
			path, _, _ := strings.Cut(x.path, "xxxx")
			if status != 422 {
				t.Errorf("%s %.80s: %d", path, x.form.Encode(), status)
			}
			said := ""
			for _, m := range wrongText.FindAllStringSubmatch(page, -1) {
				if strings.Contains(m[0], `id="`+x.id+`"`) {
					said = m[1]
				}
				if strings.Contains(m[0], "`") {
					t.Errorf("%s %.80s says %s", path, x.form.Encode(), m[0])
				}
			}
			if said == "" || !strings.Contains(said, x.says) {
				t.Errorf("%s %.80s: %q beside the field, want %q", path, x.form.Encode(), said, x.says)
			}
		}
	})
}
