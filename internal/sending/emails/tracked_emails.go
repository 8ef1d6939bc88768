package emails

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// TrackedEmail has the data of a sent email that is recorded with each open and click.
type TrackedEmail struct {
	TeamID, DomainID, BroadcastID string

	ContactID string // the recipient's contact; "" for none

	// To has the requested recipients by position.
	To map[int]TrackedRecipient
}

// TrackedRecipient is a recipient who opened an email or clicked a link in it.
type TrackedRecipient struct {
	Address string
	State   State
	Since   time.Time // when the recipient entered this state
}

// Delivered reports whether a delivery to the recipient was recorded, or a later state such as opened.
func (f *TrackedRecipient) Delivered() bool { return rank[f.State] >= settled }

// Recipient returns the recipient at the position in a token; see [tokens.TrackedLink]. Position -1 means the only
// recipient of the email. If the position is -1 and the email has several recipients, or if no recipient has the
// position, ok is false.
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

// TrackedEmails returns the emails with the given ids that exist, by id, with the recipients at the given positions.
// Emails of deleted teams are left out. TrackedEmails has no team parameter, because the token of a link contains only
// the email's id.
func (s *Service) TrackedEmails(ctx context.Context, r db.Reader, emailIDs []string,
	positions []int) (map[string]*TrackedEmail, error) {
	wanted := make([]int64, 0, len(positions)+2)
	for _, p := range positions {
		if p < 0 {
			wanted = append(wanted, 0, 1) // position 1 too, so that Recipient can detect several recipients
		} else {
			wanted = append(wanted, int64(p))
		}
	}
	return trackedEmails(ctx, r, emailIDs, wanted)
}

// EventSummaries returns the summaries of several emails for their events, by email id. Emails that do not exist are
// left out.
func (s *Service) EventSummaries(ctx context.Context, r db.Reader, teamID string,
	emailIDs []string) (map[string]*events.Email, error) {
	return eventSummaries(ctx, r, teamID, emailIDs)
}
