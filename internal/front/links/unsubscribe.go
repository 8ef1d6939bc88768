package links

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"html/template"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
)

// formMax is the maximum size of a submitted form in bytes. The form for a team with the maximum number of topics needs
// a third of formMax. Together with the limits on pages and tokens, formMax limits how much memory a request uses.
const formMax = 64 << 10

var (
	//go:embed unsubscribe.html
	unsubscribeHTML string
	//go:embed unsubscribe.css
	unsubscribeCSS string

	unsubscribeTemplate = template.Must(template.New("unsubscribe").Parse(unsubscribeHTML))

	// unsubscribePolicy is a Content-Security-Policy that allows nothing except the page's own style sheet and forms.
	unsubscribePolicy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; form-action 'self'; base-uri 'none'; "+
		"frame-ancestors 'none'", hashOf(unsubscribeCSS))
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// unsubscribeHandler serves /unsubscribe/.
//
// GET and HEAD requests only show a page, because mail programs, scanners and browsers also request links that nobody
// has clicked. Only POST requests change subscriptions. Mail programs send a POST request for List-Unsubscribe-Post
// (RFC 8058 section 3.2), as do the forms on the page. The response to a POST request is a page and never a redirect,
// as RFC 8058 requires. The forms need no CSRF protection, because the handler does not use cookies or sessions, and
// anybody who has the token may make changes.
type unsubscribeHandler struct {
	*Links
	contacts *contacts.Service
	teams    *teams.Service
}

// RegisterUnsubscribe adds the handler for unsubscribe links, /unsubscribe/{token}, to a mux.
func (l *Links) RegisterUnsubscribe(mux *http.ServeMux, c *contacts.Service, t *teams.Service) {
	u := unsubscribeHandler{l, c, t}
	mux.HandleFunc("GET /unsubscribe/{token}", u.show)
	mux.HandleFunc("POST /unsubscribe/{token}", u.change)
}

// unsubscribePage is the content of an unsubscribe page.
type unsubscribePage struct {
	Lang     string
	Text     *unsubscribeTexts
	Style    template.CSS
	Heading  string
	For, All string
	OneClick string // label of the one-click button; "" hides it

	// LeavesAll is whether the one-click button unsubscribes from all emails, so that no checkbox needs to.
	LeavesAll bool

	// If Done is true, the page is a confirmation. On a confirmation page, Topics and Unsubscribed hold the values from
	// before the change, which the undo button restores.
	Done, Changed bool

	Topics       []unsubscribeTopic
	Unsubscribed bool

	team string
}

type unsubscribeTopic struct {
	ID, Name, Description string
	On                    bool
}

// openLink returns the unsubscribe link in a request, and a page in the reader's language with the content that is
// common to all pages.
func (u *unsubscribeHandler) openLink(r *http.Request) (contacts.Link, *unsubscribePage, error) {
	link, err := u.contacts.ReadToken(r.PathValue("token"))
	if err != nil {
		return link, nil, err
	}
	team, err := u.teams.Get(r.Context(), link.TeamID)
	if fault.KindOf(err) == fault.NotFound {
		err = fault.NotFoundf("There is nothing at this address.")
	}
	if err != nil {
		return link, nil, err
	}
	p := &unsubscribePage{Style: template.CSS(unsubscribeCSS), team: team.Name}
	p.Lang, p.Text = unsubscribeLanguage(r.Header.Get("Accept-Language"))
	p.Heading = fmt.Sprintf(p.Text.Heading, p.team)
	p.For = fmt.Sprintf(p.Text.For, link.Address)
	p.All = fmt.Sprintf(p.Text.All, p.team)
	return link, p, nil
}

func (p *unsubscribePage) setPreferences(of *contacts.Preferences) {
	p.Unsubscribed = of.Unsubscribed
	for _, t := range of.Topics {
		p.Topics = append(p.Topics, unsubscribeTopic{t.ID, t.Name, t.Description, t.Subscription == contacts.OptIn})
	}
}

