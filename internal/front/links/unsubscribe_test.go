package links_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/front/links"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

const rita = "rita@example.org"

// pages serves the pages of unsubscribe links over HTTP.
type pages struct {
	*testnode.Node
	t    *testing.T
	team string
	url  string
	seen testnode.Seen
}

func eachPages(t *testing.T, f func(t *testing.T, p *pages)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		p := &pages{Node: n, t: t, team: n.Acme.TeamID}
		n.Recorder.Listen(&p.seen)
		mux := http.NewServeMux()
		links.New(n.Emails, nil, n.Log).RegisterUnsubscribe(mux, n.Contacts, n.Teams)
		server := httptest.NewServer(mux)
		t.Cleanup(server.Close)
		p.url = server.URL + "/unsubscribe/"
		f(t, p)
	})
}

func (p *pages) topic(name string, byDefault contacts.Subscription, v contacts.Visibility) contacts.Topic {
	p.t.Helper()
	topic, err := p.Contacts.CreateTopic(p.t.Context(), p.team, contacts.NewTopic{Name: name, Description: "About " + name,
		Default: byDefault, Visibility: v})
	if err != nil {
		p.t.Fatal(err)
	}
	return topic
}

// token is that of a link to an address about a topic, "" for none.
func (p *pages) token(topicID string) string {
	return p.Contacts.Token(contacts.Link{TeamID: p.team, EmailID: id.New(), TopicID: topicID, Address: rita})
}

// holds returns what holds for the address: the topics that it is opted in to, and "none" if it is unsubscribed.
func (p *pages) holds() string {
	p.t.Helper()
	var all []string
	at, err := p.Contacts.Get(p.t.Context(), p.team, rita)
	if err != nil {
		return "no contact"
	}
	list, err := p.Contacts.Subscriptions(p.t.Context(), p.team, at.ID)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, s := range list {
		if s.Subscription == contacts.OptIn {
			all = append(all, s.Name)
		}
	}
	if at.Unsubscribed {
		all = append(all, "none")
	}
	return strings.Join(all, " ")
}

// answer is a page as a browser has it.
type answer struct {
	t      *testing.T
	status int
	header http.Header
	text   string
	root   *html.Node
}

func (p *pages) do(r *http.Request) *answer {
	p.t.Helper()
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	got, err := c.Do(r.WithContext(p.t.Context()))
	if err != nil {
		p.t.Fatal(err)
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	a := &answer{p.t, got.StatusCode, got.Header, string(body), nil}
	if a.root, err = html.Parse(bytes.NewReader(body)); err != nil {
		p.t.Fatal(err)
	}
	return a
}

func (p *pages) request(method, token, body string, header ...string) *answer {
	p.t.Helper()
	r, err := http.NewRequest(method, p.url+token, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return p.do(r)
}

const oneClick = "List-Unsubscribe=One-Click"

func (p *pages) post(token, body string) *answer {
	p.t.Helper()
	return p.request(http.MethodPost, token, body, "Content-Type", "application/x-www-form-urlencoded")
}

// all returns the elements of a name.
func (a *answer) all(name string) (found []*html.Node) {
	for n := range a.root.Descendants() {
		if n.Type == html.ElementNode && n.Data == name {
			found = append(found, n)
		}
	}
	return found
}

func attr(n *html.Node, name string) (string, bool) {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val, true
		}
	}
	return "", false
}

func textOf(n *html.Node) string {
	text := ""
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			text += d.Data
		}
	}
	return strings.TrimSpace(text)
}

func (a *answer) heading() string {
	a.t.Helper()
	all := a.all("h1")
	if len(all) != 1 {
		a.t.Fatalf("%d headings on the page: %d %s", len(all), a.status, a.text)
	}
	return textOf(all[0])
}

