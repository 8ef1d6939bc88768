package api

import (
	"context"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/search"
)

// emailsQuery lists the query parameters that filter sent emails, in lists and in exports. The public API does not have
// these parameters.
var emailsQuery = []string{"q", "to", "from", "subject", "status", "tag", "domain_id", "api_key_id", "template_id",
	"broadcast_id", "created_after", "created_before"}

// searchedList is a page of emails. A page of a search can have fewer emails than the limit even if more emails match,
// because the time of a search is limited.
type searchedList[T any] struct {
	Object         string       `json:"object"`
	HasMore        bool         `json:"has_more"`
	Data           []T          `json:"data"`
	Next           string       `json:"next,omitzero" doc:"Present if a search took too long and ended early. Pass it as after (or before) to continue the search."`
	SearchedBackTo wire.ISOTime `json:"searched_back_to,omitzero" doc:"Present together with next. All emails that were accepted since this time were searched. With the parameter before, all emails that were accepted until this time were searched."`
}

// searchedListOf returns the page of a search, with its items in the form of the API.
func searchedListOf[T, Out any](found search.Found[T], item func(T) Out) searchedList[Out] {
	l := wire.ListOf(found.Items, found.HasMore, item)
	return searchedList[Out]{l.Object, l.HasMore, l.Data, found.Next, wire.ISOTime(found.SearchedBackTo)}
}

func (a *API) listEmails(ctx context.Context, c *wire.Call, _ wire.None) (searchedList[EmailItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return searchedList[EmailItem]{}, err
	}
	f, err := emailFilter(c.Query())
	if err != nil {
		return searchedList[EmailItem]{}, err
	}
	var found emails.Found
	if f.Empty() {
		found.Items, found.HasMore, err = a.Services.Emails.List(ctx, c.TeamID, p)
	} else {
		found, err = a.Services.Emails.Search(ctx, c.Actor, f, p)
	}
	return searchedListOf(found, emailToItem), err
}

// emailFilter reads the query parameters that filter sent emails.
func emailFilter(q url.Values) (f emails.Filter, err error) {
	if err := checkFilled(q, emailsQuery); err != nil {
		return f, err
	}
	f = emails.Filter{Query: q.Get("q"), To: q.Get("to"), From: q.Get("from"), Subject: q.Get("subject"),
		DomainID: q.Get("domain_id"), KeyID: q.Get("api_key_id"), TemplateID: q.Get("template_id"),
		BroadcastID: q.Get("broadcast_id")}
	for _, name := range []string{"to", "from"} {
		if _, err := parseDate(name, q.Get(name), time.UTC); err == nil {
			return f, fault.Invalidf(name, "The `%s` parameter must be an email address or a domain. Use `created_after` and "+
				"`created_before` for times.", name)
		}
	}
	if f.Status, err = splitList(q, "status"); err != nil {
		return f, err
	}
	f.TagName, f.TagValue, _ = strings.Cut(q.Get("tag"), ":")
	if q.Has("tag") && f.TagName == "" {
		return f, fault.Invalidf("tag", "The `tag` parameter must be a name, or a name and a value with a colon "+
			"between.")
	}
	return f, readCreated(q, &f.CreatedAfter, &f.CreatedBefore)
}

// checkFilled returns a fault if a query parameter that filters emails is present without a value.
func checkFilled(q url.Values, names []string) error {
	for _, name := range names {
		if q.Has(name) && strings.TrimSpace(q.Get(name)) == "" {
			return fault.Invalidf(name, "The `%s` parameter is empty. Leave it out to list all emails.", name)
		}
	}
	return nil
}

// readCreated reads the query parameters for a time span.
func readCreated(q url.Values, after, before *time.Time) (err error) {
	for name, dst := range map[string]*time.Time{"created_after": after, "created_before": before} {
		if q.Has(name) && err == nil {
			*dst, err = parseDate(name, q.Get(name), time.UTC)
		}
	}
	return err
}
