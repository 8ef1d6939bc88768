// Package mailgun reads the data of an account of Mailgun.
//
// Each mailing list becomes a segment and a topic of the same name. Its members are in the segment and opted in to the
// topic; members who unsubscribed are opted out, and not in the segment. Unsubscribes of a domain become unsubscribed
// contacts. Mailgun can limit an unsubscribe to some tags; such recipients are unsubscribed from everything, too,
// because Postrider cannot tell what they still want. Unsubscribes are read before members, so that an interrupted
// import never leaves a contact subscribed by mistake.
//
// The lists of a kind follow one another: a cursor names the list and the address of the next page. If that list is
// gone when an import continues, all lists of the kind are read again. Mailgun's own addresses of pages are used only
// below the base of the client, because the key goes with them.
package mailgun

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
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

// URL is the base of Mailgun's API for accounts in the USA.
const URL = "https://api.mailgun.net"

const perPage = 100

// Source reads an account through the API.
type Source struct {
	c       *fetch.Client
	domains []domain // nil until they are read
	lists   []list   // nil until they are read
}

// New returns a source. The client must have the header of Header.
func New(c *fetch.Client) *Source { return &Source{c: c} }

// Header returns the header with an API key.
func Header(key string) http.Header {
	return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte("api:"+key))}}
}

// Kinds returns the kinds that Mailgun has.
func (s *Source) Kinds() []importfrom.Kind {
	return []importfrom.Kind{importfrom.Domains, importfrom.Segments, importfrom.Topics, importfrom.Templates,
		importfrom.Suppressions, importfrom.Contacts, importfrom.Webhooks}
}

// Page reads a page.
func (s *Source) Page(ctx context.Context, kind importfrom.Kind, cursor string) (p importfrom.Page, err error) {
	if err := s.readDomains(ctx); err != nil {
		return p, err
	}
	switch kind {
	case importfrom.Domains:
		for _, d := range s.domains {
			p.Domains = append(p.Domains, importfrom.Domain{Name: d.Name, TrackingSubdomain: d.WebPrefix, Sending: true})
		}
	case importfrom.Segments, importfrom.Topics:
		err = s.listPage(ctx, kind, &p)
	case importfrom.Templates:
		err = s.walk(ctx, &p, cursor, s.perDomain("/templates"), s.templates)
	case importfrom.Suppressions:
		err = s.walk(ctx, &p, cursor, s.perDomain("/bounces", "/complaints"), s.suppressed)
	case importfrom.Contacts:
		if err = s.readLists(ctx); err == nil {
			err = s.walk(ctx, &p, cursor, append(s.perDomain("/unsubscribes"), s.members()...), s.contacts)
		}
	case importfrom.Webhooks:
		err = s.webhooks(ctx, &p)
	}
	return p, err
}

type domain struct {
	Name      string `json:"name"`
	Type      string `json:"type"`
	WebPrefix string `json:"web_prefix"`
}

// readDomains reads all domains, unless they are known. Sandbox domains are left out.
func (s *Source) readDomains(ctx context.Context) error {
	if s.domains != nil {
		return nil
	}
	found, skip := []domain{}, 0
	err := fetch.Pages(func(string) (string, error) {
		var list struct {
			Items []domain `json:"items"`
			Total int      `json:"total_count"`
		}
		query := url.Values{"limit": {strconv.Itoa(perPage)}, "skip": {strconv.Itoa(skip)}}
		if err := s.c.Get(ctx, "/v4/domains", query, &list); err != nil {
			return "", err
		}
		for _, d := range list.Items {
			if d.Type != "sandbox" {
				found = append(found, d)
			}
		}
		if skip += len(list.Items); len(list.Items) == 0 || len(list.Items) < perPage && skip >= list.Total {
			return "", nil
		}
		return strconv.Itoa(skip), nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b domain) int { return strings.Compare(a.Name, b.Name) })
	s.domains = found
	return nil
}

// perDomain returns the first pages of some lists of each domain.
func (s *Source) perDomain(lists ...string) (all []string) {
	for _, d := range s.domains {
		for _, list := range lists {
			all = append(all, fmt.Sprintf("/v3/%s%s?limit=%d", url.PathEscape(d.Name), list, perPage))
		}
	}
	return all
}

// answer is a page of a list. Mailgun ends a list with an empty page.
type answer struct {
	Items  []json.RawMessage `json:"items"`
	Paging struct {
		Next string `json:"next"`
	} `json:"paging"`
}

