// Package listmonk reads the data of an installation of listmonk.
//
// Each list becomes a segment and a topic of the same name. A subscriber who may be mailed on a list is in the segment
// and opted in to the topic. A subscriber who left the list is opted out of the topic, and is not in the segment. A
// subscriber who has not confirmed the subscription to a list with double opt-in is in neither. Blocklisted subscribers
// are unsubscribed and suppressed.
//
// listmonk numbers its pages, and sorts them in descending order unless it is asked for asc in lower case. Subscribers
// that are added during the import are on the last page. If subscribers are deleted there during the import, others may
// move to an earlier page and be missed.
package listmonk

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
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

const perPage = 500

// Source reads an installation through its API.
type Source struct {
	c     *fetch.Client
	lists []list // nil until they are read
}

// New returns a source. The client must have the header of Header.
func New(c *fetch.Client) *Source { return &Source{c: c} }

// Header returns the header for a key of the form user:token.
func Header(key string) (http.Header, error) {
	user, token, ok := strings.Cut(key, ":")
	if !ok || user == "" || token == "" {
		return nil, errors.New("the key of listmonk is the name of an API user and its token, as in user:token")
	}
	return http.Header{"Authorization": {"Basic " + base64.StdEncoding.EncodeToString([]byte(key))}}, nil
}

// Kinds returns the kinds that listmonk has.
func (s *Source) Kinds() []importfrom.Kind {
	return []importfrom.Kind{importfrom.Segments, importfrom.Topics, importfrom.Templates, importfrom.Suppressions,
		importfrom.Contacts}
}

// Page reads a page. The cursor is its number.
func (s *Source) Page(ctx context.Context, kind importfrom.Kind, cursor string) (p importfrom.Page, err error) {
	switch kind {
	case importfrom.Segments, importfrom.Topics:
		if err = s.readLists(ctx); err == nil {
			s.listPage(kind, &p)
		}
	case importfrom.Templates:
		err = s.templates(ctx, &p)
	case importfrom.Suppressions:
		err = s.bounces(ctx, &p, cursor)
	case importfrom.Contacts:
		err = s.subscribers(ctx, &p, cursor)
	}
	return p, err
}

// results reads a numbered page, and returns the cursor of the next one.
func results[T any](ctx context.Context, c *fetch.Client, path, cursor string, query url.Values) (all []T, next string,
	err error) {
	number := 1
	if cursor != "" {
		if number, err = strconv.Atoi(cursor); err != nil {
			return nil, "", err
		}
	}
	query.Set("page", strconv.Itoa(number))
	query.Set("per_page", strconv.Itoa(perPage))
	var answer struct {
		Data struct {
			Results []T `json:"results"`
			Total   int `json:"total"`
			PerPage int `json:"per_page"`
		} `json:"data"`
	}
	if err := c.Get(ctx, path, query, &answer); err != nil {
		return nil, "", err
	}
	// A page may be smaller than asked for: listmonk limits per_page, and names the limit.
	all = answer.Data.Results
	if len(all) > 0 && (number-1)*answer.Data.PerPage+len(all) < answer.Data.Total {
		next = strconv.Itoa(number + 1)
	}
	return all, next, nil
}

type list struct {
	ID    int    `json:"id"`
	Name  string `json:"name"`
	Type  string `json:"type"`
	Optin string `json:"optin"`
}

// readLists reads all lists, unless they are known.
func (s *Source) readLists(ctx context.Context) error {
	if s.lists != nil {
		return nil
	}
	found := []list{}
	err := fetch.Pages(func(cursor string) (string, error) {
		all, next, err := results[list](ctx, s.c, "/api/lists", cursor, url.Values{"order_by": {"created_at"},
			"order": {"asc"}})
		found = append(found, all...)
		return next, err
	})
	if err == nil {
		s.lists = found
	}
	return err
}

func (s *Source) listPage(kind importfrom.Kind, p *importfrom.Page) {
	for _, l := range s.lists {
		id := strconv.Itoa(l.ID)
		if kind == importfrom.Segments {
			p.Segments = append(p.Segments, importfrom.Segment{ID: id, Name: l.Name})
			continue
		}
		p.Topics = append(p.Topics, importfrom.Topic{ID: id, Name: l.Name, Default: contacts.OptOut,
			Public: l.Type == "public"})
	}
}

// bounces reads hard bounces and complaints. Soft bounces are not suppressions.
func (s *Source) bounces(ctx context.Context, p *importfrom.Page, cursor string) error {
	all, next, err := results[struct {
		Type  string `json:"type"`
		Email string `json:"email"`
	}](ctx, s.c, "/api/bounces", cursor, url.Values{"order_by": {"created_at"}, "order": {"asc"}})
	p.Next = next
	for _, b := range all {
		switch b.Type {
		case "hard":
			p.Suppressions = append(p.Suppressions, importfrom.Suppression{Address: b.Email, Origin: suppressions.Bounce})
		case "complaint":
			p.Suppressions = append(p.Suppressions, importfrom.Suppression{Address: b.Email, Origin: suppressions.Complaint})
		}
	}
	return err
}

type subscriber struct {
	Email   string                     `json:"email"`
	Name    string                     `json:"name"`
	Attribs map[string]json.RawMessage `json:"attribs"`
	Status  string                     `json:"status"`
	Lists   []struct {
		ID     int    `json:"id"`
		Status string `json:"subscription_status"`
	} `json:"lists"`
}

func (s *Source) subscribers(ctx context.Context, p *importfrom.Page, cursor string) error {
	if err := s.readLists(ctx); err != nil {
		return err
	}
	double := map[int]bool{}
	for _, l := range s.lists {
		double[l.ID] = l.Optin == "double"
	}
	// Subscribers that listmonk imported together have the same time. Pages that are ordered by time could overlap, and
	// leave out others.
	all, next, err := results[subscriber](ctx, s.c, "/api/subscribers", cursor, url.Values{"order_by": {"id"},
		"order": {"asc"}})
	p.Next = next
	for _, x := range all {
		c := importfrom.Contact{Address: x.Email, Values: convert.Values(x.Attribs), Unsubscribed: x.Status != "enabled"}
		c.FirstName, c.LastName = convert.Name(x.Name)
		if x.Status == "blocklisted" {
			p.Suppressions = append(p.Suppressions, importfrom.Suppression{Address: x.Email, Origin: suppressions.Manual})
		}
		for _, l := range x.Lists {
			id := strconv.Itoa(l.ID)
			switch {
			case l.Status == "unsubscribed":
				c.Topics = append(c.Topics, importfrom.Choice{TopicID: id, Subscription: contacts.OptOut})
			case l.Status == "confirmed" || l.Status == "unconfirmed" && !double[l.ID]:
				c.Segments = append(c.Segments, id)
				c.Topics = append(c.Topics, importfrom.Choice{TopicID: id, Subscription: contacts.OptIn})
			}
		}
		p.Contacts = append(p.Contacts, c)
	}
	return err
}
