package dashboard_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
)

// receiver is a server that takes webhooks. It fails while broken is set.
type receiver struct {
	*httptest.Server
	broken atomic.Bool
	calls  atomic.Int64
}

func newReceiver(t *testing.T) *receiver {
	x := &receiver{}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		x.calls.Add(1)
		if x.broken.Load() {
			w.WriteHeader(http.StatusInternalServerError)
			io.WriteString(w, `{"error":"<database> is down"}`)
			return
		}
		io.WriteString(w, `{"taken":true}`)
	}))
	t.Cleanup(x.Close)
	return x
}

var secretShown = regexp.MustCompile(`data-copy="(whsec_[^"]+)"`)

// addWebhook adds a webhook by the form and returns its id and its secret.
func (v *visitor) addWebhook(form url.Values) (id, secret string) {
	v.t.Helper()
	status, page := v.post("/app/webhooks/new", form)
	found := regexp.MustCompile(`href="/app/webhooks/([0-9a-f-]{36})"`).FindStringSubmatch(page)
	secrets := secretShown.FindStringSubmatch(page)
	if status != 200 || found == nil || secrets == nil {
		v.t.Fatalf("add a webhook: %d\n%s", status, page)
	}
	return found[1], strings.ReplaceAll(secrets[1], "&#43;", "+")
}

// auditNames returns the actions of Acme's audit log.
func (b *board) auditNames() string {
	b.t.Helper()
	text, err := json.Marshal(b.api("GET", "/audit?limit=100", "")["data"])
	b.must(err)
	return string(text)
}

