package links_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"image/gif"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/front/links"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/tokens"
	"github.com/postrider/postrider/internal/sending/tracking"
)

const (
	browser  = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	shopLink = "https://shop.example/a?b=1&c=%20d#e"
)

// linksHost is the host name in tracked links.
const linksHost = "links.acme.example"

// token returns the token for a tracked link, signed for the given purpose. Package emails uses the purpose "track".
func token(keys *keyring.Keyring, purpose string, t tokens.TrackedLink) string {
	u := uuid.MustParse(t.EmailID)
	data := append(binary.BigEndian.AppendUint32(binary.AppendUvarint([]byte{2}, uint64(t.Position+1)), t.Team), u[:]...)
	data = append(data, t.URL...)
	signed := append([]byte(linksHost+"\x00"), data...)
	return base64.RawURLEncoding.EncodeToString(append(data, keys.Tag(purpose, signed, 16)...))
}

func click(n *testnode.Node, emailID, url string) string {
	return "/c/" + token(n.Keys, "track", tokens.TrackedLink{Ref: n.Ref(emailID), URL: url})
}

func open(n *testnode.Node, emailID string) string {
	return "/o/" + token(n.Keys, "track", tokens.TrackedLink{Ref: n.Ref(emailID)})
}

// tracker serves a node's tracked links.
type tracker struct {
	*testnode.Node
	*links.Tracked
	hits *tracking.Service
}

func newTracker(n *testnode.Node) *tracker {
	hits := tracking.New(n.DB, n.Recorder, n.Emails, n.Log)
	return &tracker{n, links.NewTracked(n.Emails, hits), hits}
}

func (tr *tracker) ask(method, path string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://links.acme.example/", nil)
	r.URL.Path, r.RemoteAddr = path, "[2001:db8::7]:4711"
	r.Header.Set("User-Agent", browser)
	w := httptest.NewRecorder()
	tr.ServeHTTP(w, r)
	return w
}

// happened returns the opens and clicks recorded for an email.
func (tr *tracker) happened(emailID string) (all []string) {
	tr.T.Helper()
	ctx := context.WithoutCancel(tr.T.Context())
	if err := tr.hits.Flush(ctx); err != nil {
		tr.T.Fatal(err)
	}
	timeline, _, err := tr.Emails.Timeline(ctx, tr.Acme.TeamID, emailID, page.Page{})
	if err != nil {
		tr.T.Fatal(err)
	}
	for _, e := range timeline {
		var data struct{ IPAddress, Link, UserAgent string }
		if e.Type != "opened" && e.Type != "clicked" {
			continue
		}
		if err := json.Unmarshal([]byte(e.Data), &data); err != nil || data.UserAgent != browser {
			tr.T.Errorf("%s: %v", e.Data, err)
		}
		all = append(all, strings.TrimSpace(e.Type+" "+e.Recipient+" "+data.IPAddress+" "+data.Link))
	}
	return all
}

// sent returns the id of an email that was delivered an hour ago.
func (tr *tracker) sent() string {
	emailID := tr.Send(testnode.Hello("ann@one.example"))
	tr.Happen(events.Event{TeamID: tr.Acme.TeamID, EmailID: emailID, Type: events.EmailDelivered,
		Recipient: "ann@one.example", At: time.Now().Add(-time.Hour)})
	return emailID
}

