package emails

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// TrackedEmail holds the data about a sent email that is recorded with each open and click.
type TrackedEmail struct {
	TeamID, DomainID, BroadcastID string

	ContactID    string // the recipient's contact; "" for none
	OneRecipient bool   // see [events.Event]

	// To maps envelope positions to the requested recipients.
	To map[int]TrackedRecipient
}

// TrackedRecipient is a recipient who opened an email or clicked a link in it.
type TrackedRecipient struct {
	Address string
	State   State
	Since   time.Time // when the recipient entered this state
}

// Delivered reports whether delivery to the recipient, or a later state such as opened, has been recorded.
func (f *TrackedRecipient) Delivered() bool { return rank[f.State] >= settled }

// Recipient returns the recipient at the position in a token; see [tokens.TrackedLink]. The position -1 means the only
// recipient of the email. If the position is -1 and the email has several recipients, or if no recipient has the given
// position, Recipient returns ok == false.
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

// TeamsPerQuery is the maximum number of teams in a statement that looks up emails of several teams. Such a statement
// looks for each of the emails in each of the teams.
const TeamsPerQuery = 16

// TrackedEmails returns the emails that links name, as a map keyed by the email's id, with the recipients at the given
// positions. Emails that do not exist, and emails of deleted teams, are left out.
func (s *Service) TrackedEmails(ctx context.Context, r db.Reader, refs []tokens.Ref,
	positions []int) (map[string]*TrackedEmail, error) {
	byTeam := map[string][]string{}
	for _, ref := range refs {
		teamID, err := s.Teams.OfShortID(ctx, ref.Team)
		if fault.KindOf(err) == fault.NotFound {
			continue
		}
		if err != nil {
			return nil, err
		}
		byTeam[teamID] = append(byTeam[teamID], ref.EmailID)
	}
	wanted := make([]int64, 0, len(positions)+2)
	for _, p := range positions {
		if p < 0 {
			wanted = append(wanted, 0, 1) // position 1 is included so that Recipient can detect several recipients
		} else {
			wanted = append(wanted, int64(p))
		}
	}
	all := map[string]*TrackedEmail{}
	for teamIDs := range slices.Chunk(slices.Sorted(maps.Keys(byTeam)), TeamsPerQuery) {
		var emailIDs []string
		for _, teamID := range teamIDs {
			emailIDs = append(emailIDs, byTeam[teamID]...)
		}
		found, err := trackedEmails(ctx, r, teamIDs, emailIDs, wanted)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, found)
	}
	return all, nil
}

// EventSummaries returns summaries of the given emails for inclusion in their events, as a map keyed by email id.
// Emails that do not exist are left out.
func (s *Service) EventSummaries(ctx context.Context, r db.Reader, teamID string,
	emailIDs []string) (map[string]*events.Email, error) {
	return eventSummaries(ctx, r, teamID, emailIDs)
}
