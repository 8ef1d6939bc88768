package emails

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
)

// attemptsMax is the maximum number of attempts read for one email if the caller specifies no limit. A job has at most
// a few dozen attempts, but an email with many recipients has many jobs.
const attemptsMax = 500

// Attempts returns a page of an email's delivery attempts with their conversations, oldest first, and reports whether
// there are more. If no page limit is set, the page has at most 500 attempts.
func (s *Service) Attempts(ctx context.Context, teamID, emailID string,
	p page.Page) ([]events.StoredAttempt, bool, error) {
	if p.Limit <= 0 {
		p.Limit = attemptsMax
	}
	return events.Attempts(ctx, s.DB.Reader, teamID, emailID, p)
}

// OutcomeUnknown is the outcome of an attempt in which the host did not say whether it accepted the message.
const OutcomeUnknown = "unknown"

// UnknownAttempts counts the attempts to deliver an email to a destination that have the outcome OutcomeUnknown. If
// addresses are given, UnknownAttempts counts only attempts that had one of these addresses as a recipient.
func UnknownAttempts(ctx context.Context, r db.Reader, teamID, emailID, destination string, to ...string,
) (n int, err error) {
	all, err := events.AttemptRecipients(ctx, r, teamID, emailID, destination, OutcomeUnknown, attemptsMax)
	if err != nil {
		return 0, fmt.Errorf("count attempts of email %s: %w", emailID, err)
	}
	for _, had := range all {
		if len(to) == 0 || slices.ContainsFunc(had, func(a string) bool { return slices.Contains(to, a) }) {
			n++
		}
	}
	return n, nil
}
