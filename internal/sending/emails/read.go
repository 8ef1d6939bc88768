package emails

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
)

// Get returns one of the team's emails, with its bodies. The bodies of a [Private] email are left out.
func (s *Service) Get(ctx context.Context, teamID, emailID string) (Email, error) {
	e, err := getEmail(ctx, s.DB.Reader, teamID, emailID)
	if err != nil {
		return e, err
	}
	return e, s.loadBodies(ctx, &e)
}

// loadBodies sets the bodies of an email, except for private emails, which the team may not read.
func (s *Service) loadBodies(ctx context.Context, e *Email) error {
	if isPrivate(e.Actor.Kind, e.Tags) {
		e.HTML, e.Text = nil, new("The text of this email is for its recipient alone.")
		return nil
	}
	return s.fill(ctx, e)
}

// GetWithin is like Get, but it omits the email's own bodies if they are larger than the given number of bytes. The
// second result is the size of the email's own bodies. The size does not include shared content.
func (s *Service) GetWithin(ctx context.Context, teamID, emailID string, most int) (e Email, size int64, err error) {
	e, size, err = getEmailWithin(ctx, s.DB.Reader, teamID, emailID, most)
	if err != nil || size > int64(most) {
		return e, size, err
	}
	return e, size, s.loadBodies(ctx, &e)
}

// TextSize returns the total size, in bytes, of an email's bodies. Bodies in shared content are not counted.
func (s *Service) TextSize(ctx context.Context, teamID, emailID string) (int64, error) {
	_, size, err := getEmailWithin(ctx, s.DB.Reader, teamID, emailID, 0)
	return size, err
}

// Exists returns a NotFound fault if the team has no email with this id.
func (s *Service) Exists(ctx context.Context, teamID, emailID string) error {
	return exists(ctx, s.DB.Reader, teamID, emailID)
}

// List returns a page of the team's emails, newest first, without bodies and tags.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Email, bool, error) {
	return listEmails(ctx, s.DB, teamID, p)
}

// Recipients returns an email's envelope addresses with their states.
func (s *Service) Recipients(ctx context.Context, teamID, emailID string) ([]Recipient, error) {
	e, err := s.Summary(ctx, teamID, emailID)
	return e.Recipients, err
}

// FindTeam returns the team of an email, for operators. It returns a NotFound fault if there is no such email.
func (s *Service) FindTeam(ctx context.Context, emailID string) (teamID string, err error) {
	if id.Valid(emailID) {
		teamID, err = findTeam(ctx, s.DB.Reader, emailID)
	}
	if err == nil && teamID == "" {
		err = fault.NotFoundf("Email not found")
	}
	return teamID, err
}

// Summary returns one of the team's emails without its bodies, with its recipients.
func (s *Service) Summary(ctx context.Context, teamID, emailID string) (EmailWithRecipients, error) {
	e, err := readEmail(ctx, s.DB.Reader, teamID, emailID)
	if err != nil {
		return EmailWithRecipients{}, err
	}
	some, err := withRecipients(ctx, s.DB.Reader, teamID, []Email{e})
	if err != nil {
		return EmailWithRecipients{}, err
	}
	return some[0], nil
}

// Timeline returns a page of an email's events, oldest first, and reports whether there are more; see
// [events.Timeline].
func (s *Service) Timeline(ctx context.Context, teamID, emailID string, p page.Page) ([]events.Entry, bool, error) {
	return events.Timeline(ctx, s.DB.Reader, teamID, emailID, p)
}

// addresses parses stored addresses. The addresses were checked when the email was accepted, so an error means that the
// row is corrupt.
func addresses(list []string) ([]message.Address, error) {
	all := make([]message.Address, 0, len(list))
	for _, text := range list {
		a, err := message.ParseAddress(text)
		if err != nil {
			return nil, fmt.Errorf("read stored address %q: %w", text, err)
		}
		all = append(all, a)
	}
	return all, nil
}

// Latest returns the newest event of each of the given emails, by the email's id; see [events.Latest].
func (s *Service) Latest(ctx context.Context, teamID string, emailIDs []string) (map[string]events.Newest, error) {
	return events.Latest(ctx, s.DB.Reader, teamID, emailIDs)
}
