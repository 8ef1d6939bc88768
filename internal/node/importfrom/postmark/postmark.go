// Package postmark reads the data of a server of Postmark, and the domains of its account.
//
// Postmark has no contacts. Recipients who unsubscribed from a broadcast stream become unsubscribed contacts, because
// they still want receipts. All other suppressions become suppressions of the team, for every stream.
package postmark

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/convert"
	"github.com/postrider/postrider/internal/node/importfrom/fetch"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// URL is the base of Postmark's API.
const URL = "https://api.postmarkapp.com"

// MaxBody is the maximum size of a list of suppressions, which Postmark returns as a whole, in bytes.
const MaxBody = 128 << 20

const perPage = 100

// Source reads a server through the API.
type Source struct {
	server  *fetch.Client
	account *fetch.Client // nil without a token of the account
	streams []stream      // nil until they are read
	layouts map[string]template
}

// New returns a source. The client server must have the header of Header for a server's token, and account that of the
// account's token; account may be nil, and domains are then not imported.
func New(server, account *fetch.Client) *Source {
	return &Source{server: server, account: account, layouts: map[string]template{}}
}

// Header returns the header with a server's token.
func Header(token string) http.Header { return http.Header{"X-Postmark-Server-Token": {token}} }

// AccountHeader returns the header with an account's token.
func AccountHeader(token string) http.Header { return http.Header{"X-Postmark-Account-Token": {token}} }

// Kinds returns the kinds that can be read.
func (s *Source) Kinds() []importfrom.Kind {
	kinds := []importfrom.Kind{importfrom.Templates, importfrom.Suppressions, importfrom.Contacts, importfrom.Webhooks}
	if s.account != nil {
		kinds = append(kinds, importfrom.Domains)
	}
	return kinds
}

// Page reads a page. The cursor is an offset, or the number of a message stream.
func (s *Source) Page(ctx context.Context, kind importfrom.Kind, cursor string) (p importfrom.Page, err error) {
	at := 0
	if cursor != "" {
		if at, err = strconv.Atoi(cursor); err != nil {
			return p, err
		}
	}
	switch kind {
	case importfrom.Domains:
		err = s.domains(ctx, &p, at)
	case importfrom.Templates:
		err = s.templates(ctx, &p, at)
	case importfrom.Suppressions, importfrom.Contacts:
		err = s.suppressed(ctx, kind, &p, at)
	case importfrom.Webhooks:
		err = s.webhooks(ctx, &p)
	}
	return p, err
}

func offset(at int, more url.Values) url.Values {
	more.Set("count", strconv.Itoa(perPage))
	more.Set("offset", strconv.Itoa(at))
	return more
}

// after returns the cursor of the page after the one at an offset.
func after(at, got, total int) string {
	if got == 0 || at+got >= total {
		return ""
	}
	return strconv.Itoa(at + got)
}

func (s *Source) domains(ctx context.Context, p *importfrom.Page, at int) error {
	var list struct {
		TotalCount int
		Domains    []struct {
			ID   int
			Name string
		}
	}
	if err := s.account.Get(ctx, "/domains", offset(at, url.Values{}), &list); err != nil {
		return err
	}
	for _, d := range list.Domains {
		var full struct{ ReturnPathDomain string }
		if err := s.account.Get(ctx, "/domains/"+strconv.Itoa(d.ID), nil, &full); err != nil {
			return err
		}
		of := importfrom.Domain{Name: d.Name, Sending: true}
		if label, ok := strings.CutSuffix(full.ReturnPathDomain, "."+d.Name); ok && !strings.Contains(label, ".") {
			of.ReturnPath = label
		}
		p.Domains = append(p.Domains, of)
	}
	p.Next = after(at, len(list.Domains), list.TotalCount)
	return nil
}

type template struct {
	TemplateID     int `json:"TemplateId"`
	Name           string
	Alias          string
	Subject        string
	HTMLBody       string `json:"HtmlBody"`
	TextBody       string
	TemplateType   string
	LayoutTemplate string
}

func (s *Source) templates(ctx context.Context, p *importfrom.Page, at int) error {
	var list struct {
		TotalCount int
		Templates  []template
	}
	if err := s.server.Get(ctx, "/templates", offset(at, url.Values{"TemplateType": {"Standard"}}), &list); err != nil {
		return err
	}
	for _, item := range list.Templates {
		var t template
		if err := s.server.Get(ctx, "/templates/"+strconv.Itoa(item.TemplateID), nil, &t); err != nil {
			return err
		}
		if err := s.addLayout(ctx, &t); err != nil {
			return err
		}
		var tr convert.Translator
		translate := func(text string, html bool) string {
			return tr.Handlebars(text, html, "pm:unsubscribe", "pm:unsubscribe_url")
		}
		of := importfrom.Template{Name: t.Name, Alias: t.Alias, Subject: translate(t.Subject, false),
			HTML: translate(t.HTMLBody, true)}
		if !validAlias(t.Alias) {
			of.Alias = ""
		}
		if t.TextBody != "" {
			of.Text = new(translate(t.TextBody, false))
		}
		reason := tr.Finish(&of)
		if t.HTMLBody == "" {
			reason = "it has no HTML, which templates must have here"
		}
		if reason != "" {
			p.Refused = append(p.Refused, importfrom.Refused{Name: t.Name, Reason: reason})
			continue
		}
		p.Templates = append(p.Templates, of)
	}
	p.Next = after(at, len(list.Templates), list.TotalCount)
	return nil
}

