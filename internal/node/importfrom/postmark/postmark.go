// Package postmark reads the data of a server of Postmark, and the domains of its account.
//
// Postmark has no contacts. Recipients who unsubscribed from a broadcast stream become unsubscribed contacts, because
// they still want receipts. All other suppressions become suppressions of the team, for every stream.
//
// A template or domain that Postmark lists, but does not return, is refused, and the import continues. A response
// without the list that was asked for is an error, because the import would otherwise end as if the list was empty.
package postmark

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/convert"
	"github.com/postrider/postrider/internal/node/importfrom/fetch"
	"github.com/postrider/postrider/internal/sending/suppressions"
	"github.com/postrider/postrider/internal/sending/templates"
)

// URL is the base of Postmark's API.
const URL = "https://api.postmarkapp.com"

// MaxBody is the maximum size of a list of suppressions, which Postmark returns as a whole, in bytes.
const MaxBody = 128 << 20

const (
	perPage    = 100
	maxStreams = 1000
)

// Source reads a server through the API.
type Source struct {
	server  *fetch.Client
	account *fetch.Client // nil without a token of the account
	streams []stream      // by id; nil until they are read
	layouts map[string]layout

	domainPages, templatePages fetch.Offsets
}

// New returns a source. The client server must have the header of Header for a server's token, and account that of the
// account's token; account may be nil, and domains are then not imported.
func New(server, account *fetch.Client) *Source {
	return &Source{server: server, account: account, layouts: map[string]layout{},
		domainPages: fetch.Offsets{Limit: perPage}, templatePages: fetch.Offsets{Limit: perPage}}
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

// Page reads a page.
func (s *Source) Page(ctx context.Context, kind importfrom.Kind, cursor string) (p importfrom.Page, err error) {
	switch kind {
	case importfrom.Domains:
		err = s.domains(ctx, &p, cursor)
	case importfrom.Templates:
		err = s.templates(ctx, &p, cursor)
	case importfrom.Suppressions, importfrom.Contacts:
		err = s.suppressed(ctx, kind, &p, cursor)
	case importfrom.Webhooks:
		err = s.webhooks(ctx, &p)
	}
	return p, err
}

// missing is the error for a response without the list that was asked for. An empty list instead would lose data.
func missing(path, member string) error {
	return fmt.Errorf("%s of Postmark has no list %s, which its documentation describes", path, member)
}

// list is a part of a list of objects, as Postmark returns it. The member with the objects has the name of their kind.
type list[T any] struct {
	TotalCount int
	Domains    []T
	Templates  []T
}

// listPage reads a part of a list that has pages.
func listPage[T any](ctx context.Context, c *fetch.Client, o *fetch.Offsets, p *importfrom.Page, path, cursor string,
	query url.Values, idOf func(*T) int) (all []T, err error) {
	at, _, lost := fetch.Find([]string{path}, cursor)
	query.Set("count", strconv.Itoa(o.Limit))
	query.Set("offset", strconv.Itoa(o.Offset(at)))
	var answer list[T]
	if err := c.Get(ctx, path, query, &answer); err != nil {
		return nil, err
	}
	if path == domainsPath {
		all = answer.Domains
	} else {
		all = answer.Templates
	}
	if all == nil {
		return nil, missing(path, "of objects")
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = strconv.Itoa(idOf(&all[i]))
	}
	skip, next, err := o.Next(at, ids, answer.TotalCount)
	if err != nil {
		return nil, err
	}
	if next != nil {
		p.Next = next.Cursor()
	}
	if lost || next != nil && next.Again > at.Again {
		p.Notes = append(p.Notes, fetch.Reread)
	}
	return all[skip:], nil
}

// ofOneObject reports whether an error concerns only the object that was asked for: Postmark does not have it any more,
// or describes it otherwise than documented.
func ofOneObject(err error) bool {
	_, wrong := errors.AsType[*json.UnmarshalTypeError](err)
	status := fetch.Status(err)
	return wrong || status == http.StatusNotFound || status == http.StatusUnprocessableEntity
}

const domainsPath, templatesPath, streamsPath = "/domains", "/templates", "/message-streams"

func (s *Source) domains(ctx context.Context, p *importfrom.Page, cursor string) error {
	type domain struct {
		ID   int
		Name string
	}
	all, err := listPage(ctx, s.account, &s.domainPages, p, domainsPath, cursor, url.Values{},
		func(d *domain) int { return d.ID })
	for _, d := range all {
		var full struct{ ReturnPathDomain string }
		err := s.account.Get(ctx, domainsPath+"/"+strconv.Itoa(d.ID), nil, &full)
		if ofOneObject(err) {
			p.Refused = append(p.Refused, importfrom.Refused{Name: d.Name, Reason: err.Error()})
			continue
		}
		if err != nil {
			return err
		}
		of := importfrom.Domain{Name: d.Name, Sending: true}
		if label, ok := strings.CutSuffix(full.ReturnPathDomain, "."+d.Name); ok && !strings.Contains(label, ".") {
			of.ReturnPath = label
		}
		p.Domains = append(p.Domains, of)
	}
	return err
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

func (s *Source) templates(ctx context.Context, p *importfrom.Page, cursor string) error {
	all, err := listPage(ctx, s.server, &s.templatePages, p, templatesPath, cursor,
		url.Values{"TemplateType": {"Standard"}}, func(t *template) int { return t.TemplateID })
	for _, item := range all {
		of, err := s.template(ctx, &item)
		switch {
		case refused(err):
			p.Refused = append(p.Refused, importfrom.Refused{Name: item.Name, Reason: err.Error()})
		case err != nil:
			return err
		default:
			p.Templates = append(p.Templates, of)
		}
	}
	return err
}

// reason is why a template cannot be imported.
type reason string

func (r reason) Error() string { return string(r) }

// refused reports whether an error concerns one template only.
func refused(err error) bool {
	_, ours := errors.AsType[reason](err)
	return ours || ofOneObject(err)
}

// template reads and translates the template of a list item.
func (s *Source) template(ctx context.Context, item *template) (of importfrom.Template, err error) {
	var t template
	if err := s.server.Get(ctx, templatesPath+"/"+strconv.Itoa(item.TemplateID), nil, &t); err != nil {
		return of, err
	}
	if err := s.addLayout(ctx, &t); err != nil {
		return of, err
	}
	var tr convert.Translator
	translate := func(text string, html bool) string {
		return tr.Handlebars(text, html, "pm:unsubscribe", "pm:unsubscribe_url")
	}
	of = importfrom.Template{ID: strconv.Itoa(item.TemplateID), Name: t.Name, Alias: t.Alias,
		Subject: translate(t.Subject, false), HTML: translate(t.HTMLBody, true)}
	if !validAlias(t.Alias) {
		of.Alias = ""
	}
	if t.TextBody != "" {
		of.Text = new(translate(t.TextBody, false))
	}
	if t.HTMLBody == "" {
		return of, reason("it has no HTML, which templates must have here")
	}
	if why := tr.Finish(&of); why != "" {
		return of, reason(why)
	}
	return of, nil
}

// validAlias reports whether an alias is one here; those of Postmark may also have dots.
func validAlias(alias string) bool { return !strings.Contains(alias, ".") }

// layout is a layout, or the reason why it cannot be read.
type layout struct {
	template
	err error
}

// addLayout puts the content of a template into its layout.
func (s *Source) addLayout(ctx context.Context, t *template) error {
	if t.LayoutTemplate == "" {
		return nil
	}
	of, known := s.layouts[t.LayoutTemplate]
	if !known {
		of.err = s.server.Get(ctx, templatesPath+"/"+url.PathEscape(t.LayoutTemplate), nil, &of.template)
		if of.err != nil && !ofOneObject(of.err) {
			return of.err
		}
		s.layouts[t.LayoutTemplate] = of
	}
	if of.err != nil {
		return fmt.Errorf("its layout cannot be read: %w", of.err)
	}
	var errs [2]error
	t.HTMLBody, errs[0] = insert(of.HTMLBody, t.HTMLBody)
	t.TextBody, errs[1] = insert(of.TextBody, t.TextBody)
	return cmp.Or(errs[0], errs[1])
}

// places are the texts of a layout that stand for the content of a template.
var places = []string{"{{{ @content }}}", "{{{@content}}}"}

// insert puts content into a layout. The result could be much larger than both, if the layout repeats its place.
func insert(layout, content string) (string, error) {
	if layout == "" || content == "" {
		return content, nil
	}
	n := strings.Count(layout, places[0]) + strings.Count(layout, places[1])
	if len(content) > templates.MaxSize || len(layout)+n*len(content) > 2*templates.MaxSize {
		return "", reason(convert.TooLarge)
	}
	return strings.NewReplacer(places[0], content, places[1], content).Replace(layout), nil
}

type stream struct {
	ID                string
	MessageStreamType string
}

// readStreams reads all message streams that have suppressions, unless they are known.
func (s *Source) readStreams(ctx context.Context) error {
	if s.streams != nil {
		return nil
	}
	var list struct{ MessageStreams []stream }
	query := url.Values{"MessageStreamType": {"All"}, "IncludeArchivedStreams": {"true"}}
	if err := s.server.Get(ctx, streamsPath, query, &list); err != nil {
		return err
	}
	switch {
	case list.MessageStreams == nil:
		return missing(streamsPath, "MessageStreams")
	case len(list.MessageStreams) > maxStreams:
		return fmt.Errorf("the server of Postmark has %d message streams; the limit is %d", len(list.MessageStreams), maxStreams)
	}
	found := slices.DeleteFunc(list.MessageStreams, func(x stream) bool { return x.MessageStreamType == "Inbound" })
	slices.SortStableFunc(found, func(a, b stream) int { return strings.Compare(a.ID, b.ID) })
	s.streams = slices.CompactFunc(found, func(a, b stream) bool { return a == b })
	return nil
}

// suppressed reads the suppressions of one stream.
func (s *Source) suppressed(ctx context.Context, kind importfrom.Kind, p *importfrom.Page, cursor string) error {
	if err := s.readStreams(ctx); err != nil || len(s.streams) == 0 {
		return err
	}
	ids := make([]string, len(s.streams))
	for i := range s.streams {
		ids[i] = s.streams[i].ID
	}
	_, number, lost := fetch.Find(ids, cursor)
	of := s.streams[number]
	p.Next = fetch.After(ids, number)
	if lost {
		p.Notes = append(p.Notes, fetch.Reread)
	}
	broadcasts := of.MessageStreamType == "Broadcasts"
	if kind == importfrom.Contacts && !broadcasts {
		return nil
	}
	nameless := 0
	list := dump(func(address, why string) {
		unsubscribed := broadcasts && why == "ManualSuppression"
		switch {
		case address == "":
			nameless++
		case kind == importfrom.Contacts && unsubscribed:
			p.Contacts = append(p.Contacts, importfrom.Contact{Address: address, Unsubscribed: true})
		case kind == importfrom.Suppressions && !unsubscribed:
			p.Suppressions = append(p.Suppressions, importfrom.Suppression{Address: address, Origin: origin(why)})
		}
	})
	if err := s.server.Get(ctx, streamsPath+"/"+url.PathEscape(of.ID)+"/suppressions/dump", nil, &list); err != nil {
		return err
	}
	if nameless > 0 && kind == importfrom.Suppressions {
		p.Refused = append(p.Refused, importfrom.Refused{Name: of.ID,
			Reason: fmt.Sprintf("%d suppressions of this stream have no address", nameless)})
	}
	return nil
}

// dump is a list of suppressions. It decodes the list entry by entry and calls itself with each address and reason,
// because entries without an address would need much more memory than their text. An entry of another form has no
// address.
type dump func(address, reason string)

func (d dump) UnmarshalJSON(text []byte) error {
	var whole struct{ Suppressions json.RawMessage }
	if err := json.Unmarshal(text, &whole); err != nil {
		return err
	}
	in := json.NewDecoder(bytes.NewReader(whole.Suppressions))
	if begin, err := in.Token(); err != nil || begin != json.Delim('[') {
		return missing("the dump", "Suppressions")
	}
	for in.More() {
		var entry struct{ EmailAddress, SuppressionReason string }
		err := in.Decode(&entry)
		if _, wrong := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !wrong {
			return err
		}
		d(entry.EmailAddress, entry.SuppressionReason)
	}
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
	if list.Webhooks == nil {
		return missing("/webhooks", "Webhooks")
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
