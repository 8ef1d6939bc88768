// Package resend reads the data of an account of Resend, or of a team of another Postrider, which speaks the same API.
//
// The list of contacts has neither properties nor topics. If the account has any, each contact costs one request for
// its properties and one for its topics. The requests run a few at a time, and the server's rate limit decides how
// fast.
//
// The API returns effective subscriptions to topics, and does not tell whether a contact has made a choice. Segments
// with a filter are imported with the contacts that are in them now.
package resend

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/importfrom/fetch"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// URL is the base of Resend's API.
const URL = "https://api.resend.com"

const (
	perPage  = "100" // the most that the API allows
	parallel = 4     // concurrent requests for the details of contacts
)

// Source reads an account through the API.
type Source struct {
	c *fetch.Client

	properties map[string]scalar.Type           // nil until they are read
	defaults   map[string]contacts.Subscription // of topics, by id; nil until they are read
	segments   []string                         // ids, sorted; nil until they are read
}

// New returns a source. The client must have the API key in its header.
func New(c *fetch.Client) *Source { return &Source{c: c} }

// Header returns the header with an API key.
func Header(key string) http.Header { return http.Header{"Authorization": {"Bearer " + key}} }

// Kinds returns all kinds.
func (s *Source) Kinds() []importfrom.Kind { return importfrom.Kinds() }

// Page reads a page. The cursor is the id of the last record; for members it is preceded by the id of the segment.
func (s *Source) Page(ctx context.Context, kind importfrom.Kind, cursor string) (p importfrom.Page, err error) {
	switch kind {
	case importfrom.Domains:
		err = s.domains(ctx, &p, cursor)
	case importfrom.Properties:
		err = s.propertyPage(ctx, &p, cursor)
	case importfrom.Segments:
		err = s.segmentPage(ctx, &p, cursor)
	case importfrom.Topics:
		err = s.topicPage(ctx, &p, cursor)
	case importfrom.Templates:
		err = s.templates(ctx, &p, cursor)
	case importfrom.Suppressions:
		err = s.suppressions(ctx, &p, cursor)
	case importfrom.Contacts:
		err = s.contacts(ctx, &p, cursor)
	case importfrom.Members:
		err = s.members(ctx, &p, cursor)
	case importfrom.Webhooks:
		err = s.webhooks(ctx, &p, cursor)
	}
	return p, err
}

// list reads a page of a list, and returns the cursor of the next page.
func list[T any](ctx context.Context, c *fetch.Client, path, after string, query url.Values, idOf func(*T) string) (
	all []T, next string, err error) {
	if query == nil {
		query = url.Values{}
	}
	query.Set("limit", perPage)
	if after != "" {
		query.Set("after", after)
	}
	var answer struct {
		Data    []T  `json:"data"`
		HasMore bool `json:"has_more"`
	}
	if err := c.Get(ctx, path, query, &answer); err != nil {
		return nil, "", err
	}
	if answer.HasMore {
		if len(answer.Data) > 0 {
			next = idOf(&answer.Data[len(answer.Data)-1])
		}
		if next == "" {
			return nil, "", fmt.Errorf("the list %s breaks off: it has more items, and does not say which", path)
		}
	}
	return answer.Data, next, nil
}

// ref is a list item of which only the id is read.
type ref struct {
	ID string `json:"id"`
}

func (r *ref) id() string { return r.ID }

// details reads the object behind each item of a list.
func details[T any](ctx context.Context, c *fetch.Client, path, after string) (all []T, next string, err error) {
	refs, next, err := list(ctx, c, path, after, nil, (*ref).id)
	if err != nil {
		return nil, "", err
	}
	for _, r := range refs {
		var one T
		err := c.Get(ctx, path+"/"+url.PathEscape(r.ID), nil, &one)
		if fetch.Status(err) == http.StatusNotFound {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, "", err
		}
		all = append(all, one)
	}
	return all, next, nil
}

