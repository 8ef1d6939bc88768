// Package sendgrid reads the data of an account of SendGrid, and a file of contacts that its Marketing Campaigns wrote.
//
// Unsubscribe groups become public topics that contacts are opted in to by default; recipients who left a group are
// opted out. Global unsubscribes become unsubscribed contacts. The API hands out contacts only by a job that creates
// files, so contacts come from a CSV file that a user exported; its columns become properties. Blocks are temporary at
// SendGrid, and are not imported.
package sendgrid

import (
	"context"
	"net/http"
	"net/url"
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
	groups []group      // nil until they are read
}

// New returns a source. The client must have the header of Header. The file of contacts may be "".
func New(c *fetch.Client, contactsFile string) *Source {
	s := &Source{c: c}
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

// list reads a part of a list, and returns the offset of the next part, or 0.
func list[T any](ctx context.Context, c *fetch.Client, path string, at, limit int) (all []T, next int, err error) {
	query := url.Values{"limit": {strconv.Itoa(limit)}, "offset": {strconv.Itoa(at)}}
	if err := c.Get(ctx, path, query, &all); err != nil {
		return nil, 0, err
	}
	if len(all) == limit {
		next = at + limit
	}
	return all, next, nil
}

func (s *Source) domains(ctx context.Context, p *importfrom.Page, cursor string) error {
	at, _ := strconv.Atoi(cursor)
	all, next, err := list[struct {
		Domain    string `json:"domain"`
		Subdomain string `json:"subdomain"`
	}](ctx, s.c, "/v3/whitelabel/domains", at, perTemplates)
	for _, d := range all {
		p.Domains = append(p.Domains, importfrom.Domain{Name: d.Domain, ReturnPath: d.Subdomain, Sending: true})
	}
	if next > 0 {
		p.Next = strconv.Itoa(next)
	}
	return err
}

type group struct {
	ID          int    `json:"id"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

func (g *group) id() string { return strconv.Itoa(g.ID) }

// readGroups reads all unsubscribe groups, of which an account has at most 200, unless they are known.
func (s *Source) readGroups(ctx context.Context) error {
	if s.groups != nil {
		return nil
	}
	found := []group{}
	if err := s.c.Get(ctx, "/v3/asm/groups", nil, &found); err != nil {
		return err
	}
	s.groups = found
	return nil
}

// suppressionLists are the lists of addresses that SendGrid does not mail, in the order in which they are read.
var suppressionLists = []struct {
	path   string
	origin suppressions.Origin
}{{"/v3/suppression/bounces", suppressions.Bounce}, {"/v3/suppression/invalid_emails", suppressions.Bounce},
	{"/v3/suppression/spam_reports", suppressions.Complaint}}

type address struct {
	Email string `json:"email"`
}

// suppressed reads a part of a list of suppressions. The cursor is the number of the list and the offset in it.
func (s *Source) suppressed(ctx context.Context, p *importfrom.Page, cursor string) error {
	number, at := cut(cursor)
	if number >= len(suppressionLists) {
		return nil
	}
	of := suppressionLists[number]
	all, next, err := list[address](ctx, s.c, of.path, at, perPage)
	for _, a := range all {
		p.Suppressions = append(p.Suppressions, importfrom.Suppression{Address: a.Email, Origin: of.origin})
	}
	switch {
	case next > 0:
		p.Next = join(number, next)
	case number+1 < len(suppressionLists):
		p.Next = join(number+1, 0)
	}
	return err
}

func join(number, at int) string { return strconv.Itoa(number) + " " + strconv.Itoa(at) }

func cut(cursor string) (number, at int) {
	first, rest, _ := strings.Cut(cursor, " ")
	number, _ = strconv.Atoi(first)
	at, _ = strconv.Atoi(rest)
	return number, at
}

// contacts reads the global unsubscribes (list 0), the unsubscribes of each group, and at last the file of contacts. The
// unsubscribes come first, so that no contact is ever subscribed by mistake.
func (s *Source) contacts(ctx context.Context, p *importfrom.Page, cursor string) error {
	if err := s.readGroups(ctx); err != nil {
		return err
	}
	number, at := cut(cursor)
	next := 0
	switch {
	case number == 0:
		all, more, err := list[address](ctx, s.c, "/v3/suppression/unsubscribes", at, perPage)
		if err != nil {
			return err
		}
		for _, a := range all {
			p.Contacts = append(p.Contacts, importfrom.Contact{Address: a.Email, Unsubscribed: true})
		}
		next = more
	case number <= len(s.groups):
		var all []string
		g := &s.groups[number-1]
		if err := s.c.Get(ctx, "/v3/asm/groups/"+g.id()+"/suppressions", nil, &all); err != nil {
			return err
		}
		for _, a := range all {
			p.Contacts = append(p.Contacts, importfrom.Contact{Address: a,
				Topics: []importfrom.Choice{{TopicID: g.id(), Subscription: contacts.OptOut}}})
		}
	case s.people == nil:
		p.Notes = append(p.Notes, "Contacts of Marketing Campaigns are imported from a CSV file only: export them, and run the "+
			"command again with --contacts FILE.")
	default:
		var err error
		if next, err = s.people.page(p, at); err != nil {
			return err
		}
	}
	switch {
	case next > 0:
		p.Next = join(number, next)
	case number <= len(s.groups):
		p.Next = join(number+1, 0)
	}
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
