package emails

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// TrackedEmail has the data of a sent email that is recorded with each of its opens and clicks.
type TrackedEmail struct {
	TeamID, DomainID, BroadcastID string

	ContactID string // the recipient's contact; "" for none

	// To has the requested recipients by position.
	To map[int]TrackedRecipient
}

// TrackedRecipient is a recipient whose pixel was loaded, or whose link was followed.
type TrackedRecipient struct {
	Address string
	State   State
	Since   time.Time // the time of the change to this state
}

// Delivered reports whether the email was delivered to the recipient, as far as is known.
func (f *TrackedRecipient) Delivered() bool { return rank[f.State] >= settled }

// Recipient returns the recipient at the position in a token; see [tokens.TrackedLink]. Position -1 means the only
// recipient of the email. ok is false if the email has several recipients, or none at that position.
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

// TrackedEmails returns the existing emails of some ids, by id, with their recipients at some positions. It leaves
// out emails of deleted teams. It takes no team, because the token of a link names only the email.
func (s *Service) TrackedEmails(ctx context.Context, r db.Reader, emailIDs []string,
	positions []int) (map[string]*TrackedEmail, error) {
	wanted := make([]int64, 0, len(positions)+2)
	for _, p := range positions {
		if p < 0 {
			wanted = append(wanted, 0, 1) // Recipient checks that position 1 is empty
		} else {
			wanted = append(wanted, int64(p))
		}
	}
	return trackedEmails(ctx, r, emailIDs, wanted)
}

// EventSummaries returns, by email id, the summaries that the events of some emails contain. It leaves out emails that
// do not exist.
func (s *Service) EventSummaries(ctx context.Context, r db.Reader, teamID string,
	emailIDs []string) (map[string]*events.Email, error) {
	return eventSummaries(ctx, r, teamID, emailIDs)
}
