package dashboard_test

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// An email appears in the list, and its page explains the delivery. The mail itself is shown only in a sandboxed frame
// without scripts.
func TestEmail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		v.shows("/app/emails", 200, "Send your first email", "curl "+b.url+"/emails", "hello@acme.example")
		id := b.send("laura@example.org", "Your invoice <1>")
		b.eventually("the email is delivered", func() bool {
			return b.api("GET", "/emails/"+id, "")["last_event"] == "delivered"
		})
		v.shows("/app/emails", 200, `href="/app/emails/`+id+`"`, "laura@example.org", "Your invoice &lt;1&gt;")
		v.shows("/app/emails/"+id, 200, "Explain this delivery", "captured", "type:invoice", "API key production",
			`sandbox=""`, "Nobody")

		r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/app/emails/"+id+"/html", nil)
		b.must(err)
		w, err := v.c.Do(r)
		b.must(err)
		w.Body.Close()
		policy := w.Header.Get("Content-Security-Policy")
		if w.StatusCode != 200 || !strings.HasPrefix(policy, "sandbox; default-src 'none'") ||
			!strings.Contains(policy, "img-src data:;") {
			t.Errorf("the mail: %d, policy %q", w.StatusCode, policy)
		}
	})
}

// The list says in words why an email bounced, and finds it by its state and its recipient.
func TestBouncedEmail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		id := b.send("bounced@resend.dev", "To nobody")
		b.send("delivered@resend.dev", "To somebody")
		b.eventually("the email bounces", func() bool {
			return b.api("GET", "/emails/"+id, "")["last_event"] == "bounced"
		})
		v.shows("/app/emails", 200, `href="/app/emails/`+id+`"`, ">Unknown address</td>")
		v.shows("/app/emails/"+id, 200, "bounced@resend.dev", "Who must act")
	})
}

// Members do not see the emails of another team, and a form for one team changes nothing in another.
func TestOtherTeam(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		id := b.api("POST", "/emails", `{"from":"a@acme.example","to":"b@example.org","subject":"Later","text":"x",
			"scheduled_at":"in 2 hours"}`)["id"].(string)
		other := b.visitorOf(b.other.TeamID, teams.Owner)
		for _, path := range []string{"", "/html", "/files/" + id} {
			other.shows("/app/emails/"+id+path, 404)
		}
		for _, form := range []string{"/cancel", "/share", "/reschedule"} {
			if status, page := other.post("/app/emails/"+id+form, url.Values{"scheduled_at": {"in 3 hours"}}); status != 404 {
				t.Errorf("%s: %d\n%s", form, status, page)
			}
		}
		own := b.visitor(teams.Owner)
		if status, page := own.post("/app/emails/"+id+"/cancel", url.Values{"team": {b.other.TeamID}}); status != 403 ||
			!strings.Contains(page, "You chose another team") {
			t.Errorf("a form of another team: %d\n%s", status, page)
		}
		page := own.shows("/app/emails/"+id, 200, "Cancel email", "<dt>Accepted</dt>", "The email is scheduled for <time ")
		if strings.Contains(page, "<dt>Sent</dt>") || strings.Contains(page, " UTC and has not been sent") {
			t.Errorf("a scheduled email that looks sent, or a time in another zone:\n%s", page)
		}
		if status, page := own.post("/app/emails/"+id+"/reschedule",
			url.Values{"scheduled_at": {"the day before"}}); status != 422 ||
			!strings.Contains(page, `value="the day before"`) {
			t.Errorf("a time that cannot be read: %d\n%s", status, page)
		}
		if status, page := own.post("/app/emails/"+id+"/cancel", nil); status != 200 ||
			!strings.Contains(page, "The email is canceled.") {
			t.Errorf("cancel: %d\n%s", status, page)
		}
		if names := b.auditNames(); !strings.Contains(names, `"email.cancelled"`) { // the name that the API uses too
			t.Errorf("the audit log does not have the cancellation: %s", names)
		}
	})
}

// The form for a new email shows errors beside the fields and keeps what was typed.
func TestNewEmail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		v.shows("/app/emails/new", 200, "hello@acme.example")
		status, page := v.post("/app/emails/new", url.Values{"from": {"a@other.example"}, "to": {"x@example.org"},
			"subject": {"Typed <subject>"}, "text": {"x"}})
		if status < 400 || status > 499 || !strings.Contains(page, "Typed &lt;subject&gt;") ||
			!strings.Contains(page, "is not verified") {
			t.Errorf("a sender of another domain: %d\n%s", status, page)
		}
		status, page = v.post("/app/emails/new", url.Values{"from": {"a@acme.example"},
			"to": {`"Meyer, Laura" <laura@example.org>, b@example.org`}, "subject": {"Hello"}, "html": {"<p>x</p>"}})
		if status != 200 || !strings.Contains(page, "The email is accepted.") || !strings.Contains(page, "2 recipients") ||
			!strings.Contains(page, `<dt>Sent by</dt><dd class="any">`+v.user.Email+"</dd>") {
			t.Errorf("sent: %d\n%s", status, page)
		}

		// A form that is submitted twice sends one email. Another text, and 10,000 characters of three bytes, send more.
		count := func() int { return len(b.api("GET", "/emails", "")["data"].([]any)) }
		before := count()
		form := url.Values{"from": {"a@acme.example"}, "to": {"x@example.org"}, "subject": {"Once"}, "text": {"x"},
			"once": {"01890a5d-ac96-774b-bcce-b302099a8057"}}
		for range 2 {
			if status, page = v.post("/app/emails/new", form); status != 200 {
				t.Errorf("a repeated form: %d\n%s", status, page)
			}
		}
		form.Set("text", strings.Repeat("語", 10_000))
		if status, page = v.post("/app/emails/new", form); status != 200 || count() != before+2 {
			t.Errorf("%d emails after a repeated form and a long text, %d before: %d\n%.2000s", count(), before, status, page)
		}
		if status, _ := b.visitor(teams.Viewer).get("/app/emails/new"); status != 403 {
			t.Errorf("a viewer: %d", status)
		}
	})
}