// The response to a click redirects to the link's target, and the response to an open is an image. Clicks and opens are
// recorded, except for HEAD requests and prefetches.
func TestTracked(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tr := newTracker(n)
		emailID := tr.sent()
		for _, c := range []struct {
			method, path string
			status       int
		}{
			{"GET", click(n, emailID, shopLink), 302}, {"HEAD", click(n, emailID, shopLink), 302},
			{"GET", open(n, emailID), 200}, {"HEAD", open(n, emailID), 200},
			{"POST", click(n, emailID, shopLink), 405}, {"OPTIONS", open(n, emailID), 405},
			{"PUT", "/c/x", 405}, {"DELETE", "/o/x", 405},
		} {
			w := tr.ask(c.method, c.path)
			h := w.Header()
			if w.Code != c.status || !strings.Contains(h.Get("Cache-Control"), "no-store") ||
				h.Get("Referrer-Policy") != "no-referrer" || !strings.Contains(h.Get("X-Robots-Tag"), "noindex") {
				t.Errorf("%s %.10s: %d %v, want %d", c.method, c.path, w.Code, h, c.status)
			}
			if got := h.Get("Location"); (got == shopLink) != (c.status == 302) || got != "" && got != shopLink {
				t.Errorf("%s %.10s leads to %q", c.method, c.path, got)
			}
			if (h.Get("Allow") == "GET, HEAD") != (c.status == 405) {
				t.Errorf("%s %.10s: Allow %q", c.method, c.path, h.Get("Allow"))
			}
			if c.status == 200 && (h.Get("Content-Type") != "image/gif" || h.Get("Content-Length") != "43") {
				t.Errorf("%s %.10s: %v", c.method, c.path, h)
			}
			if c.status == 200 && c.method == "GET" {
				image, err := gif.Decode(w.Body)
				if err != nil || image.Bounds().Dx() != 1 || image.Bounds().Dy() != 1 {
					t.Fatalf("%v, %v", image, err)
				}
				if _, _, _, opacity := image.At(0, 0).RGBA(); opacity != 0 {
					t.Error("the pixel can be seen")
				}
			} else if c.status != 405 && w.Body.Len() > 0 {
				t.Errorf("%s %.10s: a body %q", c.method, c.path, w.Body)
			}
		}
		want := []string{"clicked ann@one.example 2001:db8::7 " + shopLink, "opened ann@one.example 2001:db8::7"}
		if got := tr.happened(emailID); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// A request with a token that is altered, too long, or issued for another purpose gets 404, and no hit is recorded.
func TestForgedTokens(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		tr := newTracker(n)
		emailID := tr.sent()
		tracked := tokens.TrackedLink{Ref: n.Ref(emailID), URL: shopLink}
		pixel := tokens.TrackedLink{Ref: n.Ref(emailID)}
		good := token(n.Keys, "track", tracked)
		paths := []string{"/c/", "/o/", "/c", "/c/" + good + "/", "/c//" + good, "/c/" + good + "=", "/c/" + good + "\n",
			"/c/" + strings.Repeat("A", 8192), "/c/" + strings.Repeat("A", 8193), "/o/" + strings.Repeat("A", 100_000),
			"/c/https://evil.example/", "/c//evil.example/", "/c/../../evil.example", "/o/" + good,
			"/c/" + token(n.Keys, "track", pixel),
			"/c/" + token(n.Keys, "share", tracked), "/c/" + token(n.Keys, "", tracked),
			"/c/" + n.Keys.Sign("track", time.Time{}, emailID, shopLink)}
		for _, url := range []string{"javascript:alert(1)", "data:text/html,x", "//evil.example/", "mailto:a@b.example",
			"x", "https:", "https://", "http:///evil.example", "ftp://evil.example/", "https:\\\\evil.example"} {
			paths = append(paths, click(n, emailID, url))
		}
		raw, err := base64.RawURLEncoding.DecodeString(good)
		if err != nil {
			t.Fatal(err)
		}
		for bit := range 8 * len(raw) {
			altered := slices.Clone(raw)
			altered[bit/8] ^= 1 << (bit % 8)
			paths = append(paths, "/c/"+base64.RawURLEncoding.EncodeToString(altered))
		}
		for _, path := range paths {
			for _, method := range []string{"GET", "HEAD"} {
				w := tr.ask(method, path)
				h := w.Header()
				if w.Code != 404 || h.Get("Location") != "" || !strings.HasPrefix(h.Get("Content-Type"), "text/plain") ||
					!strings.Contains(h.Get("X-Robots-Tag"), "noindex") || !strings.Contains(h.Get("Cache-Control"), "no-store") {
					t.Errorf("%s %.60q: %d %v", method, path, w.Code, h)
				}
			}
		}
		if got := tr.happened(emailID); len(got) != 0 {
			t.Errorf("recorded: %q", got)
		}
	})
}

