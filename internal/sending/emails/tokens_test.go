package emails

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/mailtest"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/render"
)

const anEmail = "0190f6a1-0000-7000-8000-00000000000a"

const aHost = "links.acme.example"

// tokenService can only make and read tokens.
func tokenService(t testing.TB, master byte) *Service {
	t.Helper()
	key := make([]byte, keyring.MasterSize)
	key[0] = master
	keys, err := keyring.New(key)
	if err != nil {
		t.Fatal(err)
	}
	return &Service{keys: keys}
}

// token makes one token.
func (s *Service) token(t testing.TB, of Tracked) string {
	t.Helper()
	k, ok := newTokens(s.keys, aHost, of.EmailID, of.Position)
	if !ok {
		t.Fatalf("there are no tokens of email %q", of.EmailID)
	}
	defer k.release()
	token, ok := k.append(nil, []byte(of.URL))
	if !ok {
		t.Fatalf("there is no token of a URL of %d octets", len(of.URL))
	}
	return string(token)
}

func TestTokens(t *testing.T) {
	s := tokenService(t, 1)
	for _, want := range []Tracked{
		{anEmail, -1, ""},
		{anEmail, 0, ""},
		{anEmail, 3*MaxRecipients - 1, "https://a.example/?a=1&b=2"},
		{id.New(), 7, "https://ä.example/" + strings.Repeat("x", render.MaxTarget-len("https://ä.example/"))},
	} {
		token := s.token(t, want)
		if len(token) > trackMax {
			t.Errorf("the token has %d characters", len(token))
		}
		if got, err := s.ReadTracked(token, aHost); err != nil || got != want {
			t.Errorf("read %+v, %v; want %+v", got, err, want)
		}
		got, err := tokenService(t, 2).ReadTracked(token, aHost)
		if fault.KindOf(err) != fault.NotFound || got != (Tracked{}) {
			t.Errorf("with another key it is %+v, %v", got, err)
		}
	}
	for _, other := range []string{"", "links.other.example", "acme.example", aHost + "\x00"} {
		if got, err := s.ReadTracked(s.token(t, Tracked{anEmail, 0, "https://a.example/"}), other); got != (Tracked{}) ||
			fault.KindOf(err) != fault.NotFound {
			t.Errorf("at the host %q it is %+v, %v", other, got, err)
		}
	}
	k, _ := newTokens(s.keys, aHost, anEmail, 0)
	defer k.release()
	if dst, ok := k.append([]byte("before"), make([]byte, trackMax)); ok || string(dst) != "before" {
		t.Errorf("a URL of %d octets has a token of %d", trackMax, len(dst))
	}
	if _, ok := newTokens(s.keys, aHost, "e", 0); ok {
		t.Error("an email without a UUID has tokens")
	}
}

// A token with one bit altered, or a character added or missing, is no token.
func TestTokenAltered(t *testing.T) {
	s := tokenService(t, 1)
	token := s.token(t, Tracked{anEmail, 3, "https://shop.example/?a=1"})
	refused := func(altered string) {
		t.Helper()
		if got, err := s.ReadTracked(altered, aHost); fault.KindOf(err) != fault.NotFound || got != (Tracked{}) {
			t.Errorf("%q is read as %+v, %v", altered, got, err)
		}
	}
	for i := range len(token) {
		for bit := range 8 {
			altered := []byte(token)
			altered[i] ^= 1 << bit
			refused(string(altered))
		}
		refused(token[:i])
		refused(token[:i] + "\n" + token[i:])
		refused(token[:i] + "A" + token[i:])
	}
	data, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		for bit := range 8 {
			data[i] ^= 1 << bit
			refused(base64.RawURLEncoding.EncodeToString(data))
			data[i] ^= 1 << bit
		}
	}
	refused(token + "=")
	refused(token + strings.Repeat("A", trackMax))
	// What another purpose signs is no token.
	signed := data[: len(data)-trackMAC : len(data)-trackMAC]
	other := append(signed, s.keys.Tag("other", signed, trackMAC)...)
	refused(base64.RawURLEncoding.EncodeToString(other))
}