// A form without scripts submits its empty fields too. They stay out of the address.
func TestEmptyFieldsLeaveAddress(t *testing.T) {
	t.Parallel()
	b := newBoard(t, map[string]string{"data_dir": t.TempDir()})
	v := b.visitor(teams.Viewer)
	v.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	for from, to := range map[string]string{
		"/app/emails?q=&status=bounced&tag=&in=7d": "/app/emails?status=bounced&in=7d",
		"/app/emails?q=":          "/app/emails",
		"/app/logs?q=%C3%A9&key=": "/app/logs?q=%C3%A9",
		"/app/domains/x?delete":   "",
		"/app/emails?q=a%3D":      "",
	} {
		r, err := v.c.Get(b.url + from)
		b.must(err)
		r.Body.Close()
		if got := r.Header.Get("Location"); got != to {
			t.Errorf("%s leads to %q: want %q", from, got, to)
		}
	}
}

// The form that sends an email starts with a sender that can be sent as it is: its name is quoted if it needs quotes,
// and its domain may send.
func TestDefaultSender(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		b.api("POST", "/domains", `{"name":"unverified.example"}`) // newer than acme.example
		v := b.visitor(teams.Owner)
		for _, name := range []string{`Acme, Inc.`, `The "Best" Company`, `Back\slash`, "Käse & Söhne, GmbH", "Acme"} {
			v.post("/app/settings/name", url.Values{"name": {name}})
			page := v.shows("/app/emails/new", 200)
			_, rest, _ := strings.Cut(page, `name="from"`)
			_, rest, _ = strings.Cut(rest, `value="`)
			value, _, _ := strings.Cut(rest, `"`)
			from := html.UnescapeString(value)
			if !strings.HasSuffix(from, " <hello@acme.example>") {
				t.Errorf("the sender of %s is %q", name, from)
			}
			status, page := v.post("/app/emails/new", url.Values{"from": {from}, "to": {"delivered@resend.dev"},
				"subject": {"One"}, "text": {"Hello"}})
			if status != 200 || !strings.Contains(page, "The email is accepted.") {
				t.Errorf("an email from %q: %d\n%s", from, status, page)
			}
			sent := b.api("GET", "/emails?limit=1", "")["data"].([]any)[0].(map[string]any)["from"].(string)
			if a, err := message.ParseAddress(sent); err != nil || a.Name != name {
				t.Errorf("%q was sent as %q", from, sent)
			}
		}
		other := b.visitorOf(b.other.TeamID, teams.Owner)
		if page := other.shows("/app/emails/new", 200); strings.Contains(page, "hello@") {
			t.Error("a team without a domain has a sender")
		}
	})
}

// The list does not say that an email was opened if its state is clicked, even if the open came after the click.
func TestOpenAfterClick(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		id := b.send("laura@example.org", "One")
		b.delivered(id)
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			return b.Recorder.Record(t.Context(), tx,
				events.Event{TeamID: b.acme.TeamID, EmailID: id, Type: events.EmailClicked, Recipient: "laura@example.org",
					At: b.DB.Now(), Data: &events.Click{Timestamp: b.DB.Now(), Link: "https://acme.example"}},
				events.Event{TeamID: b.acme.TeamID, EmailID: id, Type: events.EmailOpened, Recipient: "laura@example.org",
					At: b.DB.Now(), Data: &events.Open{Timestamp: b.DB.Now()}})
		}))
		page := v.shows("/app/emails?q="+id, 200, ">Clicked")
		_, table, _ := strings.Cut(page, "<tbody")
		if table, _, _ = strings.Cut(table, "</tbody>"); !strings.Contains(table, "Clicked") ||
			strings.Contains(table, "Opened") {
			t.Errorf("the row says:\n%s", table)
		}
	})
}

// A state that a newer release has stored is shown with its number, and hides no other email.
func TestUnknownState(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		id, other := b.send("a@example.org", "From the future"), b.send("b@example.org", "Other")
		b.delivered(id)
		b.delivered(other)
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE emails SET last_event = 99 WHERE id = $1`, db.ID(id))
			return err
		}))
		v.shows("/app/emails", 200, "Unknown state 99", "From the future", "Other")
		v.shows("/app/emails/"+id, 200, "Unknown state 99")
		if got := b.api("GET", "/emails/"+id, "")["last_event"]; got != "unknown_state_99" {
			t.Errorf("the API has the state %v", got)
		}
	})
}
