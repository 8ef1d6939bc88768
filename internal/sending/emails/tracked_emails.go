package emails

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Followed is what is recorded of a sent email with its opens and clicks.
type TrackedEmail struct {
	TeamID, DomainID, BroadcastID string

	ContactID string // for whom it was entered; "" for none

	// To are the recipients that were asked for, by position.
	To map[int]TrackedRecipient
}

// TrackedRecipient is a recipient whose pixel was loaded, or whose link was followed.
type TrackedRecipient struct {
	Address string
	State   State
	Since   time.Time // when it came to this state
}

// Delivered reports whether the email was delivered to the recipient, as far as is known.
func (f *TrackedRecipient) Delivered() bool { return rank[f.State] >= settled }

// Recipient returns the recipient at a position of [Tracked]. If that is -1, it is the only recipient of the email;
// ok is false if there are several, or if there is none at that position.
func (f *TrackedEmail) Recipient(position int) (to TrackedRecipient, ok bool) {
	if position < 0 {
		if _, several := f.To[1]; several {
			return to, false
		}
		position = 0
	}
	to, ok = f.To[position]
	return to, ok
}

// TrackedEmails returns those emails, of any team that was not deleted, that exist, by id, with their recipients at some
// positions. It takes no team, because the token of a link names only the email.
func (s *Service) TrackedEmails(ctx context.Context, r db.Reader, emailIDs []string, positions []int) (map[string]*TrackedEmail,
	error) {
	asked := make([]int64, 0, len(positions)+2)
	for _, p := range positions {
		if p < 0 {
			asked = append(asked, 0, 1) // for Recipient
		} else {
			asked = append(asked, int64(p))
		}
	}
	return trackedEmails(ctx, r, emailIDs, asked)
}

// EventSummaries returns what the events of some emails carry of them, by id. Emails that do not exist are left out.
func (s *Service) EventSummaries(ctx context.Context, r db.Reader, teamID string, emailIDs []string) (map[string]*events.Email,
	error) {
	return eventSummaries(ctx, r, teamID, emailIDs)
}