type domain struct {
	Name              string `json:"name"`
	Region            string `json:"region"`
	OpenTracking      bool   `json:"open_tracking"`
	ClickTracking     bool   `json:"click_tracking"`
	TrackingSubdomain string `json:"tracking_subdomain"`
	TLS               string `json:"tls"`
	Capabilities      struct {
		Sending   string `json:"sending"`
		Receiving string `json:"receiving"`
	} `json:"capabilities"`
	Records []struct {
		Record string `json:"record"`
		Type   string `json:"type"`
		Name   string `json:"name"`
	} `json:"records"`
}

func (s *Source) domains(ctx context.Context, p *importfrom.Page, cursor string) error {
	all, next, err := details[domain](ctx, s.c, "/domains", cursor)
	p.Next = next
	for _, d := range all {
		of := importfrom.Domain{Name: d.Name, Region: d.Region, TLS: d.TLS, TrackingSubdomain: d.TrackingSubdomain,
			OpenTracking: d.OpenTracking, ClickTracking: d.ClickTracking, Receiving: d.Capabilities.Receiving == "enabled"}
		of.Sending = d.Capabilities.Sending != "disabled" || !of.Receiving
		for _, r := range d.Records {
			if r.Record == "SPF" && r.Type == "MX" {
				of.ReturnPath, _, _ = strings.Cut(r.Name, ".")
			}
		}
		p.Domains = append(p.Domains, of)
	}
	return err
}

type property struct {
	ref
	Key      string          `json:"key"`
	Type     string          `json:"type"`
	Fallback json.RawMessage `json:"fallback_value"`
}

func (s *Source) propertyPage(ctx context.Context, p *importfrom.Page, cursor string) error {
	all, next, err := list(ctx, s.c, "/contact-properties", cursor, nil, func(x *property) string { return x.ID })
	p.Next = next
	for _, x := range all {
		fallback, _ := value(x.Fallback)
		p.Properties = append(p.Properties, importfrom.Property{Key: x.Key, Type: scalar.Type(x.Type), Fallback: fallback})
	}
	return err
}

// readProperties reads the types of all properties, unless they are known.
func (s *Source) readProperties(ctx context.Context) error {
	if s.properties != nil {
		return nil
	}
	found := map[string]scalar.Type{}
	err := fetch.Pages(func(cursor string) (string, error) {
		var p importfrom.Page
		err := s.propertyPage(ctx, &p, cursor)
		for _, x := range p.Properties {
			found[x.Key] = x.Type
		}
		return p.Next, err
	})
	if err == nil {
		s.properties = found
	}
	return err
}

type segment struct {
	ref
	Name   string          `json:"name"`
	Filter json.RawMessage `json:"filter"`
}

func (s *Source) segmentPage(ctx context.Context, p *importfrom.Page, cursor string) error {
	all, next, err := details[segment](ctx, s.c, "/segments", cursor)
	p.Next = next
	for _, g := range all {
		of := importfrom.Segment{ID: g.ID, Name: g.Name}
		if text := string(g.Filter); text != "" && text != "null" {
			of.Note = "it has a filter there; here, it has the contacts that are in it now, and no filter"
		}
		p.Segments = append(p.Segments, of)
	}
	return err
}

type topic struct {
	ref
	Name        string `json:"name"`
	Description string `json:"description"`
	Default     string `json:"default_subscription"`
	Visibility  string `json:"visibility"`
}

func (s *Source) topicPage(ctx context.Context, p *importfrom.Page, cursor string) error {
	all, next, err := list(ctx, s.c, "/topics", cursor, nil, func(x *topic) string { return x.ID })
	p.Next = next
	for _, t := range all {
		p.Topics = append(p.Topics, importfrom.Topic{ID: t.ID, Name: t.Name, Description: t.Description,
			Default: contacts.Subscription(t.Default), Public: t.Visibility == "public"})
	}
	return err
}