// A link's target cannot add fields to the response header, and is escaped in the same way that browsers escape URLs.
func TestTargets(t *testing.T) {
	tr := newTracker(testnode.New(t, dbtest.SQLite(t), testnode.Options{}))
	emailID := tr.sent()
	for url, want := range map[string]string{
		"https://a.example/x\r\nSet-Cookie: a=b": "https://a.example/xSet-Cookie:%20a=b",
		"HTTPS://a.example":                      "HTTPS://a.example",
		"http://a.example/100%?q=ä b":            "http://a.example/100%?q=%C3%A4%20b",
		"https://a.example/\x00\x7f\xff":         "https://a.example/%00%7F%FF",
	} {
		w := tr.ask("GET", click(tr.Node, emailID, url))
		if got := w.Header().Get("Location"); w.Code != 302 || got != want || len(w.Header()["Set-Cookie"]) > 0 {
			t.Errorf("%q leads to %q, want %q", url, got, want)
		}
	}
}

// Tracked links redirect to their targets even if the database is unavailable, or the email or its team has been
// deleted.
func TestTrackedWithoutDatabase(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tr := newTracker(testnode.New(t, d, testnode.Options{}))
		emailID := tr.sent()
		if err := tr.Teams.Delete(t.Context(), tr.Queue, tr.Acme.TeamID); err != nil {
			t.Fatal(err)
		}
		clicked, opened := click(tr.Node, emailID, shopLink), open(tr.Node, emailID)
		works := func(when string) {
			t.Helper()
			w := tr.ask("GET", clicked)
			if w.Code != 302 || w.Header().Get("Location") != shopLink {
				t.Errorf("%s: %d %v", when, w.Code, w.Header())
			}
			if w := tr.ask("GET", opened); w.Code != 200 {
				t.Errorf("%s: an open: %d", when, w.Code)
			}
		}
		works("the team is deleted")
		if got := tr.happened(emailID); len(got) != 0 {
			t.Errorf("recorded for a deleted team: %q", got)
		}
		d.Close()
		works("the database is away")
		if err := tr.hits.Flush(t.Context()); err == nil {
			t.Error("hits are recorded in a database that is away")
		}
	})
}

// A hit over a real HTTP connection is recorded with the client's headers, and the response redirects the client.
func TestTrackedByHTTP(t *testing.T) {
	tr := newTracker(testnode.New(t, dbtest.SQLite(t), testnode.Options{}))
	emailID := tr.sent()
	server := httptest.NewServer(tr)
	defer server.Close()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, purpose := range []string{"", "prefetch;prerender"} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+click(tr.Node, emailID, shopLink)+"?utm=1", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("User-Agent", browser)
		r.Header.Set("Sec-Purpose", purpose)
		r.Host = linksHost + ":443"
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		if answer.StatusCode != 302 || answer.Header.Get("Location") != shopLink {
			t.Errorf("%d %v", answer.StatusCode, answer.Header)
		}
	}
	want := "clicked ann@one.example 127.0.0.1 " + shopLink
	if got := tr.happened(emailID); !slices.Equal(got, []string{want, want}) {
		t.Errorf("%q", got)
	}
	timeline, _, err := tr.Emails.Timeline(t.Context(), tr.Acme.TeamID, emailID, page.Page{})
	if err != nil || !strings.Contains(timeline[len(timeline)-1].Data, `"machineReason":"prefetch"`) ||
		strings.Contains(timeline[len(timeline)-2].Data, "machine") {
		t.Errorf("%+v, %v", timeline, err)
	}
}

// A tracked link works only at its own host name, which may be in any spelling. If a tracked link also worked at
// another team's host, that host would be an open redirect.
func TestTrackedHosts(t *testing.T) {
	tr := newTracker(testnode.New(t, dbtest.SQLite(t), testnode.Options{}))
	emailID := tr.sent()
	for host, want := range map[string]int{linksHost: 302, "LINKS.acme.example:8443": 302, linksHost + ".": 302,
		"links.other.example": 404, "acme.example": 404, "x" + linksHost: 404, "": 404, "[::1]:80": 404} {
		for path, want := range map[string]int{click(tr.Node, emailID, shopLink): want,
			open(tr.Node, emailID): map[int]int{302: 200, 404: 404}[want]} {
			r := httptest.NewRequest("HEAD", path, nil)
			r.Host = host
			w := httptest.NewRecorder()
			tr.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%.3s at %q: %d, want %d", path, host, w.Code, want)
			}
		}
	}
}