// choices are the labels of the checkboxes, with a + before those that are checked.
func (a *answer) choices() (all []string) {
	for _, input := range a.all("input") {
		if kind, _ := attr(input, "type"); kind != "checkbox" {
			continue
		}
		inputID, _ := attr(input, "id")
		mark := "-"
		if _, checked := attr(input, "checked"); checked {
			mark = "+"
		}
		for _, label := range a.all("label") {
			if of, _ := attr(label, "for"); of == inputID {
				all = append(all, mark+textOf(label))
			}
		}
	}
	return all
}

// submit submits the form that has a button with this label, as a browser does: with those boxes checked whose labels
// on names, or with those that are checked already if on is nil.
func (p *pages) submit(a *answer, token, button string, on []string) *answer {
	p.t.Helper()
	for _, form := range a.all("form") {
		values := url.Values{}
		found := false
		labels := map[string]string{}
		for n := range form.Descendants() {
			if of, ok := attr(n, "for"); ok {
				labels[of] = textOf(n)
			}
		}
		for n := range form.Descendants() {
			name, _ := attr(n, "name")
			value, _ := attr(n, "value")
			kind, _ := attr(n, "type")
			boxID, _ := attr(n, "id")
			_, checked := attr(n, "checked")
			if on != nil {
				checked = slices.Contains(on, labels[boxID])
			}
			switch {
			case n.Data == "button" && textOf(n) == button:
				found = true
				values.Add(name, value)
			case n.Data == "input" && (kind == "hidden" || kind == "checkbox" && checked):
				values.Add(name, value)
			}
		}
		if method, _ := attr(form, "method"); found && method == "post" {
			return p.post(token, values.Encode())
		}
	}
	p.t.Fatalf("no form has the button %q: %s", button, a.text)
	return nil
}

// A page is for everybody: it says its language, each field has its label, and it needs and allows no scripts.
func TestUnsubscribePageIsPlain(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		news := p.topic("<b>News</b> & \"more\"", contacts.OptIn, contacts.Public)
		p.topic("Offers", contacts.OptOut, contacts.Public)
		if err := p.Teams.Rename(t.Context(), p.team, "Acme <script>alert(1)</script>"); err != nil {
			t.Fatal(err)
		}
		token := p.token(news.ID)
		for accept, want := range map[string][2]string{
			"":                          {"en", "Emails from "},
			"de":                        {"de", "E-Mails von "},
			"de-AT,de;q=0.9,en;q=0.1":   {"de", "E-Mails von "},
			"fr-CA":                     {"fr", "E-mails de "},
			"es-MX, en;q=0.5":           {"es", "Correos de "},
			"tlh, ja;q=0.3":             {"en", "Emails from "},
			"de;q=broken":               {"en", "Emails from "},
			strings.Repeat("x-y,", 5e3): {"en", "Emails from "},
		} {
			for _, posted := range []bool{false, true} {
				a := p.request(http.MethodGet, token, "", "Accept-Language", accept)
				if posted {
					a = p.request(http.MethodPost, token, "save=1&all=1", "Accept-Language", accept)
				}
				if a.status != 200 {
					t.Fatalf("%s: %d %s", accept, a.status, a.text)
				}
				if lang, _ := attr(a.all("html")[0], "lang"); lang != want[0] || a.header.Get("Content-Language") != want[0] {
					t.Errorf("%.30s: the page says that it is in %s", accept, lang)
				}
				if !posted && a.heading() != want[1]+"Acme <script>alert(1)</script>" {
					t.Errorf("%.30s: the heading is %q", accept, a.heading())
				}
				if textOf(a.all("title")[0]) != a.heading() {
					t.Errorf("the title is %q", textOf(a.all("title")[0]))
				}
				if strings.Contains(a.text, "%!") || strings.Contains(a.text, "%s") {
					t.Errorf("a text lacks its value: %s", a.text)
				}
				if n := len(a.all("script")) + len(a.all("b")) + len(a.all("img")) + len(a.all("link")); n > 0 {
					t.Errorf("%d elements that do not belong there: %s", n, a.text)
				}
				style := a.all("style")
				sum := sha256.Sum256([]byte(style[0].FirstChild.Data))
				policy := a.header.Get("Content-Security-Policy")
				if len(style) != 1 || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy,
					"style-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") || strings.Contains(policy, "unsafe") {
					t.Errorf("the policy is %s", policy)
				}
				for name, value := range map[string]string{"Cache-Control": "private, no-store",
					"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Robots-Tag": "noindex",
					"Vary": "Accept-Language", "Content-Type": "text/html; charset=utf-8"} {
					if a.header.Get(name) != value {
						t.Errorf("%s: %q", name, a.header.Get(name))
					}
				}
			}
			// Each field has a label, and each description that it names is there.
			a := p.request(http.MethodGet, token, "", "Accept-Language", accept)
			ids := map[string]bool{}
			for n := range a.root.Descendants() {
				if x, ok := attr(n, "id"); ok {
					if ids[x] {
						t.Errorf("two elements have the id %s", x)
					}
					ids[x] = true
				}
			}
			boxes := 0
			for _, input := range a.all("input") {
				if kind, _ := attr(input, "type"); kind == "checkbox" {
					boxes++
					if about, ok := attr(input, "aria-describedby"); !ok || !ids[about] {
						t.Errorf("a field is described by %q, which is not there", about)
					}
				}
			}
			if len(a.choices()) != 3 || boxes != 3 {
				t.Errorf("%d fields, with the labels %q", boxes, a.choices())
			}
		}
		if got := p.request(http.MethodGet, token, "").choices(); got[0] != "+<b>News</b> & \"more\"" ||
			got[1] != "-Offers" || !strings.HasPrefix(got[2], "+Unsubscribe from all emails of Acme") {
			t.Errorf("%q", got)
		}
	})
}