// readTopics reads the defaults of all topics, unless they are known.
func (s *Source) readTopics(ctx context.Context) error {
	if s.defaults != nil {
		return nil
	}
	found := map[string]contacts.Subscription{}
	err := fetch.Pages(func(cursor string) (string, error) {
		var p importfrom.Page
		err := s.topicPage(ctx, &p, cursor)
		for _, t := range p.Topics {
			found[t.ID] = t.Default
		}
		return p.Next, err
	})
	if err == nil {
		s.defaults = found
	}
	return err
}

// suppressions reads suppressions. Accounts without this part of the API have none.
func (s *Source) suppressions(ctx context.Context, p *importfrom.Page, cursor string) error {
	type suppression struct {
		ref
		Email  string `json:"email"`
		Origin string `json:"origin"`
	}
	all, next, err := list(ctx, s.c, "/suppressions", cursor, nil, func(x *suppression) string { return x.ID })
	if status := fetch.Status(err); cursor == "" && (status == http.StatusNotFound || status == http.StatusForbidden) {
		p.Notes = append(p.Notes, fmt.Sprintf("The suppressions were not imported, because the account has no access to "+
			"them (%d). Export them in its dashboard, or expect new bounces.", status))
		return nil
	}
	p.Next = next
	for _, x := range all {
		of := importfrom.Suppression{Address: x.Email, Origin: suppressions.Manual} // also for an unknown origin
		if o := suppressions.Origin(x.Origin); o == suppressions.Bounce || o == suppressions.Complaint {
			of.Origin = o
		}
		p.Suppressions = append(p.Suppressions, of)
	}
	return err
}

type contact struct {
	ref
	Email        string                     `json:"email"`
	FirstName    string                     `json:"first_name"`
	LastName     string                     `json:"last_name"`
	Unsubscribed bool                       `json:"unsubscribed"`
	Properties   map[string]json.RawMessage `json:"properties"`
}

func (c *contact) neutral() importfrom.Contact {
	return importfrom.Contact{Address: c.Email, FirstName: c.FirstName, LastName: c.LastName,
		Unsubscribed: c.Unsubscribed}
}

