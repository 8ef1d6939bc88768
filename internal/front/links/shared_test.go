package links_test

import (
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// hostile is HTML that tries to run scripts, redirect, or leave its frame.
const hostile = `<script>alert(1)</script><meta http-equiv="refresh" content="0;url=https://evil.example">` +
	`<base href="//evil.example"><form action="https://evil.example"><input name=a><button>x</button></form>` +
	`<a href="javascript:alert(1)" target=_top>x</a><p style="background:url(https://evil.example/a)" ` +
	`onclick='alert("1")'>&quot;&lt;b&gt;</p></iframe>" onload="alert(1)"></iframe><script>alert(2)</script>` +
	`<svg onload=alert(3)><!--` + "\u2028"

const hostileName = `"><script>alert(4)</script>`

// shows is the part of a page's content that tests check.
type shows struct {
	text   map[string]string // text of the elements title, h1, pre and dl
	srcdoc string
	frames int
	links  []string
}

func look(t *testing.T, page string) (s shows) {
	t.Helper()
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	s.text = map[string]string{}
	known := strings.Fields("html head meta title style body main h1 dl dt dd iframe h2 pre ul li a")
	var inside []string
	var walk func(n *html.Node)
	walk = func(n *html.Node) {
		if n.Type == html.TextNode {
			for _, name := range inside {
				s.text[name] += n.Data
			}
		}
		if n.Type == html.ElementNode {
			if !slices.Contains(known, n.Data) {
				t.Errorf("the page has an element %s", n.Data)
			}
			for _, a := range n.Attr {
				switch n.Data + " " + a.Key {
				case "html lang", "meta charset", "meta name", "meta content", "iframe title":
				case "iframe sandbox":
					if a.Val != "" {
						t.Errorf("the frame may %s", a.Val)
					}
					s.frames++
				case "iframe srcdoc":
					s.srcdoc = a.Val
				case "a href":
					s.links = append(s.links, a.Val)
				default:
					t.Errorf("%s has %s=%s", n.Data, a.Key, a.Val)
				}
			}
			inside = append(inside, n.Data)
			defer func() { inside = inside[:len(inside)-1] }()
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			walk(c)
		}
	}
	walk(root)
	return s
}

// The content of a shared email, whether sent or received, appears on the page only as text and in a frame that has no
// permissions.
func TestSharedHostileEmails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, receiving.Config{})
		body, err := json.Marshal(map[string]any{"from": `"x &lt; y" <a@acme.example>`, "to": "b@example.net",
			"subject": hostileName, "html": hostile, "text": hostile,
			"attachments": []map[string]string{{"filename": "a.html", "content": "PHA+"}}})
		if err != nil {
			t.Fatal(err)
		}
		sent := s.send(t, string(body))
		received := s.receive(t, "in@in.acme.example", "From: \"x &lt; y <script>\" <a@acme.example>\n"+
			"To: \"<b>\" <b@example.net>, <script>@x\nCc: \"'><script>alert(5)</script>\"@cc.example\n"+
			"Subject: "+hostileName+"\nMessage-ID: <"+hostileName+"@x>\nX-Other: <script>\n"+
			"Content-Type: multipart/mixed; boundary=m\n\n--m\nContent-Type: multipart/alternative; boundary=a\n\n--a\n"+
			"Content-Type: text/plain; charset=utf-8\n\n"+hostile+"\n--a\nContent-Type: multipart/related; boundary=r\n\n"+
			"--r\nContent-Type: text/html; charset=utf-8\n\n"+hostile+"<img src='cid:i'>\n"+
			"--r\nContent-Type: image/svg+xml\nContent-ID: <i>\n\n<svg onload=alert(6)>\n--r--\n--a--\n"+
			"--m\nContent-Type: text/html\nContent-Disposition: attachment; filename=\"a<script>.html\"\n\n<p>\n--m--\n")
		image := "<img src='cid:i'>" // SVG images could run something
		for id, wantHTML := range map[string]string{sent: hostile, received: hostile + image} {
			w := s.do(t, "", s.share(t, "acme", id, ""), "")
			if w.Code != 200 {
				t.Fatalf("%d %s", w.Code, w.Body)
			}
			h := w.Header()
			policy := strings.Split(h.Get("Content-Security-Policy"), "; ")
			for _, directive := range strings.Split("default-src 'none'; base-uri 'none'; form-action 'none'; "+
				"frame-ancestors 'none'",
				"; ") {
				if !slices.Contains(policy, directive) {
					t.Errorf("the policy %v lacks %s", policy, directive)
				}
			}
			if slices.ContainsFunc(policy, func(p string) bool {
				return strings.HasPrefix(p, "script-src") || strings.HasPrefix(p, "sandbox allow")
			}) {
				t.Errorf("the policy %v allows scripts", policy)
			}
			for name, want := range map[string]string{"X-Robots-Tag": "noindex", "Referrer-Policy": "no-referrer",
				"X-Content-Type-Options": "nosniff", "Cache-Control": "private, no-store",
				"Content-Type": "text/html; charset=utf-8"} {
				if h.Get(name) != want {
					t.Errorf("%s: %s, want %s", name, h.Get(name), want)
				}
			}
			page := look(t, w.Body.String())
			if page.frames != 1 || page.srcdoc != wantHTML {
				t.Errorf("%d frames, with\n%s, want\n%s", page.frames, page.srcdoc, wantHTML)
			}
			pre := strings.Trim(page.text["pre"], "\n")
			if page.text["h1"] != hostileName || page.text["title"] != hostileName || pre != hostile {
				t.Errorf("subject %s, %s, text %s", page.text["h1"], page.text["title"], pre)
			}
			for _, want := range []string{"x &lt; y", "a@acme.example", "b@example.net"} {
				if !strings.Contains(page.text["dl"], want) {
					t.Errorf("%s is not shown:\n%s", want, page.text["dl"])
				}
			}
			if len(page.links) == 0 {
				t.Error("no attachments")
			}
			for _, link := range page.links {
				if !strings.HasPrefix(link, testnode.PublicURL+"/download/") {
					t.Errorf("a link to %s", link)
				}
			}
			last := s.do(t, "", page.links[len(page.links)-1], "")
			h = last.Header()
			if last.Code != 200 || last.Body.String() != "<p>" ||
				!strings.HasPrefix(h.Get("Content-Disposition"), "attachment") ||
				!strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("an attachment: %d %s %v", last.Code, last.Body, h)
			}
		}
	})
}

