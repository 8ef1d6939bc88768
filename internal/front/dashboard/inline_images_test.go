package dashboard_test

import (
	"encoding/base64"
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The frame of a sent email shows the images that the email has itself, if they run nothing in a browser and are not
// too large. The text that names the other images stays.
func TestInlineImages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		file := func(name, kind, content string) map[string]any {
			return map[string]any{"filename": name, "content_type": kind, "content_id": name,
				"content": base64.StdEncoding.EncodeToString([]byte(content))}
		}
		large := strings.Repeat("x", emails.InlineImagesSize)
		body := map[string]any{"from": "Acme <billing@acme.example>", "to": "laura@example.org", "subject": "Pictures",
			"html": `<img src="cid:logo"><img src='cid:drawing'><img src="cid:huge"><img src="cid:nothing"><p>cid:logo`,
			"attachments": []map[string]any{file("logo", "image/PNG", "png"), file("drawing", "image/svg+xml", "<svg/>"),
				file("huge", "image/png", large)}}
		id := b.sendJSON(body)
		w, html := v.exchange(http.MethodGet, "/app/emails/"+id+"/html", nil)
		want := `<img src="data:image/png;base64,cG5n"><img src='cid:drawing'><img src="cid:huge"><img src="cid:nothing">` +
			`<p>data:image/png;base64,cG5n`
		if html != want || !strings.HasPrefix(w.Header.Get("Content-Security-Policy"), "sandbox; default-src 'none'") ||
			!strings.Contains(w.Header.Get("Content-Security-Policy"), "img-src data:;") {
			t.Errorf("%v %s", w.Header, html)
		}
		if w, html := v.exchange(http.MethodHead, "/app/emails/"+id+"/html", nil); w.StatusCode != 200 || html != "" {
			t.Errorf("HEAD: %d %s", w.StatusCode, html)
		}

		many := strings.Repeat(`<img src="cid:a">`, 1000)
		id = b.sendJSON(map[string]any{"from": "Acme <billing@acme.example>", "to": "laura@example.org", "subject": "Many",
			"html": many, "attachments": []map[string]any{file("a", "image/gif", large[:1<<20])}})
		if _, html := v.exchange(http.MethodGet, "/app/emails/"+id+"/html", nil); len(html) > 22<<20 ||
			strings.Count(html, "data:") != 14 || strings.Count(html, "cid:a") != 986 {
			t.Errorf("%d bytes with %d images", len(html), strings.Count(html, "data:"))
		}

		to, err := message.ParseAddress("laura@example.org")
		b.must(err)
		submitted, err := b.Emails.SendRaw(t.Context(), b.acme, emails.Raw{Send: emails.Send{From: "billing@acme.example",
			To: []string{"laura@example.org"}, Subject: "Submitted", HTML: new(`<img src="cid:p">`),
			Attachments: []emails.Upload{{Filename: "p", ContentType: "image/png", ContentID: "p", Content: []byte("png")}}},
			HasDate:    true,
			Recipients: []message.Address{to}, Header: []byte("From: billing@acme.example\r\nTo: laura@example.org\r\n" +
				"MIME-Version: 1.0\r\nContent-Type: multipart/related; boundary=x\r\n"),
			Body: []byte("\r\n--x\r\nContent-Type: text/html\r\n\r\n<img src=\"cid:p\">\r\n--x\r\nContent-Type: image/png\r\n" +
				"Content-ID: <p>\r\n\r\npng\r\n--x--\r\n")}, emails.Idempotency{})
		b.must(err)
		if _, html := v.exchange(http.MethodGet, "/app/emails/"+submitted+"/html", nil); html !=
			`<img src="data:image/png;base64,cG5n">` {
			t.Errorf("submitted: %s", html)
		}

		received := b.receive("From: maja@fjordlabs.example\nTo: support@acme.example\nSubject: Drawing\n" +
			"MIME-Version: 1.0\nContent-Type: multipart/related; boundary=x\n\n--x\nContent-Type: text/html\n\n" +
			`<img src="cid:d"><img src="cid:p">` + "\n--x\nContent-Type: image/svg+xml\nContent-ID: <d>\n\n<svg/>\n" +
			"--x\nContent-Type: image/png\nContent-ID: <p>\n\npng\n--x--\n")
		_, html = v.exchange(http.MethodGet, "/app/receiving/"+received+"/html", nil)
		if !strings.Contains(html, `<img src="cid:d"><img src="data:image/png;base64,`) {
			t.Errorf("received: %s", html)
		}
	})
}

// While files cannot be read, the frame of a sent email shows the HTML without its images.
func TestUnreadableImages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		id := b.sendJSON(map[string]any{"from": "billing@acme.example", "to": "laura@example.org", "subject": "Picture",
			"html": `<p>Hello</p><img src="cid:logo">`, "attachments": []map[string]any{{"filename": "logo.png",
				"content_type": "image/png", "content_id": "logo",
				"content": base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 100<<10)))}}})
		b.delivered(id)
		b.storeAway()
		w, html := v.exchange(http.MethodGet, "/app/emails/"+id+"/html", nil)
		if w.StatusCode != 200 || html != `<p>Hello</p><img src="cid:logo">` {
			t.Errorf("%d %s", w.StatusCode, html)
		}
	})
}