// Whoever only looks at a link changes nothing, be it a person, a mail program or a scanner.
func TestLookingUnsubscribesNobody(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		news := p.topic("News", contacts.OptIn, contacts.Public)
		for _, token := range []string{p.token(news.ID), p.token("")} {
			for _, header := range [][]string{nil, {"Sec-Purpose", "prefetch"}, {"Purpose", "prefetch"},
				{"List-Unsubscribe", "One-Click"}} {
				for _, method := range []string{http.MethodGet, http.MethodHead} {
					if a := p.request(method, token+"?"+oneClick+"&save=1&all=1", "", header...); a.status != 200 {
						t.Errorf("%s %v: %d", method, header, a.status)
					}
				}
			}
			for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
				if a := p.request(method, token, oneClick); a.status != http.StatusMethodNotAllowed {
					t.Errorf("%s: %d", method, a.status)
				}
			}
			for what, body := range map[string]string{"nothing": "", "something else": "a=b", "no form": "a=%zz",
				"another word": "List-Unsubscribe=Yes"} {
				if a := p.post(token, body); a.status != http.StatusBadRequest {
					t.Errorf("a POST of %s: %d", what, a.status)
				}
			}
			if a := p.post(token, oneClick+"&x="+strings.Repeat("x", 64<<10)); a.status != http.StatusRequestEntityTooLarge {
				t.Errorf("a large form: %d", a.status)
			}
		}
		if got := p.holds(); got != "no contact" {
			t.Errorf("there is a contact: %s", got)
		}
		if all := p.seen.Take(); len(all) != 0 {
			t.Errorf("recorded were %v", all)
		}
	})
}

