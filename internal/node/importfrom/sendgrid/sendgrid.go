// Package sendgrid reads the data of an account of SendGrid, and a file of contacts that its Marketing Campaigns wrote.
//
// Unsubscribe groups become public topics that contacts are opted in to by default; recipients who left a group are
// opted out. Global unsubscribes become unsubscribed contacts. The API hands out contacts only by a job that creates
// files, so contacts come from a CSV file that a user exported; its columns become properties. Blocks are temporary at
// SendGrid, and are not imported.
package sendgrid

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/convert"
	"github.com/postrider/postrider/internal/node/importfrom/fetch"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// URL is the base of SendGrid's API for accounts outside of the EU region.
const URL = "https://api.sendgrid.com"

const (
	perPage      = 500
	perTemplates = 50 // templates in a page
)

// Source reads an account through the API.
type Source struct {
	c      *fetch.Client
	people *contactFile // nil without a file
	groups []group      // by id; nil until they are read

	domainPages, addressPages fetch.Offsets
}

// New returns a source. The client must have the header of Header. The file of contacts may be "".
func New(c *fetch.Client, contactsFile string) *Source {
	s := &Source{c: c, domainPages: fetch.Offsets{Limit: perTemplates}, addressPages: fetch.Offsets{Limit: perPage}}
	if contactsFile != "" {
		s.people = &contactFile{name: contactsFile}
	}
	return s
}

// Header returns the header with an API key.
func Header(key string) http.Header { return http.Header{"Authorization": {"Bearer " + key}} }

// Kinds returns the kinds that SendGrid has.
func (s *Source) Kinds() []importfrom.Kind {
	return []importfrom.Kind{importfrom.Domains, importfrom.Topics, importfrom.Templates, importfrom.Suppressions,
		importfrom.Contacts, importfrom.Webhooks}
}

// Page reads a page.
func (s *Source) Page(ctx context.Context, kind importfrom.Kind, cursor string) (p importfrom.Page, err error) {
	switch kind {
	case importfrom.Domains:
		err = s.domains(ctx, &p, cursor)
	case importfrom.Topics:
		if err = s.readGroups(ctx); err == nil {
			for _, g := range s.groups {
				p.Topics = append(p.Topics, importfrom.Topic{ID: g.id(), Name: g.Name, Description: g.Description,
					Default: contacts.OptIn, Public: true})
			}
		}
	case importfrom.Templates:
		err = s.templates(ctx, &p, cursor)
	case importfrom.Suppressions:
		err = s.suppressed(ctx, &p, cursor)
	case importfrom.Contacts:
		err = s.contacts(ctx, &p, cursor)
	case importfrom.Webhooks:
		err = s.webhooks(ctx, &p)
	}
	return p, err
}

// list reads a part of the list at the cursor, one of several that are read one after another. The ids of the lists are
// their paths.
func list[T any](ctx context.Context, c *fetch.Client, o *fetch.Offsets, p *importfrom.Page, lists []string,
	cursor string, idOf func(*T) string) (all []T, path string, err error) {
	at, number, lost := fetch.Find(lists, cursor)
	query := url.Values{"limit": {strconv.Itoa(o.Limit)}, "offset": {strconv.Itoa(o.Offset(at))}}
	if err := c.Get(ctx, at.List, query, &all); err != nil {
		return nil, "", err
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = idOf(&all[i])
	}
	skip, next, err := o.Next(at, ids, 0)
	switch {
	case err != nil:
		return nil, "", err
	case next != nil:
		p.Next = next.Cursor()
	default:
		p.Next = fetch.After(lists, number)
	}
	if lost || next != nil && next.Again > at.Again {
		p.Notes = append(p.Notes, fetch.Reread)
	}
	return all[skip:], at.List, nil
}