func (u *unsubscribeHandler) show(w http.ResponseWriter, r *http.Request) {
	link, p, err := u.openLink(r)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	of, err := u.contacts.Preferences(r.Context(), link)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	p.setPreferences(&of)
	switch first := p.topic(link.TopicID); {
	case of.Unsubscribed:
	case first != nil && first.On:
		p.OneClick = fmt.Sprintf(p.Text.LeaveOne, first.Name)
	case link.TopicID == "":
		p.OneClick, p.LeavesAll = fmt.Sprintf(p.Text.LeaveAll, p.team), true
	}
	u.writePage(w, r, p)
}

// topic returns the topic with the given id, or nil if the page does not contain that topic.
func (p *unsubscribePage) topic(topicID string) *unsubscribeTopic {
	for i := range p.Topics {
		if p.Topics[i].ID == topicID {
			return &p.Topics[i]
		}
	}
	return nil
}

func (u *unsubscribeHandler) change(w http.ResponseWriter, r *http.Request) {
	form, err := readForm(w, r)
	if err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "The form cannot be read.", status)
		return
	}
	link, p, err := u.openLink(r)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	var before, after contacts.Preferences
	leave := strings.EqualFold(form.Get("List-Unsubscribe"), "One-Click")
	switch {
	case leave:
		before, after, err = u.contacts.Unsubscribe(r.Context(), link)
	case form.Has("save"):
		before, after, err = u.contacts.Select(r.Context(), link, contacts.Selection{Shown: form["shown"],
			Wanted: form["topic"], Unsubscribed: form.Has("all")})
	default:
		http.Error(w, "The form contains no choice.", http.StatusBadRequest)
		return
	}
	if err != nil {
		u.fail(w, r, err)
		return
	}
	p.Done = true
	p.setPreferences(&before)
	left := ""
	if t := p.topic(link.TopicID); leave && t != nil {
		left = t.Name // set even if the contact was already unsubscribed from the topic
	}
	p.confirm(&after, left)
	u.writePage(w, r, p)
}

// confirm sets the heading of a confirmation page. The parameter left is the name of the topic that the contact
// unsubscribed from, or "".
func (p *unsubscribePage) confirm(after *contacts.Preferences, left string) {
	changes := 0
	for i, t := range after.Topics {
		if on := t.Subscription == contacts.OptIn; on != p.Topics[i].On {
			changes++
			if !on {
				left = t.Name
			}
		}
	}
	p.Changed = changes > 0 || after.Unsubscribed != p.Unsubscribed
	switch {
	case after.Unsubscribed:
		p.Heading = fmt.Sprintf(p.Text.LeftAll, p.team)
	case left != "" && changes <= 1 && !p.Unsubscribed:
		p.Heading = fmt.Sprintf(p.Text.LeftOne, left)
	case !p.Changed:
		p.Heading = p.Text.Unchanged
	default:
		p.Heading = p.Text.Saved
	}
}

// readForm reads a form in either encoding that RFC 8058 section 3.2 allows. A body without a Content-Type is read as
// application/x-www-form-urlencoded.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	r.Body = http.MaxBytesReader(w, r.Body, formMax)
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err == nil && kind == "multipart/form-data" {
		if err := r.ParseMultipartForm(formMax); err != nil {
			return nil, err
		}
		return r.MultipartForm.Value, nil
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return url.ParseQuery(strings.TrimSpace(string(body)))
}

func (u *unsubscribeHandler) writePage(w http.ResponseWriter, r *http.Request, p *unsubscribePage) {
	// The page is rendered in memory, so that an error page can replace it if rendering fails. The limited number of
	// topics also limits the size of the page.
	var page bytes.Buffer
	if err := unsubscribeTemplate.Execute(&page, p); err != nil {
		u.fail(w, r, fmt.Errorf("render the page of an unsubscribe link: %w", err))
		return
	}
	setPageHeader(w.Header(), p.Lang)
	w.Header().Set("Vary", "Accept-Language")
	w.Write(page.Bytes())
}
