package dashboard_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// sendJSON sends an email by the API, waits until it is delivered, and returns its id.
func (b *board) sendJSON(email map[string]any) string {
	b.t.Helper()
	body, err := json.Marshal(email)
	b.must(err)
	id := b.api("POST", "/emails", string(body))["id"].(string)
	b.delivered(id)
	return id
}

func (b *board) delivered(id string) {
	b.t.Helper()
	b.eventually("the email is delivered", func() bool {
		e, err := b.Emails.Get(b.t.Context(), b.acme.TeamID, id)
		b.must(err)
		return e.LastEvent == emails.Delivered
	})
}

// captured returns the message that the node delivered, which a node with the transport capture keeps.
func (b *board) captured(id string) []byte {
	b.t.Helper()
	all, err := b.Outbox.All(b.t.Context())
	b.must(err)
	for _, m := range all {
		if m.EmailID != id {
			continue
		}
		r, err := b.Outbox.Open(b.t.Context(), m.ID)
		b.must(err)
		defer r.Close()
		raw, err := io.ReadAll(r)
		b.must(err)
		return raw
	}
	b.t.Fatalf("no message of the email %s is captured", id)
	return nil
}

// file requests a file and returns the response's header and body.
func (v *visitor) file(path string) (http.Header, string) {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), "GET", v.url+path, nil)
	v.must(err)
	w, err := v.c.Do(r)
	v.must(err)
	defer w.Body.Close()
	body, err := io.ReadAll(w.Body)
	v.must(err)
	if w.StatusCode != 200 {
		v.t.Fatalf("GET %s: %d %s", path, w.StatusCode, body)
	}
	return w.Header, string(body)
}

// Each view of the content has an address. The message that the page composes is the delivered one without its
// signature, and a browser that shows it runs nothing.
func TestEmailViews(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		id := b.sendJSON(map[string]any{"from": "Acme <billing@acme.example>", "to": "laura@example.org",
			"cc": "ops@example.org", "subject": "Grüße", "html": `<h1>Invoice</h1><a href="http://acme.example">Pay</a>`,
			"attachments": []map[string]string{{"filename": "invoice.txt", "content": "aGVsbG8="}}})
		at := "/app/emails/" + id
		v.shows(at, 200, `aria-current="page"`, `src="`+at+`/html"`, `class="paper"`)
		v.shows(at+"?width=phone&dark=1", 200, `class="paper phone dark"`, `src="`+at+`/html"`)
		// Until a width is chosen, the preview fits the window, which on a phone is the view Phone.
		narrow := `<div class="seg seg-s" role="group" aria-label="Width">`
		v.shows(at, 200, narrow)
		if page := v.shows(at+"?width=desktop", 200, `class="paper desktop"`); strings.Contains(page, narrow) {
			t.Error("a chosen width is not that of the window")
		}
		v.shows(at+"?view=text", 200, "Postrider made this one from the HTML", "Invoice")
		v.shows(at+"?view=source", 200, "&lt;h1&gt;Invoice&lt;/h1&gt;", at+"/html?download=1")
		v.shows(at+"?view=headers", 200, "<td class=\"wrap\">Message-ID</td>", "Grüße", "DKIM signature")
		v.shows(at+"?view=raw", 200, "Subject: =?UTF-8?", at+"/raw", "aGVsbG8=")
		v.shows(at+"?view=attachments", 200, "invoice.txt", "5 bytes")
		v.shows(at+"?view=nonsense&recipient=ops@example.org", 200, `src="`+at+`/html"`, "view=raw")

		header, raw := v.file(at + "/raw")
		if delivered := b.captured(id); !bytes.HasSuffix(delivered, []byte(raw)) || len(raw) == 0 {
			t.Errorf("the delivered message is\n%s\nand the downloaded one\n%s", delivered, raw)
		}
		if header.Get("Content-Type") != "message/rfc822" || !strings.HasPrefix(header.Get("Content-Security-Policy"),
			"sandbox; default-src 'none'") || !strings.HasPrefix(header.Get("Content-Disposition"), "attachment") {
			t.Errorf("the download has %v", header)
		}
		header, text := v.file(at + "/raw?as=text")
		if !strings.HasPrefix(header.Get("Content-Type"), "text/plain") || text != raw ||
			header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("the message as text: %v", header)
		}
		header, html := v.file(at + "/html?download=1")
		if !strings.HasPrefix(html, "<h1>Invoice") || !strings.HasPrefix(header.Get("Content-Security-Policy"), "sandbox") {
			t.Errorf("the HTML: %v %s", header, html)
		}
		b.visitorOf(b.other.TeamID, teams.Owner).shows(at+"/raw", 404)
	})
}