// FuzzReadTracked checks that nothing but what was made here is read, and that it is read as it was made.
func FuzzReadTracked(f *testing.F) {
	s := tokenService(f, 1)
	f.Add(s.token(f, Tracked{anEmail, 3, "https://shop.example/?a=1"}), "https://a.example/", 0, 1)
	f.Add("", "", -1, 0)
	f.Fuzz(func(t *testing.T, token, url string, position, flip int) {
		if got, err := s.ReadTracked(token, aHost); err == nil {
			if again := s.token(t, got); again != token {
				t.Errorf("%q is read as %+v, whose token is %q", token, got, again)
			}
		}
		if position < -1 || position >= 3*MaxRecipients || len(url) > render.MaxTarget {
			return
		}
		made := []byte(s.token(t, Tracked{anEmail, position, url}))
		if got, err := s.ReadTracked(string(made), aHost); err != nil || got != (Tracked{anEmail, position, url}) {
			t.Errorf("the token of %d and %q is read as %+v, %v", position, url, got, err)
		}
		made[uint(flip)/8%uint(len(made))] ^= 1 << (uint(flip) % 8)
		if got, err := s.ReadTracked(string(made), aHost); fault.KindOf(err) != fault.NotFound {
			t.Errorf("an altered token is read as %+v, %v", got, err)
		}
	})
}

func TestUnsubscribeURLs(t *testing.T) {
	got := unsubscribeURLs([]message.Field{{Name: "X-Other", Value: "<https://no.example>"},
		{Name: "list-unsubscribe", Value: "<mailto:a@b.example>, (or)\r\n < https://a.example/u?x=1 >, <https://b.example"}})
	if fmt.Sprint(got) != "[mailto:a@b.example https://a.example/u?x=1]" {
		t.Errorf("the addresses are %q", got)
	}
}

// compiled is a content with 50 variables and links, and values for it; see [mailtest.Template].
func compiled(links int) (*content.Compiled, render.Values) {
	html, values := mailtest.Template(links)
	return content.Compile(&content.Content{HTML: &html, Text: new("")}), values
}

// fillTracked makes the HTML of one recipient.
func fillTracked(s *Service, c *content.Compiled, values render.Values) string {
	k, _ := newTokens(s.keys, aHost, anEmail, 0)
	defer k.release()
	t := &tracker{Tracking: domains.Tracking{Host: "links.acme.example", Opens: true, Clicks: true},
		prefix: "https://links.acme.example", tokens: k, own: []string{"https://acme.example/u"}}
	html, _ := c.TrackedBodies(values, t.links(), t.pixels())
	return html
}

// Each link costs no memory of its own but its place in the HTML.
func TestTrackedLinksAllocateNothing(t *testing.T) {
	s := tokenService(t, 1)
	took := func(links int) float64 {
		c, values := compiled(links)
		if n := strings.Count(fillTracked(s, c, values), "https://links.acme.example/c/"); n != links {
			t.Fatalf("%d of %d links are tracked", n, links)
		}
		return testing.AllocsPerRun(50, func() { fillTracked(s, c, values) })
	}
	// With -race a pool loses some of what it has. An allocation for each link would make a difference of 30.
	if few, many := took(10), took(40); many > few+5 {
		t.Errorf("10 links take %v allocations and 40 take %v", few, many)
	}
}

// BenchmarkFill fills a template of 60 KB with 50 variables and 40 tracked links for one recipient.
func BenchmarkFill(b *testing.B) {
	s := tokenService(b, 1)
	c, values := compiled(40)
	b.SetBytes(int64(len(fillTracked(s, c, values))))
	b.ReportAllocs()
	for b.Loop() {
		fillTracked(s, c, values)
	}
}

// BenchmarkFillOwn finds and rewrites the links of an email with a body of its own of 60 KB, for one recipient.
func BenchmarkFillOwn(b *testing.B) {
	s := tokenService(b, 1)
	c, values := compiled(40)
	text := *c.HTML(values)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		k, _ := newTokens(s.keys, aHost, anEmail, 0)
		t := &tracker{Tracking: domains.Tracking{Host: "links.acme.example", Opens: true, Clicks: true},
			prefix: "https://links.acme.example", tokens: k}
		t.html(render.LiteralHTML(text))
		k.release()
	}
}