// One click unsubscribes from the topic of the email, or from everything if it has none: in each encoding that the RFC
// allows, as often as it is sent, and without a redirect.
func TestOneClick(t *testing.T) {
	t.Parallel()
	var form bytes.Buffer
	w := multipart.NewWriter(&form)
	w.WriteField("List-Unsubscribe", "One-Click")
	w.Close()
	for name, send := range map[string]func(p *pages, token string) *answer{
		"urlencoded": func(p *pages, token string) *answer { return p.post(token, oneClick) },
		"multipart": func(p *pages, token string) *answer {
			return p.request(http.MethodPost, token, form.String(), "Content-Type", w.FormDataContentType())
		},
		"no type":      func(p *pages, token string) *answer { return p.request(http.MethodPost, token, oneClick) },
		"a line break": func(p *pages, token string) *answer { return p.post(token, oneClick+"\r\n") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eachPages(t, func(t *testing.T, p *pages) {
				news := p.topic("News", contacts.OptIn, contacts.Public)
				p.topic("Offers", contacts.OptIn, contacts.Public)
				for i := range 3 {
					if a := send(p, p.token(news.ID)); a.status != 200 || a.heading() != "You are unsubscribed from “News”" {
						t.Errorf("POST %d: %d %s", i, a.status, a.text)
					}
					if got := p.holds(); got != "Offers" {
						t.Errorf("POST %d: it has %q", i, got)
					}
				}
				for i := range 3 {
					a := send(p, p.token(""))
					if a.status != 200 || a.heading() != "You are unsubscribed from all emails of Acme" {
						t.Errorf("POST %d: %d %s", i, a.status, a.text)
					}
					if got := p.holds(); got != "Offers none" {
						t.Errorf("POST %d: it has %q", i, got)
					}
				}
				var told []string
				for _, e := range p.seen.Take() {
					c := e.Data.(*events.Contact)
					told = append(told, fmt.Sprint(e.Type, " ", c.Email, " ", c.Unsubscribed))
				}
				if want := []string{"contact.created rita@example.org false", "contact.updated rita@example.org true"}; !slices.
					Equal(told, want) {
					t.Errorf("recorded were %q", told)
				}
			})
		})
	}
}

// Of a topic that was deleted nobody can be taken off: one click then unsubscribes from everything.
func TestOneClickOfADeletedTopic(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		gone := p.topic("Gone", contacts.OptIn, contacts.Public)
		token := p.token(gone.ID)
		if err := p.Contacts.DeleteTopic(t.Context(), p.team, gone.ID); err != nil {
			t.Fatal(err)
		}
		if a := p.request(http.MethodGet, token, ""); a.status != 200 || len(a.choices()) != 1 {
			t.Errorf("%d %q", a.status, a.choices())
		}
		if a := p.post(token, oneClick); a.status != 200 || p.holds() != "none" {
			t.Errorf("%d, it has %q", a.status, p.holds())
		}
	})
}

// A person chooses on the page, sees what holds, and may take it back.
func TestChoosing(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		p.topic("Offers", contacts.OptOut, contacts.Public)
		news := p.topic("News", contacts.OptIn, contacts.Public)
		p.topic("Events", contacts.OptIn, contacts.Public)
		const everything = "Unsubscribe from all emails of Acme"
		token := p.token(news.ID)
		look := func(want ...string) *answer {
			t.Helper()
			a := p.request(http.MethodGet, token, "")
			if a.status != 200 || !slices.Equal(a.choices(), want) {
				t.Errorf("%d, the page offers %q, not %q", a.status, a.choices(), want)
			}
			return a
		}
		says := func(a *answer, heading, holds string) *answer {
			t.Helper()
			if a.status != 200 || a.heading() != heading || p.holds() != holds {
				t.Errorf("%d, it says %q, and it has %q", a.status, a.heading(), p.holds())
			}
			return a
		}
		page := look("+News", "-Offers", "+Events", "-"+everything)
		says(p.submit(page, token, "Save", nil), "Nothing has changed", "no contact")

		left := says(p.submit(page, token, "Unsubscribe from “News”", nil), "You are unsubscribed from “News”", "Events")
		says(p.submit(left, token, "Undo", nil), "Your choice is saved", "News Events")
		look("+News", "-Offers", "+Events", "-"+everything)

		chosen := says(p.submit(page, token, "Save", []string{"Offers"}), "Your choice is saved", "Offers")
		page = look("-News", "+Offers", "-Events", "-"+everything)
		says(p.submit(chosen, token, "Undo", nil), "Your choice is saved", "News Events")

		none := says(p.submit(page, token, "Save", []string{"News", "Events", everything}),
			"You are unsubscribed from all emails of Acme", "News Events none")
		page = look("+News", "-Offers", "+Events", "+"+everything)
		if strings.Contains(page.text, "One-Click") {
			t.Error("who is unsubscribed is asked to unsubscribe")
		}
		says(p.submit(none, token, "Undo", nil), "Your choice is saved", "News Events")
		// A topic that came after the page was made stays as it is.
		p.topic("Later", contacts.OptIn, contacts.Public)
		says(p.submit(page, token, "Save", []string{}), "Your choice is saved", "Later")
	})
}

