package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

// pageRows is the number of emails that one call to ListPage reads. Including the rows for recipients, ListPage may
// read a hundred times as many rows.
const pageRows = 250

// EmailWithRecipients is an email with the states of its recipients but without its content.
type EmailWithRecipients struct {
	Email
	Recipients []Recipient
}

// ListPage returns the next 250 of a team's emails, newest first, starting after the given cursor. The result next is
// the cursor of the next page, or "" after the last page.
func (s *Service) ListPage(ctx context.Context, teamID, after string) (some []EmailWithRecipients, next string,
	err error) {
	all, next, err := emailsPage(ctx, s.DB, teamID, after)
	if err != nil || len(all) == 0 {
		return nil, next, err
	}
	some, err = withRecipients(ctx, s.DB.Reader, teamID, all)
	return some, next, err
}

// SearchPage returns up to 250 of a team's emails that a filter selects, newest first, starting after the given cursor.
// The page may be empty although more pages follow, because a search ends after a limited time. The result next is the
// cursor of the next page, or "" after the last page.
func (s *Service) SearchPage(ctx context.Context, by teams.Actor, f Filter, after string) (some []EmailWithRecipients,
	next string, err error) {
	found, err := s.Search(ctx, by, f, page.Page{Limit: pageRows, After: after})
	if err != nil {
		return nil, "", err
	}
	next = found.Cursor(func(e *Email) string { return e.ID })
	if len(found.Items) == 0 {
		return nil, next, nil
	}
	some, err = withRecipients(ctx, s.DB.Reader, by.TeamID, found.Items)
	return some, next, err
}

// withRecipients returns the emails with all their recipients.
func withRecipients(ctx context.Context, r db.Reader, teamID string, all []Email) ([]EmailWithRecipients, error) {
	var several []string
	for i := range all {
		if all[i].only == "" {
			several = append(several, all[i].ID)
		}
	}
	to, err := recipientsOf(ctx, r, teamID, several)
	if err != nil {
		return nil, fmt.Errorf("read the recipients of %d emails: %w", len(several), err)
	}
	some := make([]EmailWithRecipients, len(all))
	for i := range all {
		if some[i].Email = all[i]; all[i].only != "" {
			some[i].Recipients = []Recipient{all[i].onlyRecipient()}
		} else {
			some[i].Recipients = to[all[i].ID]
		}
	}
	return some, nil
}

// ListPageTo returns the emails that a team sent to an address, newest first. ListPageTo searches the next 2,000 emails
// after the given cursor. Each matching email is returned with only the matching recipient. The result next is the
// cursor of the next page, or "" after the last page.
func (s *Service) ListPageTo(ctx context.Context, teamID string, a erasure.Address,
	after string) (some []EmailWithRecipients, next string, err error) {
	return emailsPageTo(ctx, s.DB, teamID, a, after)
}
