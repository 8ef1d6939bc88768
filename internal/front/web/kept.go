package web

import (
	"bytes"
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/postrider/postrider/internal/accounts/users"
)

// A visitor may submit a form after the session has ended. The form changes nothing then, but what was typed is kept
// while the visitor signs in, and the page of the form is shown with it. Package users stores it for an hour, and a
// cookie holds its token and the id of the user who was signed in last: another person who signs in to the browser must
// not see it.
const (
	keptCookie = "kept"
	keptFor    = time.Hour
	lastCookie = "last" // the user who was signed in last; see [users.Service.BrowserToken]
)

// neverKept are the names of the fields with secrets.
var neverKept = []string{"password", "current", "code", "token", "secret"}

// keepForm keeps the form of a request and returns the address of the page that has the form. Without such a page the
// address is "", as it is for consent: its page needs the parameters of the connected app. A form that cannot be kept
// is lost, as the page says in effect by being empty.
func (s *Site) keepForm(w http.ResponseWriter, r *http.Request, mux *http.ServeMux) (page string) {
	if !strings.HasPrefix(r.URL.Path, "/app/") {
		return ""
	}
	if page = s.pageOfForm(r, mux); page == "" {
		return ""
	}
	last := s.users.BrowserUser(s.Cookie(r, lastCookie)) // a made-up cookie must not take the place of another form
	if last == "" {
		return page
	}
	form, err := s.Form(w, r)
	if err != nil {
		return page
	}
	for _, name := range neverKept {
		form.Del(name)
	}
	at, _, _ := strings.Cut(page, "?")
	token, err := s.users.KeepForm(r.Context(), last,
		users.KeptForm{Page: at, Action: r.URL.RequestURI(), Form: form.Encode()})
	if err != nil {
		s.log.Warn("a form that was submitted without a session could not be kept", "page", r.Pattern, "error", err)
	}
	if token != "" {
		s.setCookie(w, keptCookie, token+"."+last, keptFor)
	}
	return page
}

// pageOfForm returns the address of the page that has the form of a request: the page that the browser names as the
// referrer, or the nearest page above the address of the form.
func (s *Site) pageOfForm(r *http.Request, mux *http.ServeMux) string {
	var candidates []string
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		candidates = append(candidates, Local(from.RequestURI()))
	}
	for p := r.URL.Path; len(p) > 1; p = path.Dir(p) {
		candidates = append(candidates, Local(p))
	}
	for _, candidate := range candidates {
		at, err := url.Parse(candidate)
		if err != nil || candidate == "" {
			continue
		}
		_, pattern := mux.Handler(&http.Request{Method: http.MethodGet, URL: at, Host: r.Host})
		route, ok := strings.CutPrefix(pattern, "GET ")
		// A page may have the address of a form by chance, such as the page of an object with the name of an action.
		if ok && (at.Path != r.URL.Path || route == strings.TrimPrefix(r.Pattern, http.MethodPost+" ")) {
			return candidate
		}
	}
	return ""
}

// takeForm returns the form that was kept for a page, once. A form of another user or another team is not shown.
func (s *Site) takeForm(w http.ResponseWriter, r *http.Request, v *Visitor) (*users.KeptForm, error) {
	token, by, _ := strings.Cut(s.Cookie(r, keptCookie), ".")
	if token == "" || r.Method != http.MethodGet || wantsJSON(r) {
		return nil, nil
	}
	f, ok, err := s.users.TakeForm(r.Context(), token, r.URL.Path)
	if err != nil || !ok {
		return nil, err
	}
	s.setCookie(w, keptCookie, "", 0)
	form, err := url.ParseQuery(f.Form)
	if err != nil {
		return nil, fmt.Errorf("read a kept form: %w", err)
	}
	if by != v.User.ID {
		return nil, nil
	}
	if team, _ := v.Team(); form.Has("team") && form.Get("team") != team.TeamID {
		return nil, nil
	}
	return &f, nil
}

// refill sets in a page what was typed into one of its forms. A page without the form stays as it is. Fields of
// passwords and hidden fields keep their values.
func refill(page []byte, f *users.KeptForm) ([]byte, error) {
	typed, err := url.ParseQuery(f.Form)
	if err != nil {
		return nil, fmt.Errorf("read a kept form: %w", err)
	}
	document, err := html.Parse(bytes.NewReader(page))
	if err != nil {
		return nil, fmt.Errorf("parse a page: %w", err)
	}
	for n := range document.Descendants() {
		if n.DataAtom == atom.Form && strings.EqualFold(attribute(n, "method"), "post") && leadsTo(n, f.Action) {
			fillForm(n, typed)
			break
		}
	}
	var b bytes.Buffer
	if err := html.Render(&b, document); err != nil {
		return nil, fmt.Errorf("render a page: %w", err)
	}
	return b.Bytes(), nil
}

// leadsTo reports whether a form, or one of its buttons, leads to an address.
func leadsTo(form *html.Node, address string) bool {
	if attribute(form, "action") == address {
		return true
	}
	for n := range form.Descendants() {
		if n.DataAtom == atom.Button && attribute(n, "formaction") == address {
			return true
		}
	}
	return false
}

// fillForm sets the fields of a form, opens what the form is folded into, and marks the form for the script.
func fillForm(form *html.Node, typed url.Values) {
	setAttribute(form, "data-kept", true)
	for n := form.Parent; n != nil; n = n.Parent {
		if n.DataAtom == atom.Details {
			setAttribute(n, "open", true)
		}
	}
	for n := range form.Descendants() {
		values, ok := typed[attribute(n, "name")]
		switch n.DataAtom {
		case atom.Input:
			switch attribute(n, "type") {
			case "hidden", "password", "submit":
			case "checkbox", "radio":
				setAttribute(n, "checked", slices.Contains(values, cmp.Or(attribute(n, "value"), "on")))
			default:
				if ok {
					setAttribute(n, "value", false)
					n.Attr = append(n.Attr, html.Attribute{Key: "value", Val: values[0]})
				}
			}
		case atom.Textarea:
			if ok {
				for n.FirstChild != nil {
					n.RemoveChild(n.FirstChild)
				}
				n.AppendChild(&html.Node{Type: html.TextNode, Data: values[0]})
			}
		case atom.Option:
			if values, ok := typed[selectName(n)]; ok {
				setAttribute(n, "selected", slices.Contains(values, attribute(n, "value")))
			}
		}
	}
}

// selectName returns the name of the select element that an option belongs to.
func selectName(option *html.Node) string {
	for n := option.Parent; n != nil; n = n.Parent {
		if n.DataAtom == atom.Select {
			return attribute(n, "name")
		}
	}
	return ""
}

func attribute(n *html.Node, name string) string {
	for _, a := range n.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// setAttribute sets or removes an attribute without a value.
func setAttribute(n *html.Node, name string, set bool) {
	n.Attr = slices.DeleteFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
	if set {
		n.Attr = append(n.Attr, html.Attribute{Key: name})
	}
}