// A private topic is shown to those who are in it, and to those who left it here, so that they find their way back.
// Others neither see nor enter it.
func TestPrivateTopics(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		secret := p.topic("Secret", contacts.OptOut, contacts.Private)
		staff := p.topic("Staff", contacts.OptIn, contacts.Private)
		public := p.topic("Public", contacts.OptIn, contacts.Public)
		token := p.token(public.ID)
		offers := func(want ...string) *answer {
			t.Helper()
			a := p.request(http.MethodGet, token, "")
			if got := a.choices(); !slices.Equal(got[:len(got)-1], want) {
				t.Errorf("the page offers %q, not %q", got, want)
			}
			return a
		}
		offers("+Public", "+Staff")
		p.post(token, "save=1&shown="+secret.ID+"&topic="+secret.ID)
		if got := p.holds(); got != "no contact" {
			t.Errorf("somebody entered a private topic: %s", got)
		}
		at, _, err := p.Contacts.Upsert(t.Context(), p.team, rita, contacts.Change{Topics: []contacts.Choice{
			{TopicID: secret.ID, Subscription: contacts.OptIn}}})
		if err != nil {
			t.Fatal(err)
		}
		page := offers("+Public", "+Secret", "+Staff")
		left := p.submit(page, token, "Save", []string{"Public"})
		if got := p.holds(); got != "Public" {
			t.Errorf("it has %q", got)
		}
		offers("+Public", "-Secret", "-Staff")
		p.submit(left, token, "Undo", nil)
		if got := p.holds(); got != "Secret Staff Public" {
			t.Errorf("it has %q", got)
		}
		// The team takes somebody out: the way back is not theirs.
		out := []contacts.Choice{{TopicID: secret.ID, Subscription: contacts.OptOut},
			{TopicID: staff.ID, Subscription: contacts.OptOut}}
		if err := p.Contacts.Subscribe(t.Context(), p.team, at.ID, out); err != nil {
			t.Fatal(err)
		}
		offers("+Public")
		p.post(token, "save=1&shown="+secret.ID+"&topic="+secret.ID)
		if a := p.post(p.token(secret.ID), oneClick); a.status != 200 || p.holds() != "Public" {
			t.Errorf("%d, it has %q", a.status, p.holds())
		}
	})
}

// There is nothing at an address that was altered, or that was of a team that is gone: no word of it, and no change.
func TestUnsubscribeLinksThatLeadNowhere(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		token := p.token("")
		octets, err := base64.RawURLEncoding.DecodeString(token)
		if err != nil {
			t.Fatal(err)
		}
		octets[20] ^= 1
		altered := base64.RawURLEncoding.EncodeToString(octets)
		nowhere := func(token string) {
			t.Helper()
			for _, a := range []*answer{p.request(http.MethodGet, token, ""), p.post(token, oneClick)} {
				if a.status != http.StatusNotFound || a.header.Get("Content-Type") != "text/plain; charset=utf-8" ||
					a.text != "There is nothing at this address.\n" {
					t.Errorf("%d %s", a.status, a.text)
				}
			}
		}
		nowhere(altered)
		nowhere("x")
		nowhere(strings.Repeat("A", 9000))
		nowhere(p.Contacts.Token(contacts.Link{TeamID: id.New(), Address: rita}))
		if a := p.request(http.MethodGet, token, ""); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.text)
		}
		if err := p.Teams.Delete(context.WithoutCancel(t.Context()), jobs.NewQueue(p.DB), p.team); err != nil {
			t.Fatal(err)
		}
		nowhere(token)
		if got := p.holds(); got != "no contact" {
			t.Errorf("it has %q", got)
		}
	})
}