func (s *Source) contacts(ctx context.Context, p *importfrom.Page, cursor string) error {
	if err := s.readProperties(ctx); err != nil {
		return err
	}
	if err := s.readTopics(ctx); err != nil {
		return err
	}
	all, next, err := list(ctx, s.c, "/contacts", cursor, nil, func(x *contact) string { return x.ID })
	if err != nil {
		return err
	}
	p.Next, p.Contacts = next, make([]importfrom.Contact, len(all))
	gone := make([]bool, len(all)) // deleted since the list was read
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i := range all {
		p.Contacts[i] = all[i].neutral()
		if len(s.properties) == 0 && len(s.defaults) == 0 {
			continue
		}
		group.Go(func() error {
			err := s.complete(ctx, all[i].ID, &p.Contacts[i])
			if fetch.Status(err) == http.StatusNotFound {
				gone[i] = true
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	kept := p.Contacts[:0]
	for i, c := range p.Contacts {
		if gone[i] {
			p.Notes = []string{"Contacts that were deleted there during the import are left out, unless they were unsubscribed."}
		}
		if !gone[i] || c.Unsubscribed {
			kept = append(kept, c)
		}
	}
	p.Contacts = kept
	return nil
}

// complete reads a contact's values and subscriptions.
func (s *Source) complete(ctx context.Context, contactID string, c *importfrom.Contact) error {
	path := "/contacts/" + url.PathEscape(contactID)
	if len(s.properties) > 0 {
		var full contact
		if err := s.c.Get(ctx, path, nil, &full); err != nil {
			return err
		}
		for key, text := range full.Properties {
			v, ok := value(text)
			if !ok {
				continue
			}
			if as, ok := v.As(s.properties[key]); ok {
				v = as
			}
			if c.Values == nil {
				c.Values = map[string]scalar.Value{}
			}
			c.Values[key] = v
		}
	}
	if len(s.defaults) == 0 {
		return nil
	}
	type subscription struct {
		ref
		Subscription string `json:"subscription"`
	}
	return fetch.Pages(func(cursor string) (string, error) {
		all, next, err := list(ctx, s.c, path+"/topics", cursor, nil, func(x *subscription) string { return x.ID })
		for _, x := range all {
			choice := importfrom.Choice{TopicID: x.ID, Subscription: contacts.OptOut} // also for an unknown subscription
			if x.Subscription == string(contacts.OptIn) {
				choice.Subscription = contacts.OptIn
			}
			choice.Effective = x.Subscription == string(s.defaults[x.ID])
			c.Topics = append(c.Topics, choice)
		}
		return next, err
	})
}

// value reads a property's value: a string, a number, or an object with the member value. It returns false if there is
// no such value.
func value(text json.RawMessage) (scalar.Value, bool) {
	var wrapped struct {
		Value json.RawMessage `json:"value"`
	}
	if json.Unmarshal(text, &wrapped) == nil && wrapped.Value != nil {
		text = wrapped.Value
	}
	var decoded any
	if len(text) == 0 || json.Unmarshal(text, &decoded) != nil {
		return scalar.Value{}, false
	}
	switch v := decoded.(type) {
	case string:
		return scalar.OfText(v), true
	case float64:
		return scalar.OfNumber(v), true
	case bool:
		return scalar.OfText(fmt.Sprint(v)), true
	}
	return scalar.Value{}, false
}

// members reads the contacts of the segments, one segment after another.
func (s *Source) members(ctx context.Context, p *importfrom.Page, cursor string) error {
	if err := s.readSegments(ctx); err != nil {
		return err
	}
	segmentID, after, _ := strings.Cut(cursor, "/")
	at, found := slices.BinarySearch(s.segments, segmentID)
	if !found {
		after = "" // the first segment, or the one after a segment that was deleted meanwhile
	}
	if at == len(s.segments) {
		return nil
	}
	segmentID = s.segments[at]
	all, next, err := list(ctx, s.c, "/contacts", after, url.Values{"segment_id": {segmentID}},
		func(x *contact) string { return x.ID })
	if fetch.Status(err) == http.StatusNotFound {
		all, next, err = nil, "", nil
	}
	if err != nil {
		return err
	}
	for _, c := range all {
		of := c.neutral()
		of.Segments = []string{segmentID}
		p.Contacts = append(p.Contacts, of)
	}
	switch {
	case next != "":
		p.Next = segmentID + "/" + next
	case at+1 < len(s.segments):
		p.Next = s.segments[at+1] + "/"
	}
	return nil
}

// readSegments reads the ids of all segments, unless they are known.
func (s *Source) readSegments(ctx context.Context) error {
	if s.segments != nil {
		return nil
	}
	found := []string{}
	err := fetch.Pages(func(cursor string) (string, error) {
		all, next, err := list(ctx, s.c, "/segments", cursor, nil, (*ref).id)
		for _, g := range all {
			found = append(found, g.ID)
		}
		return next, err
	})
	if err != nil {
		return err
	}
	slices.Sort(found)
	s.segments = found
	return nil
}

func (s *Source) webhooks(ctx context.Context, p *importfrom.Page, cursor string) error {
	all, next, err := details[struct {
		Endpoint string   `json:"endpoint"`
		Events   []string `json:"events"`
	}](ctx, s.c, "/webhooks", cursor)
	p.Next = next
	for _, w := range all {
		of := importfrom.Webhook{URL: w.Endpoint, Events: w.Events}
		if w.Events == nil {
			of.Events, of.Note = allEvents, "it receives all events there"
		}
		p.Webhooks = append(p.Webhooks, of)
	}
	return err
}