// Sharing works in the same way for sent and received emails: the operation, the rules and the responses are the same.
func TestSharing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, receiving.Config{})
		sent := s.send(t, `{"from":"a@acme.example","to":"b@example.net","subject":"Sent","text":"x"}`)
		received := s.receive(t, "in@in.acme.example", "Subject: Received\n\nx\n")
		const none = "0199d6a4-0000-7000-8000-000000000000"
		for _, c := range []struct {
			key, body string
			status    int
		}{
			{"acme", ``, 200}, {"acme", `{}`, 200}, {"acme", `{"expires_in":null}`, 200},
			{"acme", `{"expires_in":"10m"}`, 200}, {"acme", `{"expires_in":"2 hours"}`, 200},
			{"acme", `{"expires_in":"1 day"}`, 200}, {"acme", `{"expires_in":"1h 30m"}`, 200},
			{"acme", `{"expires_in":"48 hours"}`, 200}, {"acme", `{"expires_in":"49 hours"}`, 422},
			{"acme", `{"expires_in":"0 minutes"}`, 422}, {"acme", `{"expires_in":"soon"}`, 422},
			{"acme", `{"expires_in":5}`, 422}, {"acme", `{`, 400}, {"sending", ``, 401}, {"other", ``, 404},
		} {
			of := func(id string) (int, string) {
				w := s.do(t, c.key, "POST /emails/"+id+"/share", c.body)
				text := strings.ReplaceAll(w.Body.String(), id, "<id>")
				if before, _, ok := strings.Cut(text, "token="); ok {
					text = before
				}
				return w.Code, text
			}
			status, text := of(sent)
			again, same := of(received)
			if status != c.status || again != status || same != text {
				t.Errorf("%s %s: %d %s, and %d %s; want %d", c.key, c.body, status, text, again, same, c.status)
			}
		}
		w := s.do(t, "acme", "POST /emails/"+none+"/share", "")
		if w.Code != 404 || !strings.Contains(w.Body.String(), "Email not found") {
			t.Errorf("no email: %d %s", w.Code, w.Body)
		}
		bare := s.receive(t, "in@in.acme.example", "From: a@example.net\n\nx\n")
		for id, subject := range map[string]string{sent: "Sent", received: "Received", bare: "No subject"} {
			first, second := s.share(t, "acme", id, `{"expires_in":"1h"}`), s.share(t, "acme", id, `{"expires_in":"2h"}`)
			if first == second {
				t.Error("one link made twice")
			}
			for _, link := range []string{first, second} {
				if got := look(t, s.get(t, link, 200)).text["h1"]; got != subject {
					t.Errorf("%s, want %s", got, subject)
				}
			}
		}
	})
}