// The page runs the checks that need no network, and names what a check found.
func TestEmailChecks(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		id := b.sendJSON(map[string]any{"from": "no-reply@acme.example", "to": "laura@example.org", "subject": "Pay",
			"html": `<p>Pay <a href="http://acme.example/pay">here</a>.</p>`})
		page := v.shows("/app/emails/"+id, 200, `id="checks"`, "passed</p>", "no-reply@acme.example, which invites nobody",
			"http://acme.example/pay", "Checked now")
		if strings.Contains(page, "was not looked up") {
			t.Error("the page shows checks that need the DNS")
		}
		v.shows("/app/emails/"+id+"?checks=all", 200, "The DMARC record of acme.example was not looked up")
		large := b.sendJSON(map[string]any{"from": "billing@acme.example", "to": "laura@example.org", "subject": "Long",
			"text": strings.Repeat("word ", 60_000)})
		v.shows("/app/emails/"+large, 200, "Run the checks")
		v.shows("/app/emails/"+large+"?checks=all", 200, "passed</p>")
	})
}

// Once the content is deleted, each view says so, and the rest of the page stays.
func TestEmailWithoutContent(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		id := b.sendJSON(map[string]any{"from": "billing@acme.example", "to": "laura@example.org", "subject": "Gone",
			"html": "<p>x</p>"})
		for next := "first"; next != ""; {
			var err error
			next, err = b.Emails.RemoveBodies(t.Context(), b.acme.TeamID, b.DB.Now().Add(time.Hour), "")
			b.must(err)
		}
		for _, view := range []string{"", "?view=text", "?view=source", "?view=headers", "?view=raw", "?checks=all"} {
			v.shows("/app/emails/"+id+view, 200, "is not kept any more", "Explain this delivery", "cannot be checked")
		}
		v.shows("/app/emails/"+id+"/raw", 404)
		v.shows("/app/emails/"+id+"/html", 404)
	})
}

// Content of every size and kind is shown as text, or a sentence says why not and where it is.
func TestHostileEmail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		const hostile = `<script>alert(1)</script><form action="/app/keys/new"><input name="x"></form>` +
			`<style>body{position:fixed;inset:0;z-index:9999}</style></textarea></pre></iframe><img src=x onerror=alert(2)>`
		id := b.sendJSON(map[string]any{"from": `"שלום עולם" <billing@acme.example>`, "to": `"محمد" <laura@example.org>`,
			"subject": "إيصال \u202efdp.exe", "html": hostile, "text": hostile})
		for _, view := range []string{"", "?view=text", "?view=source", "?view=headers", "?view=raw", "?view=attachments"} {
			page := v.shows("/app/emails/"+id+view, 200, "שלום עולם", "[U&#43;202E]")
			for _, bad := range []string{"<script>alert", "onerror=alert(2)>", "position:fixed;inset:0;z-index:9999}</style>",
				"\u202e"} {
				if strings.Contains(page, bad) {
					t.Errorf("the view %q has %q unescaped", view, bad)
				}
			}
		}
		header, html := v.file("/app/emails/" + id + "/html")
		policy := header.Get("Content-Security-Policy")
		if html != hostile || !strings.HasPrefix(policy, "sandbox; default-src 'none'") ||
			!strings.Contains(policy, "form-action 'none'") {
			t.Errorf("the frame has the policy %q", policy)
		}

		large := b.sendJSON(map[string]any{"from": "billing@acme.example", "to": "laura@example.org", "subject": "Large",
			"html": "<p>" + strings.Repeat("0123456789", 3_000_000)})
		at := "/app/emails/" + large
		for _, view := range []string{"", "?view=text", "?view=source", "?view=headers", "?view=raw"} {
			if page := v.shows(at+view, 200, "Explain this delivery"); len(page) > 64<<10 {
				t.Errorf("the view %q of an email of 30 MB has %d bytes", view, len(page))
			}
		}
		v.shows(at+"/html", 200, "has 30.0 MB, which is too large")
		v.shows(at+"?view=source", 200, "30.0 MB, which is too large", at+"/html?download=1")
		v.shows(at+"?view=raw", 200, "left out here because of its size")
		if _, html := v.file(at + "/html?download=1"); len(html) != 30_000_003 {
			t.Errorf("the download has %d bytes", len(html))
		}
		if _, raw := v.file(at + "/raw"); len(raw) < 30_000_000 {
			t.Errorf("the message has %d bytes", len(raw))
		}
	})
}

