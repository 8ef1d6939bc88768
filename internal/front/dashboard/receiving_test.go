package dashboard_test

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// receive delivers a message to support@acme.example, which may receive from then on, and returns the email's id.
func (b *board) receive(message string) string {
	b.t.Helper()
	domain := b.api("GET", "/domains", "")["data"].([]any)[0].(map[string]any)["id"].(string)
	b.api("PATCH", "/domains/"+domain, `{"capabilities":{"sending":"enabled","receiving":"enabled"}}`)
	b.api("POST", "/domains/"+domain+"/verify", "")
	b.eventually("the domain receives", func() bool {
		d, err := b.Domains.Get(b.t.Context(), b.acme.TeamID, domain)
		return err == nil && d.MayReceive()
	})
	s, err := b.Receiving.Open(b.t.Context(),
		smtpserver.Peer{Addr: netip.MustParseAddrPort("127.0.0.1:25"), Hello: "mx.fjordlabs.example"})
	b.must(err)
	defer s.Close()
	b.must(s.Mail(b.t.Context(), "maja@fjordlabs.example", smtpserver.MailOptions{}))
	b.must(s.Rcpt(b.t.Context(), "support@acme.example"))
	_, err = s.Data(b.t.Context(), strings.NewReader(strings.ReplaceAll(message, "\n", "\r\n")))
	b.must(err)
	return b.api("GET", "/emails/receiving", "")["data"].([]any)[0].(map[string]any)["id"].(string)
}

const question = `From: Maja Lind <maja@fjordlabs.example>
To: support@acme.example, sales@acme.example
Cc: ops@fjordlabs.example
Subject: Where is my order?
Message-ID: <order-1@fjordlabs.example>
References: <first@fjordlabs.example>
MIME-Version: 1.0
Content-Type: multipart/mixed; boundary=x

--x
Content-Type: multipart/alternative; boundary=y

--y
Content-Type: text/plain

Order 4711 has not arrived.
--y
Content-Type: text/html

<p>Order <b>4711</b> has not arrived.</p><script>alert(1)</script><form action="https://evil.example"></form>
--y--
--x
Content-Type: application/pdf; name="order <1>.pdf"
Content-Disposition: attachment; filename="order <1>.pdf"

PDF
--x--
`

// A received email is listed and shown safely; its files and its raw message can be downloaded.
func TestReceiving(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		v.shows("/app/receiving", 200, "Receive your first email")
		id := b.receive(question)
		second := b.receive(strings.NewReplacer("order-1@", "order-2@", "<first@", "<order-1@", "Subject: ",
			"Subject: Re: ").Replace(question))
		v.shows("/app/receiving", 200, `href="/app/receiving/`+id+`"`, "maja@fjordlabs.example", "Where is my order?",
			"support@acme.example")
		page := v.shows("/app/receiving/"+id, 200, "Maja Lind &lt;maja@fjordlabs.example&gt;", `sandbox=""`,
			"Order 4711 has not arrived.", "order &lt;1&gt;.pdf", "SPF", "DMARC", "mx.fjordlabs.example",
			"&lt;order-1@fjordlabs.example&gt;", "/app/receiving/"+second)
		if strings.Contains(page, "alert(1)") {
			t.Error("the page contains the script of the email")
		}
		r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+"/app/receiving/"+id+"/html", nil)
		b.must(err)
		w, err := v.c.Do(r)
		b.must(err)
		w.Body.Close()
		if policy := w.Header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "sandbox; default-src 'none'") {
			t.Errorf("the mail has the policy %q", policy)
		}
		v.shows("/app/receiving/"+id+"/raw", 200, "Message-ID: <order-1@fjordlabs.example>")
		file := b.api("GET", "/emails/receiving/"+id, "")["attachments"].([]any)[0].(map[string]any)["id"].(string)
		v.shows("/app/receiving/"+id+"/files/"+file, 200, "PDF")
		thread := b.api("GET", "/emails/receiving/"+id, "")["thread_id"].(string)
		v.shows("/app/receiving?thread="+thread, 200, id, second)
		v.shows("/app/receiving?thread="+id[:30]+"000000", 200, "This conversation does not exist.")
		v.shows("/app/receiving?q=where+order&from=fjordlabs.example&to=sales@acme.example&in=24h", 200, id, "Last 24 hours",
			`value="where order"`, "sales@acme.example")
		v.shows("/app/receiving?q=invoice", 200, "1 filter is set.", "Clear filters")
		v.shows("/app/receiving?from=a+b", 422)

		other := b.visitorOf(b.other.TeamID, teams.Owner)
		for _, path := range []string{"", "/html", "/raw", "/files/" + file, "/reply", "/forward"} {
			other.shows("/app/receiving/"+id+path, 404)
		}
		viewer := b.visitor(teams.Viewer)
		page = viewer.shows("/app/receiving/"+id, 200)
		if strings.Contains(page, "/reply") {
			t.Error("a viewer sees the button that replies")
		}
		viewer.shows("/app/receiving/"+id+"/reply", 403)
	})
}