// While the database is away a page cannot be shown and nothing is promised: a mail program may try again.
func TestUnsubscribingWithoutADatabase(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		token := p.token("")
		p.DB.Close()
		for _, a := range []*answer{p.request(http.MethodGet, token, ""), p.post(token, oneClick)} {
			if a.status < 500 || strings.Contains(a.text, "sql") || len(a.text) > 100 {
				t.Errorf("%d %s", a.status, a.text)
			}
		}
	})
}

// Whoever has links to an address cannot fill the disk by going back and forth: opting in again is refused after a
// while, with any of the links, and opting out never is.
func TestOptingInAgainAndAgain(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		news := p.topic("News", contacts.OptIn, contacts.Public)
		offers := p.topic("Offers", contacts.OptIn, contacts.Public)
		p.post(p.token(news.ID), oneClick)
		in := url.Values{"save": {"1"}, "shown": {news.ID}, "topic": {news.ID}}.Encode()
		refused := 0
		for range 40 {
			token := p.token(news.ID)
			switch a := p.post(token, in); a.status {
			case 200:
				if p.holds() != "News Offers" || refused > 0 {
					t.Fatalf("after the form %q holds, and %d were refused", p.holds(), refused)
				}
			case 429:
				refused++
				if p.holds() != "Offers" || a.header.Get("Retry-After") == "" || !strings.Contains(a.text, "in an hour") {
					t.Fatalf("%q holds after %s", p.holds(), a.text)
				}
			default:
				t.Fatalf("%d %s", a.status, a.text)
			}
			if a := p.post(token, oneClick); a.status != 200 || p.holds() != "Offers" {
				t.Fatalf("%d %s: %q holds", a.status, a.text, p.holds())
			}
		}
		if refused != 18 { // 20, and one for each topic, are not
			t.Errorf("%d of 40 were refused", refused)
		}
		if n := len(p.seen.Take()); n != 1+2*22 {
			t.Errorf("%d events", n)
		}
		// What is left at the same time is left.
		mixed := url.Values{"save": {"1"}, "shown": {news.ID, offers.ID}, "topic": {news.ID}}.Encode()
		if a := p.post(p.token(""), mixed); a.status != 429 || p.holds() != "" {
			t.Errorf("%d %s: %q holds", a.status, a.text, p.holds())
		}
		if a := p.post(p.token(""), oneClick); a.status != 200 || p.holds() != "none" {
			t.Errorf("%d %s: %q holds", a.status, a.text, p.holds())
		}
		if a := p.post(p.token(""), "save=1"); a.status != 429 || p.holds() != "none" {
			t.Errorf("%d %s: %q holds", a.status, a.text, p.holds())
		}
		// Another address has its own count.
		other := p.Contacts.Token(contacts.Link{TeamID: p.team, EmailID: id.New(), TopicID: news.ID,
			Address: "otto@example.org"})
		p.post(other, oneClick)
		if a := p.post(other, in); a.status != 200 {
			t.Errorf("another address: %d %s", a.status, a.text)
		}
	})
}

