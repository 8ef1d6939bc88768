package dashboard_test

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// largeQuestion is a message with an inline image of a number of bytes.
func largeQuestion(size int) string {
	encoded := base64.StdEncoding.EncodeToString(make([]byte, size))
	var lines strings.Builder
	for len(encoded) > 0 {
		n := min(76, len(encoded))
		lines.WriteString(encoded[:n] + "\n")
		encoded = encoded[n:]
	}
	return "From: maja@fjordlabs.example\nTo: support@acme.example\nSubject: Large\nMIME-Version: 1.0\n" +
		"Content-Type: multipart/related; boundary=x\n\n--x\nContent-Type: text/html\n\n" +
		`<p>See <img src="cid:photo"></p>` + "\n--x\nContent-Type: image/png; name=\"photo.png\"\nContent-ID: <photo>\n" +
		"Content-Disposition: attachment; filename=\"photo.png\"\nContent-Transfer-Encoding: base64\n\n" + lines.String() +
		"--x--\n"
}

// A received email that takes most of a team's share of the memory for large messages is shown with its image and
// forwarded with its file. A request that waited for a second share would wait for itself.
func TestLargeReceivedEmail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		const size = 18 << 20
		id := b.receive(largeQuestion(size))
		v := b.visitor(teams.Member)
		w, html := v.exchange(http.MethodGet, "/app/receiving/"+id+"/html", nil)
		_, image, _ := strings.Cut(html, `<img src="data:image/png;base64,`)
		image, _, _ = strings.Cut(image, `"`)
		if w.StatusCode != 200 || len(image) != base64.StdEncoding.EncodedLen(size) {
			t.Errorf("the frame: %d with an image of %d bytes\n%.1000s", w.StatusCode, len(image), html)
		}
		form := url.Values{"from": {"support@acme.example"}, "to": {"boss@example.org"}, "subject": {"Fwd: Large"},
			"text": {"See below"}, "files": {"1"}, "html": {"1"}}
		if status, page := v.post("/app/receiving/"+id+"/forward", form); status != 200 ||
			!strings.Contains(page, "photo.png") {
			t.Fatalf("forwarded: %d %.3000s", status, page)
		}
	})
}