// No request is redirected to an unsigned target.
func FuzzTracked(f *testing.F) {
	keys, err := keyring.New(make([]byte, keyring.MasterSize))
	if err != nil {
		f.Fatal(err)
	}
	d := dbtest.SQLite(f)
	service := testnode.Bare(f, d, testnode.Options{}).Emails
	handler := links.NewTracked(service, tracking.New(d, &events.Recorder{}, service, slog.New(slog.DiscardHandler)))
	of := tokens.Ref{EmailID: "0199d6a4-0000-7000-8000-000000000000"}
	good := token(keys, "track", tokens.TrackedLink{Ref: of, URL: shopLink})
	for _, seed := range []string{"/c/" + good, "/o/" + good, "/c/" + good + "?x", "/c//evil.example", "/c/%0d%0aX:y"} {
		f.Add(seed, "https://a.example/")
	}
	f.Fuzz(func(t *testing.T, path, url string) {
		for _, path := range []string{path,
			"/c/" + token(keys, "track", tokens.TrackedLink{Ref: of, URL: url})} {
			r := httptest.NewRequest("HEAD", "https://"+linksHost+"/", nil) // HEAD requests do not keep hits in memory
			r.URL.Path = path
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			to := w.Header().Get("Location")
			if (w.Code == 302) != (to != "") {
				t.Fatalf("%d leads to %q", w.Code, to)
			}
			if to == "" {
				continue
			}
			signed, err := service.ReadTracked(strings.TrimPrefix(path, "/c/"), linksHost)
			lower := strings.ToLower(to)
			if err != nil || !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://") ||
				strings.ContainsFunc(to, func(c rune) bool { return c <= ' ' || c > '~' }) ||
				escaped(signed.URL) != to {
				t.Fatalf("%q leads to %q", path, to)
			}
		}
	})
}

// escaped returns a URL in which the bytes that browsers escape are escaped.
func escaped(url string) string {
	var b strings.Builder
	for _, c := range []byte(strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(url)) {
		if c <= ' ' || c > '~' {
			const digits = "0123456789ABCDEF"
			b.WriteString(string([]byte{'%', digits[c/16], digits[c%16]}))
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// TLSAsk allows a proxy to obtain certificates only for this installation's own hosts and for tracking hosts with
// working links.
func TestTLSAsk(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		handler := links.TLSAsk(n.Domains.IsTrackingHost, n.Log, "mail.postrider.test")
		status := func(host string) int {
			w := httptest.NewRecorder()
			r := httptest.NewRequest("GET", "/tls/ask", nil)
			r.URL.RawQuery = "domain=" + host
			handler.ServeHTTP(w, r)
			return w.Code
		}
		want := func(code int, hosts ...string) {
			t.Helper()
			for _, host := range hosts {
				if got := status(host); got != code {
					t.Errorf("%.80s: %d, want %d", host, got, code)
				}
			}
		}
		shop := n.Verified(n.Acme.TeamID, domains.NewDomain{Name: "shop.example", TrackingSubdomain: "links"})
		want(200, "links.shop.example", "LINKS.shop.example.", "mail.postrider.test")
		want(404, "", ".", "shop.example", "send.shop.example", "x.links.shop.example", "links.acme.example", "links.",
			"a..b", "links.other.example", "127.0.0.1", "%00", "links.shop.example%00", strings.Repeat("a.", 200)+"example",
			strings.Repeat("x", 70)+".shop.example")
		err := n.Domains.Update(t.Context(), n.Acme.TeamID, shop.ID, domains.Change{TrackingSubdomain: new("go")})
		if err != nil {
			t.Fatal(err)
		}
		want(200, "links.shop.example") // the former host
		want(404, "go.shop.example")    // not verified yet
		pending, err := n.Domains.Create(t.Context(), n.Acme.TeamID, domains.NewDomain{Name: "pending.example",
			TrackingSubdomain: "links"})
		if err != nil {
			t.Fatal(err)
		}
		want(404, "links."+pending.Name)
		if err := n.Domains.Delete(t.Context(), n.Acme.TeamID, shop.ID); err != nil {
			t.Fatal(err)
		}
		want(404, "links.shop.example")
		n.DB.Close()
		want(503, "links.never-asked.example")
		want(200, "mail.postrider.test")
	})
}