// walk reads the page at the cursor. The ids of lists are the addresses of their first pages. The function read
// translates the items of a list.
func (s *Source) walk(ctx context.Context, p *importfrom.Page, cursor string, lists []string,
	read func(ctx context.Context, p *importfrom.Page, first string, items []json.RawMessage) error) error {
	if len(lists) == 0 {
		return nil
	}
	at, number, lost := fetch.Find(lists, cursor)
	address := cmp.Or(at.Page, at.List)
	var page answer
	if err := s.c.Get(ctx, address, nil, &page); err != nil {
		return err
	}
	if err := read(ctx, p, at.List, page.Items); err != nil {
		return err
	}
	if lost {
		p.Notes = append(p.Notes, fetch.Reread)
	}
	next, err := url.Parse(page.Paging.Next)
	if err == nil && len(page.Items) > 0 && next.Path != "" && next.RequestURI() != address {
		at.Page = next.RequestURI()
		p.Next = at.Cursor()
	} else {
		p.Next = fetch.After(lists, number)
	}
	return nil
}

// list is a mailing list.
type list struct {
	Address     string `json:"address"`
	Name        string `json:"name"`
	Description string `json:"description"`
}

// readLists reads all mailing lists, unless they are known.
func (s *Source) readLists(ctx context.Context) error {
	if s.lists != nil {
		return nil
	}
	found := []list{}
	err := fetch.Pages(func(cursor string) (string, error) {
		var p importfrom.Page
		err := s.walk(ctx, &p, cursor, []string{fmt.Sprintf("/v3/lists/pages?limit=%d", perPage)},
			func(_ context.Context, _ *importfrom.Page, _ string, items []json.RawMessage) error {
				return each(items, func(l *list) { found = append(found, *l) })
			})
		return p.Next, err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found, func(a, b list) int { return strings.Compare(a.Address, b.Address) })
	s.lists = found
	return nil
}

// each decodes items.
func each[T any](items []json.RawMessage, f func(*T)) error {
	for _, item := range items {
		var one T
		if err := json.Unmarshal(item, &one); err != nil {
			return fmt.Errorf("an item of Mailgun is not what its documentation describes: %w", err)
		}
		f(&one)
	}
	return nil
}

func (s *Source) listPage(ctx context.Context, kind importfrom.Kind, p *importfrom.Page) error {
	if err := s.readLists(ctx); err != nil {
		return err
	}
	for _, l := range s.lists {
		name := l.Name
		if strings.TrimSpace(name) == "" {
			name = l.Address
		}
		if kind == importfrom.Segments {
			p.Segments = append(p.Segments, importfrom.Segment{ID: l.Address, Name: name})
			continue
		}
		p.Topics = append(p.Topics, importfrom.Topic{ID: l.Address, Name: name, Description: l.Description,
			Default: contacts.OptOut})
	}
	return nil
}

// members returns the first pages of the members of all mailing lists.
func (s *Source) members() (all []string) {
	for _, l := range s.lists {
		all = append(all, fmt.Sprintf("/v3/lists/%s/members/pages?limit=%d", url.PathEscape(l.Address), perPage))
	}
	return all
}

func (s *Source) suppressed(_ context.Context, p *importfrom.Page, first string, items []json.RawMessage) error {
	origin := suppressions.Bounce
	if strings.Contains(first, "/complaints?") {
		origin = suppressions.Complaint
	}
	return each(items, func(x *struct {
		Address string `json:"address"`
	}) {
		p.Suppressions = append(p.Suppressions, importfrom.Suppression{Address: x.Address, Origin: origin})
	})
}

// contacts translates members of a mailing list, or unsubscribes of a domain.
func (s *Source) contacts(_ context.Context, p *importfrom.Page, first string, items []json.RawMessage) error {
	at := slices.Index(s.members(), first)
	return each(items, func(x *struct {
		Address    string                     `json:"address"`
		Name       string                     `json:"name"`
		Subscribed bool                       `json:"subscribed"`
		Vars       map[string]json.RawMessage `json:"vars"`
		Tags       []string                   `json:"tags"`
	}) {
		c := importfrom.Contact{Address: x.Address, Values: convert.Values(x.Vars)}
		c.FirstName, c.LastName = convert.Name(x.Name)
		switch {
		case at < 0:
			c.Unsubscribed = true
			if len(x.Tags) > 0 && !slices.Contains(x.Tags, "*") {
				p.Notes = append(p.Notes, "Recipients who unsubscribed from some tags only are unsubscribed from everything here.")
			}
		case x.Subscribed:
			c.Segments = []string{s.lists[at].Address}
			c.Topics = []importfrom.Choice{{TopicID: s.lists[at].Address, Subscription: contacts.OptIn}}
		default:
			c.Topics = []importfrom.Choice{{TopicID: s.lists[at].Address, Subscription: contacts.OptOut}}
		}
		p.Contacts = append(p.Contacts, c)
	})
}