// A reply belongs to the conversation, and a forwarded email keeps its files.
func TestAnswers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		id := b.receive(question)
		v.shows("/app/receiving/"+id+"/reply?all=1", 200, `value="support@acme.example"`, `value="Re: Where is my order?"`,
			"&gt; Order 4711 has not arrived.", "sales@acme.example, ops@fjordlabs.example", `value="maja@fjordlabs.example"`)
		form := url.Values{"from": {"support@acme.example"}, "to": {"maja@fjordlabs.example"},
			"subject": {"Re: Where is my order?"}, "text": {"It is on its way.\r\n"}}
		if status, page := v.post("/app/receiving/"+id+"/reply", form); status != 200 ||
			!strings.Contains(page, "The email is accepted.") {
			t.Fatalf("the reply: %d %s", status, page)
		}
		sent := b.api("GET", "/emails", "")["data"].([]any)[0].(map[string]any)["id"].(string)
		if got := b.api("GET", "/emails/"+sent, ""); got["text"] != "It is on its way.\n" ||
			got["thread_id"] != b.api("GET", "/emails/receiving/"+id, "")["thread_id"] {
			t.Errorf("the reply is %v", got)
		}
		form.Set("from", "support@elsewhere.example")
		if status, page := v.post("/app/receiving/"+id+"/reply", form); status < 400 || status >= 500 ||
			!strings.Contains(page, "It is on its way.") {
			t.Errorf("a reply from another's domain: %d %s", status, page)
		}
		form.Set("from", "support@acme.example")
		form.Set("to", "laura@")
		if status, page := v.post("/app/receiving/"+id+"/reply", form); status != 422 ||
			!strings.Contains(page, `aria-invalid="true"`) {
			t.Errorf("a reply to a broken address: %d %s", status, page)
		}

		v.shows("/app/receiving/"+id+"/forward", 200, "Fwd: Where is my order?", "Forwarded message", "Forward 1 attachment")
		form = url.Values{"from": {"support@acme.example"}, "to": {"boss@example.org"},
			"subject": {"Fwd: Where is my order?"}, "text": {"See <below>"}, "files": {"1"}, "html": {"1"}}
		if status, page := v.post("/app/receiving/"+id+"/forward", form); status != 200 ||
			!strings.Contains(page, "order &lt;1&gt;.pdf") {
			t.Fatalf("forwarded: %d %s", status, page)
		}
		sent = b.api("GET", "/emails", "")["data"].([]any)[0].(map[string]any)["id"].(string)
		if html := b.api("GET", "/emails/"+sent, "")["html"].(string); !strings.Contains(html, "See &lt;below&gt;") ||
			!strings.Contains(html, "<b>4711</b>") {
			t.Errorf("the forwarded HTML is %s", html)
		}
		if status, _ := b.visitor(teams.Viewer).post("/app/receiving/"+id+"/reply", form); status != 403 {
			t.Errorf("a viewer replies with %d", status)
		}
		form.Del("team") // of the visitor before
		if status, _ := b.visitorOf(b.other.TeamID, teams.Owner).post("/app/receiving/"+id+"/forward", form); status != 404 {
			t.Errorf("another team forwards with %d", status)
		}
	})
}