// The link of an email that a broadcast sent to a contact is the contact's also under a later address, which the page
// does not show. What is left is left with the address of the email too; once the contact is deleted, with that alone.
func TestLinkAfterAChangeOfAddress(t *testing.T) {
	t.Parallel()
	eachPages(t, func(t *testing.T, p *pages) {
		ctx := t.Context()
		const later, other = "later@example.org", "other@example.org"
		news := p.topic("News", contacts.OptOut, contacts.Public)
		offers := p.topic("Offers", contacts.OptIn, contacts.Public)
		optIn := contacts.Change{Topics: []contacts.Choice{{TopicID: news.ID, Subscription: contacts.OptIn}}}
		moved := func() (contactID string) {
			at, _, err := p.Contacts.Upsert(ctx, p.team, rita, optIn)
			if err == nil {
				_, err = p.Contacts.Update(ctx, p.team, at.ID, contacts.Change{Address: new(later)})
			}
			if err != nil {
				t.Fatal(err)
			}
			return at.ID
		}
		removed := func() {
			for _, address := range []string{rita, later} {
				if _, err := p.Contacts.Delete(ctx, p.team, address); err != nil {
					t.Fatalf("delete %s: %v", address, err)
				}
			}
		}
		token := func(contactID, topicID string) string {
			return p.Contacts.Token(contacts.Link{TeamID: p.team, EmailID: id.New(), TopicID: topicID, ContactID: contactID,
				Address: rita})
		}
		holds := func(address string) string {
			at, err := p.Contacts.Get(ctx, p.team, address)
			if err != nil {
				return "no contact"
			}
			all, err := p.Contacts.Subscriptions(ctx, p.team, at.ID)
			if err != nil {
				t.Fatal(err)
			}
			var on []string
			for _, s := range all {
				if s.Subscription == contacts.OptIn {
					on = append(on, s.Name)
				}
			}
			if at.Unsubscribed {
				on = append(on, "none")
			}
			return strings.Join(on, " ")
		}
		want := func(what, ofLater, ofRita string) {
			t.Helper()
			if got := holds(later); got != ofLater {
				t.Errorf("%s: the later address holds %q, want %q", what, got, ofLater)
			}
			if got := holds(rita); got != ofRita {
				t.Errorf("%s: the address of the email holds %q, want %q", what, got, ofRita)
			}
		}

		contactID := moved()
		if a := p.post(token(contactID, ""), oneClick); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.text)
		}
		want("one click without a topic", "News Offers none", "Offers none")
		removed()

		contactID = moved()
		if a := p.post(token(contactID, offers.ID), oneClick); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.text)
		}
		want("one click", "News", "")
		removed()

		contactID = moved()
		of := token(contactID, news.ID)
		a := p.request(http.MethodGet, of, "")
		if strings.Contains(a.text, later) || !strings.Contains(a.text, rita) {
			t.Errorf("the page shows the later address: %s", a.text)
		}
		if got := a.choices(); len(got) != 3 || got[0] != "+News" || got[1] != "+Offers" {
			t.Errorf("the page offers %q", got)
		}
		a = p.submit(a, of, "Save", []string{"News"})
		if a.status != 200 || strings.Contains(a.text, later) {
			t.Fatalf("%d %s", a.status, a.text)
		}
		want("the page", "News", "")
		p.submit(p.request(http.MethodGet, of, ""), of, "Save", []string{"News", "Offers"})
		want("the page, again", "News Offers", "")
		removed()

		// Somebody else's contact has the address of the email by now: it is left, and opted in to nothing.
		contactID = moved()
		if _, _, err := p.Contacts.Upsert(ctx, p.team, rita, contacts.Change{}); err != nil {
			t.Fatal(err)
		}
		of = token(contactID, news.ID)
		p.submit(p.request(http.MethodGet, of, ""), of, "Save", []string{"News"})
		want("another contact", "News", "")
		removed()

		contactID = moved()
		if _, err := p.Contacts.Delete(ctx, p.team, later); err != nil {
			t.Fatal(err)
		}
		if _, _, err := p.Contacts.Upsert(ctx, p.team, later, optIn); err != nil {
			t.Fatal(err)
		}
		p.post(token(contactID, ""), oneClick)
		want("a deleted contact", "News Offers", "Offers none")

		// A link names contacts of its own team alone.
		strange, _, err := p.Contacts.Upsert(ctx, p.Other.TeamID, other, contacts.Change{})
		if err != nil {
			t.Fatal(err)
		}
		p.post(token(strange.ID, ""), oneClick)
		if at, err := p.Contacts.Get(ctx, p.Other.TeamID, strange.ID); err != nil || at.Unsubscribed {
			t.Errorf("another team's contact: %+v, %v", at, err)
		}
	})
}