// validAlias reports whether an alias is one here; those of Postmark may also have dots.
func validAlias(alias string) bool { return !strings.Contains(alias, ".") }

// addLayout puts the content of a template into its layout.
func (s *Source) addLayout(ctx context.Context, t *template) error {
	if t.LayoutTemplate == "" {
		return nil
	}
	layout, known := s.layouts[t.LayoutTemplate]
	if !known {
		if err := s.server.Get(ctx, "/templates/"+url.PathEscape(t.LayoutTemplate), nil, &layout); err != nil {
			return err
		}
		s.layouts[t.LayoutTemplate] = layout
	}
	insert := func(of, content string) string {
		if of == "" || content == "" {
			return content
		}
		return strings.NewReplacer("{{{ @content }}}", content, "{{{@content}}}", content).Replace(of)
	}
	t.HTMLBody, t.TextBody = insert(layout.HTMLBody, t.HTMLBody), insert(layout.TextBody, t.TextBody)
	return nil
}

type stream struct {
	ID                string
	MessageStreamType string
}

// suppressed reads the suppressions of one stream.
func (s *Source) suppressed(ctx context.Context, kind importfrom.Kind, p *importfrom.Page, at int) error {
	if s.streams == nil {
		var list struct{ MessageStreams []stream }
		query := url.Values{"MessageStreamType": {"All"}, "IncludeArchivedStreams": {"true"}}
		if err := s.server.Get(ctx, "/message-streams", query, &list); err != nil {
			return err
		}
		s.streams = []stream{}
		for _, x := range list.MessageStreams {
			if x.MessageStreamType != "Inbound" {
				s.streams = append(s.streams, x)
			}
		}
	}
	if at >= len(s.streams) {
		return nil
	}
	var dump struct {
		Suppressions []struct{ EmailAddress, SuppressionReason string }
	}
	of := s.streams[at]
	broadcasts := of.MessageStreamType == "Broadcasts"
	if kind == importfrom.Suppressions || broadcasts {
		path := "/message-streams/" + url.PathEscape(of.ID) + "/suppressions/dump"
		if err := s.server.Get(ctx, path, nil, &dump); err != nil {
			return err
		}
	}
	for _, x := range dump.Suppressions {
		unsubscribed := broadcasts && x.SuppressionReason == "ManualSuppression"
		switch {
		case kind == importfrom.Contacts && unsubscribed:
			p.Contacts = append(p.Contacts, importfrom.Contact{Address: x.EmailAddress, Unsubscribed: true})
		case kind == importfrom.Suppressions && !unsubscribed:
			p.Suppressions = append(p.Suppressions, importfrom.Suppression{Address: x.EmailAddress,
				Origin: origin(x.SuppressionReason)})
		}
	}
	p.Next = after(at, 1, len(s.streams))
	return nil
}

func origin(reason string) suppressions.Origin {
	switch reason {
	case "HardBounce":
		return suppressions.Bounce
	case "SpamComplaint":
		return suppressions.Complaint
	}
	return suppressions.Manual
}

// triggers are the events of Postmark's webhooks, with those of Postrider.
var triggers = []struct {
	name   string
	events []string
}{{"Delivery", []string{"email.delivered"}}, {"Bounce", []string{"email.bounced"}},
	{"SpamComplaint", []string{"email.complained"}}, {"Open", []string{"email.opened"}},
	{"Click", []string{"email.clicked"}}, {"SubscriptionChange", []string{"suppression.added", "suppression.removed"}}}

func (s *Source) webhooks(ctx context.Context, p *importfrom.Page) error {
	var list struct {
		Webhooks []struct {
			URL      string `json:"Url"`
			Triggers map[string]struct{ Enabled bool }
		}
	}
	if err := s.server.Get(ctx, "/webhooks", nil, &list); err != nil {
		return err
	}
	for _, w := range list.Webhooks {
		of := importfrom.Webhook{URL: w.URL, Note: "its receiver must read the events of Postrider, which have another form"}
		for _, t := range triggers {
			if w.Triggers[t.name].Enabled {
				of.Events = append(of.Events, t.events...)
			}
		}
		if of.Events == nil {
			p.Refused = append(p.Refused, importfrom.Refused{Name: w.URL, Reason: "it receives no events"})
			continue
		}
		p.Webhooks = append(p.Webhooks, of)
	}
	return nil
}
