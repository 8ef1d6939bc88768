package emails

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/mailtest"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/render"
	"github.com/postrider/postrider/internal/sending/tokens"
)

const (
	anEmail = "0190f6a1-0000-7000-8000-00000000000a"
	aHost   = "links.acme.example"
)

// tokenService returns a service that can only create and read tokens.
func tokenService(t testing.TB) *Service {
	t.Helper()
	keys, err := keyring.New(make([]byte, keyring.MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	return &Service{Deps: Deps{Keys: keys}}
}

// Link tokens can represent every position that a recipient can have in the envelope.
func TestPositionsFitTokens(t *testing.T) {
	if tokens.MaxPosition != 3*MaxRecipients-1 {
		t.Errorf("tokens accept positions up to %d; an email has up to %d recipients", tokens.MaxPosition, 3*MaxRecipients)
	}
}

func TestUnsubscribeURLs(t *testing.T) {
	got := unsubscribeURLs([]message.Field{{Name: "X-Other", Value: "<https://no.example>"},
		{Name: "list-unsubscribe", Value: "<mailto:a@b.example>, (or)\r\n < https://a.example/u?x=1 >, <https://b.example"}})
	if fmt.Sprint(got) != "[mailto:a@b.example https://a.example/u?x=1]" {
		t.Errorf("the addresses are %q", got)
	}
}

// compiled returns compiled content with 50 variables and the given number of links, along with values for the
// variables; see [mailtest.Template].
func compiled(links int) (*content.Compiled, render.Values) {
	html, values := mailtest.Template(links)
	return content.Compile(&content.Content{HTML: &html, Text: new("")}), values
}

// fillTracked renders the tracked HTML for one recipient.
func fillTracked(s *Service, c *content.Compiled, values render.Values) string {
	k, _ := tokens.NewLinkMaker(s.Keys, aHost, tokens.Ref{Team: 77, EmailID: anEmail}, 0)
	defer k.Release()
	t := &tracker{Tracking: domains.Tracking{Host: "links.acme.example", Opens: true, Clicks: true},
		prefix: "https://links.acme.example", tokens: k, own: []string{"https://acme.example/u"}}
	html, _ := c.TrackedBodies(values, t.links(), t.pixels())
	return html
}

// No memory is allocated when a link is rewritten for tracking.
func TestTrackedLinksAllocateNothing(t *testing.T) {
	s := tokenService(t)
	took := func(links int) float64 {
		c, values := compiled(links)
		if n := strings.Count(fillTracked(s, c, values), "https://links.acme.example/c/"); n != links {
			t.Fatalf("%d of %d links are tracked", n, links)
		}
		return testing.AllocsPerRun(50, func() { fillTracked(s, c, values) })
	}
	// With -race, a sync.Pool drops some of its buffers, so small differences are allowed. One allocation per link would
	// make a difference of 30.
	if few, many := took(10), took(40); many > few+5 {
		t.Errorf("10 links take %v allocations and 40 take %v", few, many)
	}
}

// BenchmarkFill renders a template of 60 KB with 50 variables and 40 tracked links for one recipient.
func BenchmarkFill(b *testing.B) {
	s := tokenService(b)
	c, values := compiled(40)
	b.SetBytes(int64(len(fillTracked(s, c, values))))
	b.ReportAllocs()
	for b.Loop() {
		fillTracked(s, c, values)
	}
}

// BenchmarkFillOwn finds and rewrites the links in a body of 60 KB, for one recipient. The body is not shared with
// other emails.
func BenchmarkFillOwn(b *testing.B) {
	s := tokenService(b)
	c, values := compiled(40)
	text := *c.HTML(values)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		k, _ := tokens.NewLinkMaker(s.Keys, aHost, tokens.Ref{Team: 77, EmailID: anEmail}, 0)
		t := &tracker{Tracking: domains.Tracking{Host: "links.acme.example", Opens: true, Clicks: true},
			prefix: "https://links.acme.example", tokens: k}
		t.html(render.LiteralHTML(text))
		k.Release()
	}
}

// A domain's own tracking host is used even if the operator has a tracking URL.
func TestLinkPrefix(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, host, want string }{
		{"", "links.acme.example", "https://links.acme.example"},
		{"https://track.postrider.test", "links.acme.example", "https://links.acme.example"},
		{"http://Track.postrider.test:8443/t", "track.postrider.test", "http://Track.postrider.test:8443/t"},
	} {
		if got := linkPrefix(c.url, c.host); got != c.want {
			t.Errorf("links to %s with the tracking URL %q begin with %s, want %s", c.host, c.url, got, c.want)
		}
	}
}