// A member adds a webhook, sees the secret once, changes the webhook, rotates its secret, and deletes it after typing
// its host.
func TestWebhook(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Admin)
		v.shows("/app/webhooks", 200, "Receive events as they happen", "Add webhook")
		for _, x := range []struct {
			form url.Values
			says string
		}{
			{url.Values{"endpoint": {""}, "which": {"all"}}, "endpoint"},
			{url.Values{"endpoint": {"ftp://x.example/<h>"}, "which": {"all"}}, "ftp://x.example/&lt;h&gt;"},
			{url.Values{"endpoint": {"https://app.example/hook"}, "which": {"some"}}, "Choose at least one event."},
			{url.Values{"endpoint": {"https://app.example/hook"}, "which": {"some"}, "events": {"email.eaten"}}, "email.eaten"},
		} {
			if status, page := v.post("/app/webhooks/new", x.form); status < 400 || status > 499 ||
				!strings.Contains(page, x.says) || !strings.Contains(page, "wrong") {
				t.Errorf("%v: %d\n%s", x.form, status, page)
			}
		}
		id, secret := v.addWebhook(url.Values{"endpoint": {"https://app.example/hook?token=hidden"}, "which": {"some"},
			"events": {"email.sent", "email.bounced"}})
		path := "/app/webhooks/" + id
		if page := v.shows(path, 200, "app.example/hook?token=hidden", "email.bounced",
			"No event yet"); strings.Contains(page, secret) {
			t.Error("the page of a webhook shows its secret")
		}
		v.shows("/app/webhooks", 200, `href="`+path+`"`, "email.sent, email.bounced", "Enabled")
		if status, page := v.post(path+"/secret", nil); status != 200 ||
			!strings.Contains(strings.ReplaceAll(page, "&#43;", "+"), secret) {
			t.Errorf("reveal: %d\n%s", status, page)
		}
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE webhooks SET disabled_reason =
				'Every attempt since 2026-11-12 09:14 UTC failed.' WHERE id = $1`, db.ID(id))
			return err
		}))
		v.shows(path, 200, `Every attempt since <time datetime="2026-11-12T09:14:00.000Z"`)
		v.shows(path+"/rotate", 200, "For 24 hours")
		status, page := v.post(path+"/rotate", nil)
		if rotated := secretShown.FindStringSubmatch(page); status != 200 || rotated == nil ||
			strings.ReplaceAll(rotated[1], "&#43;", "+") == secret {
			t.Errorf("rotate: %d\n%s", status, page)
		}
		v.shows(path+"/edit", 200, "https://app.example/hook?token=hidden", `value="email.sent" checked`)
		if status, page := v.post(path+"/edit", url.Values{"endpoint": {"not a url"}, "which": {"all"}}); status < 400 ||
			!strings.Contains(page, "not a url") {
			t.Errorf("edit with a wrong URL: %d\n%s", status, page)
		}
		if status, page := v.post(path+"/edit",
			url.Values{"endpoint": {"https://app.example/new"}, "which": {"all"}}); status != 200 ||
			!strings.Contains(page, "The webhook is saved.") || !strings.Contains(page, "app.example/new") {
			t.Errorf("edit: %d\n%s", status, page)
		}
		v.shows("/app/webhooks", 200, "All events")
		if status, page := v.post(path+"/status", url.Values{"status": {"gone"}}); status != 422 {
			t.Errorf("a wrong status: %d\n%s", status, page)
		}
		if status, page := v.post(path+"/status", url.Values{"status": {"disabled"}}); status != 200 ||
			!strings.Contains(page, "Enable webhook") {
			t.Errorf("disable: %d\n%s", status, page)
		}
		if status, page := v.post(path+"/recover", url.Values{"in": {"24h"}}); status != 422 ||
			!strings.Contains(page, "disabled") {
			t.Errorf("recover a disabled webhook: %d\n%s", status, page)
		}
		v.shows(path+"/delete", 200, "Type app.example to confirm")
		if status, page := v.post(path+"/delete", url.Values{"confirm": {"app"}}); status != 422 ||
			!strings.Contains(page, "differs from app.example") {
			t.Errorf("delete without confirmation: %d\n%s", status, page)
		}
		if status, page := v.post(path+"/delete", url.Values{"confirm": {"app.example"}}); status != 200 ||
			!strings.Contains(page, "The webhook is deleted.") {
			t.Errorf("delete: %d\n%s", status, page)
		}
		v.shows(path, 404)
		names := b.auditNames()
		for _, action := range []string{"webhook.created", "webhook.secret_shown", "webhook.secret_rotated",
			"webhook.updated", "webhook.deleted"} {
			if !strings.Contains(names, `"`+action+`"`) {
				t.Errorf("the audit log lacks %s: %s", action, names)
			}
		}
	})
}

// A viewer sees neither the query of a webhook's URL nor its secret nor forms. Another team sees nothing.
func TestWebhookOfOthers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		id, secret := b.visitor(teams.Owner).addWebhook(url.Values{"endpoint": {"https://app.example/hook?token=hidden"},
			"which": {"all"}})
		path := "/app/webhooks/" + id
		viewer := b.visitor(teams.Viewer)
		for _, at := range []string{"/app/webhooks", path} {
			page := viewer.shows(at, 200, "app.example/hook")
			for _, hidden := range []string{"token=hidden", secret, "/new", "/edit", "/rotate", "/delete"} {
				if strings.Contains(page, `/app/webhooks`+hidden) || strings.Contains(page, path+hidden) ||
					strings.Contains(page, hidden) && !strings.HasPrefix(hidden, "/") {
					t.Errorf("%s shows %s to a viewer:\n%s", at, hidden, page)
				}
			}
		}
		message := "/messages/msg_01890a5dac96774bbcceb302099a8057"
		viewer.shows(path+message, 404)
		viewer.shows(path+"/messages/x", 404)
		viewer.shows(path+"?after=x", 404)
		other := b.visitorOf(b.other.TeamID, teams.Owner)
		for _, at := range []string{"", "/edit", "/rotate", "/recover", "/delete", message} {
			other.shows(path+at, 404)
		}
		for _, at := range []string{"/edit", "/status", "/secret", "/rotate", "/recover", "/delete", message + "/replay"} {
			if status, page := other.post(path+at, url.Values{"endpoint": {"https://x.example"}, "which": {"all"},
				"status": {"disabled"}, "in": {"24h"}, "confirm": {"app.example"}}); status != 404 {
				t.Errorf("%s of another team: %d\n%s", at, status, page)
			}
		}
	})
}

// The page of a message shows each attempt with the response and sends the event again. Failing webhooks are counted in
// the navigation.
func TestWebhookMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		to := newReceiver(t)
		to.broken.Store(true)
		v := b.visitor(teams.Admin)
		id, _ := v.addWebhook(url.Values{"endpoint": {to.URL + "/hook"}, "which": {"some"}, "events": {"email.sent"}})
		path := "/app/webhooks/" + id
		email := b.send("laura@example.org", "Invoice")
		var message string
		link := regexp.MustCompile(`href="(` + path + `/messages/msg_\w+)"`)
		b.eventually("the attempt fails", func() bool {
			_, page := v.get(path + "?status=attempting")
			if m := link.FindStringSubmatch(page); m != nil {
				message = m[1]
			}
			return message != ""
		})
		v.shows(path, 200, "Failing", "Every known attempt fails.", "Retrying")
		v.shows(path+"?status=success", 200, "No message is delivered")
		v.shows("/app/webhooks", 200, `<span class="count due">1<span class="unseen"> failing</span></span>`)
		v.shows(message, 200, "email.sent", "500 Internal Server Error", "&lt;database&gt; is down",
			`href="/app/emails/`+email+`"`, "Next <time", "&#34;email_id&#34;: &#34;"+email+"&#34;")

		to.broken.Store(false)
		if status, page := v.post(message+"/replay", nil); status != 200 || !strings.Contains(page, "is being sent again") ||
			!strings.Contains(page, "hx-get") {
			t.Errorf("replay: %d\n%s", status, page)
		}
		b.eventually("the replayed event is delivered", func() bool {
			_, page := v.get(message)
			return strings.Contains(page, "200 OK") && strings.Contains(page, "taken") && strings.Contains(page, "Delivered")
		})
		if status, page := v.post(path+"/recover", url.Values{"in": {"since"}, "since": {"yesterday"}}); status != 422 ||
			!strings.Contains(page, "Enter a time in ISO 8601") || !strings.Contains(page, `value="yesterday"`) {
			t.Errorf("recover since a wrong time: %d\n%s", status, page)
		}
		if status, page := v.post(path+"/recover", url.Values{"in": {"24h"}}); status != 200 ||
			!strings.Contains(page, "are being sent again") {
			t.Errorf("recover: %d\n%s", status, page)
		}
		v.post(path+"/status", url.Values{"status": {"disabled"}})
		if status, page := v.post(message+"/replay", nil); status != 422 || !strings.Contains(page, "disabled") {
			t.Errorf("replay to a disabled webhook: %d\n%s", status, page)
		}
		names := b.auditNames()
		for _, action := range []string{"webhook.event_replayed", "webhook.recovered"} {
			if !strings.Contains(names, `"`+action+`"`) {
				t.Errorf("the audit log lacks %s: %s", action, names)
			}
		}
	})
}