// The token in a shared link opens only the email that it was issued for.
func TestSharedTokens(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newSite(t, d, receiving.Config{})
		sent := s.send(t, `{"from":"a@acme.example","to":"b@example.net","subject":"Sent","text":"x",
			"attachments":[{"filename":"a","content":"eA=="}]}`)
		received := s.receive(t, "in@in.acme.example", "Subject: x\nContent-Type: application/pdf; name=a\n\nx\n")
		link := map[string]string{sent: s.share(t, "acme", sent, ""), received: s.share(t, "acme", received, "")}
		now := time.Now()
		files := []string{}
		for _, id := range []string{sent, received} {
			files = append(files, look(t, s.get(t, link[id], 200)).links...)
			token := strings.TrimPrefix(link[id], testnode.PublicURL+"/shared?token=")
			for i := range len(token) {
				altered := []byte(token)
				altered[i] ^= 1
				w := httptest.NewRecorder()
				r := s.request(t, "", "/shared", "")
				r.URL.RawQuery = "token=" + strings.ReplaceAll(string(altered), "/", "%2F")
				s.ServeHTTP(w, r)
				h := w.Header()
				if w.Code != 404 || !strings.HasPrefix(h.Get("Content-Type"), "text/plain") || h.Get("X-Robots-Tag") != "noindex" {
					t.Errorf("bit %d altered: %d %v %s", i, w.Code, w.Header(), w.Body)
				}
			}
			s.get(t, "/download/"+token, 404)
			s.get(t, "/download/received/"+token, 404)
			s.get(t, "/download/raw/"+token, 404)
		}
		for _, file := range files {
			s.get(t, file, 200)
			s.get(t, "/shared?token="+file[strings.LastIndexByte(file, '/')+1:], 404)
		}
		s.get(t, "/shared", 404)
		for name, c := range map[string]struct {
			purpose, team, email string
			at                   time.Time
			status               int
		}{
			"a sent one":                 {"share", "acme", sent, now, 200},
			"a received one":             {"share-received", "acme", received, now, 200},
			"a received one as sent":     {"share", "acme", received, now, 404},
			"a sent one as received":     {"share-received", "acme", sent, now, 404},
			"another team's":             {"share-received", "other", received, now, 404},
			"a sent one, another team's": {"share", "other", sent, now, 404},
			"expired":                    {"share-received", "acme", received, now.Add(-2 * time.Hour), 404},
			"of another purpose":         {"download", "acme", received, now, 404},
		} {
			token, err := s.Keys.JWT(c.purpose, map[string]any{"team": s.team[c.team], "email": c.email}, c.at, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			if w := s.do(t, "", "/shared?token="+token, ""); w.Code != c.status {
				t.Errorf("%s: %d %s, want %d", name, w.Code, w.Body, c.status)
			}
		}

		raw, _ := s.received.RawURL(s.team["acme"], received, now)
		all := append(files, link[sent], link[received], raw)
		if err := s.Teams.SetSuspended(t.Context(), s.team["acme"], true); err != nil {
			t.Fatal(err)
		}
		for _, l := range all {
			s.get(t, l, 200)
		}
		if err := s.Teams.Delete(t.Context(), s.Queue, s.team["acme"]); err != nil {
			t.Fatal(err)
		}
		for _, l := range all { // the team's data still exists
			s.get(t, l, 404)
		}
	})
}
