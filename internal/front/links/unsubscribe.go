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

// formMax is the largest form that is read, in octets. That of a team with all the topics that it may have is a third
// of it. Together with the bounds of a page and of a token it bounds the memory of a request; nothing is kept between
// requests.
const formMax = 64 << 10

var (
	//go:embed unsubscribe.html
	unsubscribeHTML string
	//go:embed unsubscribe.css
	unsubscribeCSS string

	unsubscribeTemplate = template.Must(template.New("unsubscribe").Parse(unsubscribeHTML))

	// unsubscribePolicy allows the style of the page and its forms, and nothing else.
	unsubscribePolicy = fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; form-action 'self'; base-uri 'none'; "+
		"frame-ancestors 'none'", hashOf(unsubscribeCSS))
)

func hashOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// unsubscribing serves /unsubscribe/.
//
// GET and HEAD show a page and change nothing, because mail programs, scanners and browsers fetch links that nobody
// has followed. POST changes: it is what a mail program sends for List-Unsubscribe-Post (RFC 8058 section 3.2), and
// what the forms of the page send. It is answered with a page and never with a redirect, as the RFC asks. A form needs
// no protection against requests from other sites: no cookie and no session gives them anything, the token alone is
// the authority, and who has it may choose.
type unsubscribing struct {
	*Links
	contacts *contacts.Service
	teams    *teams.Service
}

// RegisterUnsubscribe adds the handlers of unsubscribe links to a mux: /unsubscribe/{token}.
func (l *Links) RegisterUnsubscribe(mux *http.ServeMux, c *contacts.Service, t *teams.Service) {
	u := unsubscribing{l, c, t}
	mux.HandleFunc("GET /unsubscribe/{token}", u.show)
	mux.HandleFunc("POST /unsubscribe/{token}", u.change)
}

// unsubscribePage is the content of a page.
type unsubscribePage struct {
	Lang     string
	Text     *unsubscribeTexts
	Style    template.CSS
	Heading  string
	For, All string
	OneClick string // the label of the button that leaves what the email was about; "" for none

	// Done makes the page a confirmation. Topics and Unsubscribed are then what held before.
	Done, Changed bool

	Topics       []unsubscribeTopic
	Unsubscribed bool

	team string
}

type unsubscribeTopic struct {
	ID, Name, Description string
	On                    bool
}

// open returns the link of a request, and a page in the reader's language with what all pages have.
func (u *unsubscribing) open(r *http.Request) (contacts.Link, *unsubscribePage, error) {
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

func (p *unsubscribePage) set(of *contacts.Preferences) {
	p.Unsubscribed = of.Unsubscribed
	for _, t := range of.Topics {
		p.Topics = append(p.Topics, unsubscribeTopic{t.ID, t.Name, t.Description, t.Subscription == contacts.OptIn})
	}
}

func (u *unsubscribing) show(w http.ResponseWriter, r *http.Request) {
	link, p, err := u.open(r)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	of, err := u.contacts.Preferences(r.Context(), link)
	if err != nil {
		u.fail(w, r, err)
		return
	}
	p.set(&of)
	switch first := p.topic(link.TopicID); {
	case of.Unsubscribed:
	case first != nil && first.On:
		p.OneClick = fmt.Sprintf(p.Text.LeaveOne, first.Name)
	case link.TopicID == "":
		p.OneClick = fmt.Sprintf(p.Text.LeaveAll, p.team)
	}
	u.write(w, r, p)
}

// topic returns a topic of the page, nil if it is not there.
func (p *unsubscribePage) topic(topicID string) *unsubscribeTopic {
	for i := range p.Topics {
		if p.Topics[i].ID == topicID {
			return &p.Topics[i]
		}
	}
	return nil
}

func (u *unsubscribing) change(w http.ResponseWriter, r *http.Request) {
	form, err := readForm(w, r)
	if err != nil {
		status := http.StatusBadRequest
		if _, large := errors.AsType[*http.MaxBytesError](err); large {
			status = http.StatusRequestEntityTooLarge
		}
		http.Error(w, "The form cannot be read.", status)
		return
	}
	link, p, err := u.open(r)
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
		http.Error(w, "The form says nothing.", http.StatusBadRequest)
		return
	}
	if err != nil {
		u.fail(w, r, err)
		return
	}
	p.Done = true
	p.set(&before)
	left := ""
	if t := p.topic(link.TopicID); leave && t != nil {
		left = t.Name // also when it was left before
	}
	p.confirm(&after, left)
	u.write(w, r, p)
}

// confirm makes the heading of a confirmation: what holds now. left is the topic that was to be left, if any.
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

// readForm reads a form in either of the encodings that RFC 8058 section 3.2 allows. A body without a type is read as
// the one that programs send without thinking.
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

func (u *unsubscribing) write(w http.ResponseWriter, r *http.Request, p *unsubscribePage) {
	var page bytes.Buffer // A page has at most as many topics as a team, and an error must not follow half of it.
	if err := unsubscribeTemplate.Execute(&page, p); err != nil {
		u.fail(w, r, fmt.Errorf("make the page of an unsubscribe link: %w", err))
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Language", p.Lang)
	h.Set("Vary", "Accept-Language")
	h.Set("Content-Security-Policy", unsubscribePolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "private, no-store")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Robots-Tag", "noindex")
	w.Write(page.Bytes())
}