// A message that a program submitted is shown as it is, also with a broken charset.
func TestSubmittedMessage(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		to, err := message.ParseAddress("laura@example.org")
		b.must(err)
		in := emails.Raw{Send: emails.Send{From: "billing@acme.example", To: []string{"laura@example.org"},
			Subject: "Broken"}, Recipients: []message.Address{to}, Trace: "by mx.example with ESMTPSA", HasDate: true,
			Header: []byte("From: billing@acme.example\r\nTo: laura@example.org\r\nSubject: =?koi8-r?B?/w?= \xff\xfe\r\n" +
				"Date: Mon, 02 Nov 2026 10:00:00 +0000\r\nContent-Type: text/plain; charset=nonsense\r\n"),
			Body: []byte("\r\n<b>\xe9\x00\x1b[31m\r\n" + strings.Repeat("0123456789\r\n", 100_000))}
		id, err := b.Emails.SendRaw(t.Context(), b.acme, in, emails.Idempotency{})
		b.must(err)
		b.delivered(id)
		at := "/app/emails/" + id
		v.shows(at, 200, "This email has no text.", "Explain this delivery")
		v.shows(at+"?view=headers", 200, "Received", "as your program submitted it", "charset=nonsense")
		if page := v.shows(at+"?view=raw", 200, "&lt;b&gt;\ufffd", "The download has all of them"); len(page) > 800<<10 {
			t.Errorf("the page has %d bytes", len(page))
		}
		if _, raw := v.file(at + "/raw"); !bytes.HasSuffix(b.captured(id), []byte(raw)) || len(raw) < 1_200_000 {
			t.Errorf("the message has %d bytes", len(raw))
		}
	})
}

// An email with 10,000 events has a page like others, which says how many it leaves out.
func TestEmailWithManyEvents(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		var to []string
		for i := range 50 {
			to = append(to, fmt.Sprintf("laura%d@example.org", i))
		}
		id := b.sendJSON(map[string]any{"from": "billing@acme.example", "to": to, "subject": "Many", "text": "x"})
		for i := range 20 {
			b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
				var some []events.Event
				for n := range 250 {
					who := to[n%len(to)]
					some = append(some, events.Event{TeamID: b.acme.TeamID, EmailID: id, Type: events.EmailOpened, Recipient: who,
						At: b.DB.Now(), Data: &events.Open{Timestamp: b.DB.Now(), UserAgent: fmt.Sprint(i)}},
						events.Event{TeamID: b.acme.TeamID, EmailID: id, Type: events.EmailClicked, Recipient: who,
							At: b.DB.Now(), Data: &events.Click{Timestamp: b.DB.Now(), Link: "https://acme.example"}})
				}
				return b.Recorder.Record(t.Context(), tx, some...)
			}))
		}
		page := v.shows("/app/emails/"+id, 200, "50 recipients", "later events")
		if len(page) > 400<<10 {
			t.Errorf("the page has %d bytes", len(page))
		}
	})
}
