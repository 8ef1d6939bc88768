package cli

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/emails"
)

// unchanged matches the parts of a page that contain a text of the email as it is.
var unchanged = regexp.MustCompile(`(?s)<pre[ >].*?</pre>|<textarea.*?</textarea>|<input [^>]*>`)

// The outbox shows hostile emails safely, or says why it does not: broken charsets, characters that change the
// direction of text, 30 MB of HTML, and styles and forms that cover the page.
func TestOutboxHostileEmails(t *testing.T) {
	p := newInstallation(t)
	key := p.key("Acme")
	n := p.start()
	b := n.browser()
	const cover = `<style>*{position:fixed;inset:0;z-index:2147483647}</style><base href=\"https://evil.example/\">` +
		`<form action=\"https://evil.example/\"><input name=\"password\"></form><script>top.location=1</script>`
	ids := map[string]string{
		"names": n.sends(key, `{"from":"שלום <hello@resend.dev>","to":"ann@one.example","subject":"\u202efdp.exe\u2066",`+
			`"text":"\u202etext","html":"<p>\u202e</p>","headers":{"X-Odd":"\u202e"},`+
			`"attachments":[{"filename":"a\u202efdp.txt","content":"eA=="}]}`).ID,
		"cover": n.sends(key, `{"from":"hello@resend.dev","to":"ann@one.example","subject":"Cover","html":"`+cover+`"}`).ID,
		"large": n.sends(key, `{"from":"hello@resend.dev","to":"ann@one.example","subject":"Large","html":"`+
			strings.Repeat("<div><p>Hello</p> ", 30<<20/18)+`"}`).ID,
	}
	by, err := n.Teams.Authenticate(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	in := emails.Raw{Recipients: []message.Address{{Local: "raw", Domain: "one.example"}}, Trace: "by mx.test with ESMTPA",
		Header: []byte("From: =?no-such-charset?Q?=FF?= <hello@resend.dev>\r\n" +
			"Subject: \xff =?utf-8?B?/////w==?= =?iso-2022-jp?B?GyRC?=\r\n" +
			"MIME-Version: 1.0\r\nContent-Type: multipart/alternative; boundary=x\r\n"),
		Body: []byte("\r\n--x\r\nContent-Type: text/plain; charset=utf-16\r\n\r\nplain \xff\xd8\r\n" +
			"--x\r\nContent-Type: text/html; charset=\"x'><script>alert(1)</script>\"\r\n\r\n<p>\xe4 \xff\xfe</p>\r\n--x--\r\n")}
	in.From, in.To, in.Subject, in.Text = "hello@resend.dev", []string{"raw@one.example"}, "\ufffd", new("plain")
	if _, err := n.Emails.SendRaw(t.Context(), by, in, emails.Idempotency{}); err != nil {
		t.Fatal(err)
	}
	var list capturedList
	eventually(t, "the message is captured", func() bool {
		n.mustOutbox("GET", "?to=raw@one.example", "", &list)
		return len(list.Data) == 1
	})
	ids["charsets"] = list.Data[0].ID
	for name, id := range ids {
		own := "/dev/outbox/" + id
		for _, path := range []string{"/dev/outbox", own, own + "?view=phone", own + "?view=text", own + "?view=html",
			own + "?view=raw", own + "?pane=headers", own + "?pane=links", own + "?pane=files", own + "?pane=checks",
			own + "?do=release"} {
			page := b.shows(path, 200)
			if len(page) > 4<<20 {
				t.Errorf("%s of %s: %d bytes", path, name, len(page))
			}
			text := unchanged.ReplaceAllString(page, "")
			if i := strings.IndexFunc(text, visible.Hidden); i >= 0 {
				t.Errorf("%s of %s has an invisible character in %q", path, name, text[max(0, i-200):min(len(text), i+50)])
			}
			if !utf8.ValidString(page) || strings.Contains(text, "<script>") || strings.Contains(text, "<base") ||
				strings.Contains(text, "position:fixed") {
				t.Errorf("%s of %s contains the email, or is not UTF-8", path, name)
			}
		}
		if name == "large" {
			b.shows(own, 200, "!<iframe", "too large")
			continue
		}
		answer, _ := n.outbox("GET", "/"+id+"/html", "", nil)
		if got := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "sandbox; default-src 'none'") {
			t.Errorf("the frame of %s has the policy %q", name, got)
		}
	}
}
