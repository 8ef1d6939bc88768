package receiving

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/search"
)

// Filter selects received emails. Empty fields select all emails. An email is to the addresses in its header, and to
// those for which it was received.
type Filter struct {
	search.Query
	ThreadID string
}

// Found is the result of a search for received emails.
type Found = search.Found[Email]

// Search returns a page of a team's received emails that a filter selects, newest first. The page must have a limit. If
// a value of the filter is invalid, Search returns an Invalid fault that names the parameter of the API.
func (s *Service) Search(ctx context.Context, teamID string, f Filter, p page.Page) (Found, error) {
	c, err := f.Check()
	if err != nil {
		return Found{}, err
	}
	list := searchedEmails(s.p.DB, teamID, &f)
	if !c.SelectAll() {
		list.Select = func(r *row) bool {
			m := r.message()
			return c.Select(&m)
		}
	}
	some, err := search.Find(ctx, list, &c, nil, p)
	found := Found{HasMore: some.HasMore, SearchedBackTo: some.SearchedBackTo, Next: some.Next}
	for i := range some.Items {
		if err := some.Items[i].decode(); err != nil {
			return Found{}, err
		}
		found.Items = append(found.Items, some.Items[i].Email)
	}
	return found, err
}

// message returns an email as searches see it.
func (r *row) message() search.Message {
	return search.Message{ID: r.ID, Subject: r.Subject, From: r.From, To: slices.Concat(r.To, r.Cc, r.Bcc, r.ReceivedFor)}
}