func (s *Source) domains(ctx context.Context, p *importfrom.Page, cursor string) error {
	type domain struct {
		Domain    string `json:"domain"`
		Subdomain string `json:"subdomain"`
	}
	all, _, err := list(ctx, s.c, &s.domainPages, p, []string{"/v3/whitelabel/domains"}, cursor,
		func(d *domain) string { return d.Domain })
	for _, d := range all {
		p.Domains = append(p.Domains, importfrom.Domain{Name: d.Domain, ReturnPath: d.Subdomain, Sending: true})
	}
	return err
}

type group struct {
	ID          int    `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

func (g *group) id() string { return strconv.Itoa(g.ID) }

// path returns the path of the addresses that left the group.
func (g *group) path() string { return "/v3/asm/groups/" + g.id() + "/suppressions" }

// readGroups reads all unsubscribe groups, of which an account has at most 200, unless they are known.
func (s *Source) readGroups(ctx context.Context) error {
	if s.groups != nil {
		return nil
	}
	found := []group{}
	if err := s.c.Get(ctx, "/v3/asm/groups", nil, &found); err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b group) int { return cmp.Compare(a.ID, b.ID) })
	s.groups = found
	return nil
}

const (
	complaints   = "/v3/suppression/spam_reports"
	unsubscribes = "/v3/suppression/unsubscribes"
)

// suppressionLists are the lists of addresses that SendGrid does not mail, in the order in which they are read.
var suppressionLists = []string{"/v3/suppression/bounces", "/v3/suppression/invalid_emails", complaints}

type address struct {
	Email string `json:"email"`
}

func (a *address) id() string { return a.Email }

// suppressed reads a part of a list of suppressions.
func (s *Source) suppressed(ctx context.Context, p *importfrom.Page, cursor string) error {
	all, path, err := list(ctx, s.c, &s.addressPages, p, suppressionLists, cursor, (*address).id)
	origin := suppressions.Bounce
	if path == complaints {
		origin = suppressions.Complaint
	}
	for _, a := range all {
		p.Suppressions = append(p.Suppressions, importfrom.Suppression{Address: a.Email, Origin: origin})
	}
	return err
}

// people is the id of the last list of contacts, which is the file.
const people = "contacts"

// contacts reads the global unsubscribes, the unsubscribes of each group, and at last the file of contacts. The
// unsubscribes come first, so that no contact is ever subscribed by mistake.
func (s *Source) contacts(ctx context.Context, p *importfrom.Page, cursor string) error {
	if err := s.readGroups(ctx); err != nil {
		return err
	}
	lists := []string{unsubscribes}
	for i := range s.groups {
		lists = append(lists, s.groups[i].path())
	}
	lists = append(lists, people)
	at, number, _ := fetch.Find(lists, cursor)
	switch at.List {
	case unsubscribes:
		all, _, err := list(ctx, s.c, &s.addressPages, p, lists, cursor, (*address).id)
		for _, a := range all {
			p.Contacts = append(p.Contacts, importfrom.Contact{Address: a.Email, Unsubscribed: true})
		}
		return err
	case people:
		if s.people != nil {
			return s.people.page(p, at)
		}
		if at.At > 0 {
			return errors.New("the import stopped in the file of contacts: continue with --contacts FILE")
		}
		p.Notes = append(p.Notes, "Contacts of Marketing Campaigns are imported from a CSV file only: export them, and run the "+
			"command again with --contacts FILE.")
		return nil
	}
	var all []string
	g := &s.groups[number-1]
	if err := s.c.Get(ctx, g.path(), nil, &all); err != nil {
		return err
	}
	for _, a := range all {
		p.Contacts = append(p.Contacts, importfrom.Contact{Address: a,
			Topics: []importfrom.Choice{{TopicID: g.id(), Subscription: contacts.OptOut}}})
	}
	p.Next = fetch.After(lists, number)
	return nil
}

type version struct {
	Active  int    `json:"active"`
	Subject string `json:"subject"`
	HTML    string `json:"html_content"`
	Text    string `json:"plain_content"`
}

func (s *Source) templates(ctx context.Context, p *importfrom.Page, cursor string) error {
	var page struct {
		Result []struct {
			ID         string `json:"id"`
			Name       string `json:"name"`
			Generation string `json:"generation"`
		} `json:"result"`
		Metadata struct {
			Next string `json:"next"`
		} `json:"_metadata"`
	}
	query := url.Values{"generations": {"legacy,dynamic"}, "page_size": {strconv.Itoa(perTemplates)}}
	if cursor != "" {
		query.Set("page_token", cursor)
	}
	if err := s.c.Get(ctx, "/v3/templates", query, &page); err != nil {
		return err
	}
	if next, err := url.Parse(page.Metadata.Next); err == nil {
		p.Next = next.Query().Get("page_token")
	}
	for _, item := range page.Result {
		if item.Generation == "legacy" {
			p.Refused = append(p.Refused, importfrom.Refused{Name: item.Name,
				Reason: "it is a legacy template, whose substitutions are chosen by each email"})
			continue
		}
		var full struct {
			Versions []version `json:"versions"`
		}
		if err := s.c.Get(ctx, "/v3/templates/"+url.PathEscape(item.ID), nil, &full); err != nil {
			return err
		}
		of, reason := translate(item.Name, full.Versions)
		of.ID = item.ID
		if reason != "" {
			p.Refused = append(p.Refused, importfrom.Refused{Name: item.Name, Reason: reason})
			continue
		}
		p.Templates = append(p.Templates, of)
	}
	return nil
}

// translate translates the active version of a template.
func translate(name string, versions []version) (of importfrom.Template, reason string) {
	for _, v := range versions {
		if v.Active != 1 || v.HTML == "" {
			continue
		}
		var tr convert.Translator
		names := []string{"unsubscribe", "unsubscribe_preferences"}
		of = importfrom.Template{Name: name, Subject: tr.Handlebars(v.Subject, false, names...)}
		unsubscribe := strings.NewReplacer("<%asm_group_unsubscribe_raw_url%>", convert.UnsubscribeURL,
			"<%asm_global_unsubscribe_raw_url%>", convert.UnsubscribeURL, "<%asm_preferences_raw_url%>", convert.UnsubscribeURL)
		of.HTML = unsubscribe.Replace(tr.Handlebars(v.HTML, true, names...))
		if v.Text != "" {
			of.Text = new(unsubscribe.Replace(tr.Handlebars(v.Text, false, names...)))
		}
		return of, tr.Finish(&of)
	}
	return of, "it has no active version with HTML"
}

// events are the events of SendGrid's webhooks, with those of Postrider.
var events = []struct{ name, event string }{{"processed", "email.sent"}, {"delivered", "email.delivered"},
	{"deferred", "email.delivery_delayed"}, {"bounce", "email.bounced"}, {"dropped", "email.suppressed"},
	{"spam_report", "email.complained"}, {"open", "email.opened"}, {"click", "email.clicked"},
	{"unsubscribe", "contact.updated"}}

func (s *Source) webhooks(ctx context.Context, p *importfrom.Page) error {
	var all struct {
		Webhooks []map[string]any `json:"webhooks"`
	}
	if err := s.c.Get(ctx, "/v3/user/webhooks/event/settings/all", nil, &all); err != nil {
		return err
	}
	for _, w := range all.Webhooks {
		of := importfrom.Webhook{Note: "its receiver must read the events of Postrider, which have another form"}
		of.URL, _ = w["url"].(string)
		for _, e := range events {
			if on, _ := w[e.name].(bool); on {
				of.Events = append(of.Events, e.event)
			}
		}
		switch {
		case of.URL == "":
		case of.Events == nil:
			p.Refused = append(p.Refused, importfrom.Refused{Name: of.URL, Reason: "it receives no events"})
		default:
			p.Webhooks = append(p.Webhooks, of)
		}
	}
	return nil
}
