package emails

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/search"
)

// Filter selects sent emails. Empty fields select all emails.
type Filter struct {
	// Query, To, From and Subject are as in [search.Query].
	Query, To, From, Subject string

	Status      []string // names of states; an email has one of them
	TagName     string
	TagValue    string // "" for any value
	DomainID    string
	KeyID       string
	TemplateID  string
	BroadcastID string

	CreatedAfter, CreatedBefore time.Time // the span includes the first time, but not the second one
}

// Empty reports whether the filter selects all emails.
func (f *Filter) Empty() bool {
	return f.Query+f.To+f.From+f.Subject+f.TagName+f.TagValue+f.DomainID+f.KeyID+f.TemplateID+f.BroadcastID == "" &&
		len(f.Status) == 0 && f.CreatedAfter.IsZero() && f.CreatedBefore.IsZero()
}

// Found is the result of a search for emails, without their bodies.
type Found = search.Found[Email]

// Search returns a page of the emails that a filter selects, newest first. The page must have a limit. If a value of
// the filter is invalid, Search returns an Invalid fault that names the parameter of the API.
func (s *Service) Search(ctx context.Context, by teams.Actor, f Filter, p page.Page) (Found, error) {
	if err := by.Require(teams.EmailsRead); err != nil {
		return Found{}, err
	}
	c, err := f.check()
	if err != nil {
		return Found{}, err
	}
	return search.Find(ctx, searchedEmails(s.DB, by.TeamID, &c), &c.Criteria, c.labels(), p)
}

// criteria is a checked filter.
type criteria struct {
	search.Criteria
	Filter
	states []int64
}

// check returns a filter in the form that searches use, or a fault that names the field.
func (f Filter) check() (c criteria, err error) {
	c.Filter = f
	if len(f.TagName+f.TagValue) > search.MaxQuery {
		return c, fault.Invalidf("tag", "The `tag` parameter is longer than %d bytes.", search.MaxQuery)
	}
	for _, x := range []struct {
		name string
		id   *string
	}{{"domain_id", &c.DomainID}, {"api_key_id", &c.KeyID}, {"template_id", &c.TemplateID},
		{"broadcast_id", &c.BroadcastID}} {
		if *x.id = strings.ToLower(*x.id); *x.id != "" && !id.Valid(*x.id) {
			return c, fault.Invalidf(x.name, "The `%s` parameter must be a valid UUID.", x.name)
		}
	}
	for _, name := range f.Status {
		if rank[State(name)] == 0 {
			return c, fault.Invalidf("status", "The `status` parameter has %q, which is no state of emails.", name)
		}
		c.states = append(c.states, int64(states.Number(State(name))))
	}
	if f.TagName == "" && f.TagValue != "" {
		return c, fault.Invalidf("tag", "The `tag` parameter must be a name, or a name and a value with a colon between.")
	}
	c.Criteria, err = search.Query{Text: f.Query, To: f.To, From: f.From, Subject: f.Subject,
		CreatedAfter: f.CreatedAfter, CreatedBefore: f.CreatedBefore}.Check()
	return c, err
}

// selects reports whether an email meets those conditions that [criteria.where] has not.
func (c *criteria) selects(e *Email) bool {
	if c.TagName != "" && !slices.ContainsFunc(e.Tags, func(t Tag) bool {
		return t.Name == c.TagName && (c.TagValue == "" || t.Value == c.TagValue)
	}) {
		return false
	}
	if c.SelectAll() {
		return true
	}
	m := messageOf(e)
	return c.Select(&m)
}

// labels returns the labels that a matching email has, first those that probably few emails have.
func (c *criteria) labels() []search.Label {
	tag := search.Label{Kind: search.TagName, Text: c.TagName}
	if c.TagName != "" && c.TagValue != "" {
		tag = tagLabel(c.TagName, c.TagValue)
	}
	return []search.Label{tag, {Kind: search.Broadcast, Text: c.BroadcastID}, {Kind: search.Template, Text: c.TemplateID},
		{Kind: search.Key, Text: c.KeyID}, {Kind: search.Domain, Text: c.DomainID}}
}

func tagLabel(name, value string) search.Label {
	return search.Label{Kind: search.Tag, Text: name + "\x00" + value}
}

// messageOf returns an email as searches see it.
func messageOf(e *Email) search.Message {
	m := search.Message{ID: e.ID, Subject: e.Subject, From: e.From, To: slices.Concat(e.To, e.Cc, e.Bcc)}
	for _, t := range e.Tags {
		m.Labels = append(m.Labels, search.Label{Kind: search.TagName, Text: t.Name}, tagLabel(t.Name, t.Value))
	}
	m.Labels = append(m.Labels, search.Label{Kind: search.Key, Text: e.Actor.ID},
		search.Label{Kind: search.Domain, Text: e.DomainID}, search.Label{Kind: search.Template, Text: e.TemplateID},
		search.Label{Kind: search.Broadcast, Text: e.BroadcastID})
	return m
}
