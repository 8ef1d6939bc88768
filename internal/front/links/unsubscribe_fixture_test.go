package links_test

import (
	"bytes"
	"io"
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
)

// pages serves the unsubscribe pages over HTTP.
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

// token returns the token for an unsubscribe link for a topic, or for no topic if topicID is "".
func (p *pages) token(topicID string) string {
	return p.Contacts.Token(contacts.Link{TeamID: p.team, EmailID: id.New(), TopicID: topicID, Address: rita})
}

// holds returns the names of the topics that the contact is opted in to, followed by "none" if the contact is
// unsubscribed from all emails.
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

// answer is a response together with its parsed page.
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

// all returns the page's elements with the given tag name.
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

// choices returns the labels of the checkboxes, each prefixed with + if the box is checked and with - if it is not.
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

// submit submits the form that has a button with the given label. If the list on is not nil, exactly the boxes whose
// labels are in that list are checked.
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
