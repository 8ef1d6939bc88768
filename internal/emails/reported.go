package emails

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/id"
)

// Reported is an email as whoever reads a bounce or a complaint needs it.
type Reported struct {
	ID, TeamID, DomainID, BroadcastID string
	MessageID                         string
	To                                []Destined
}

// Destined is an envelope address with its destination.
type Destined struct{ Address, Domain string }

// Reported returns the email of a report, whatever team's it is; a fault of kind NotFound when there is none.
func (s *Service) Reported(ctx context.Context, emailID string) (Reported, error) {
	return reported(ctx, s.d.Reader, emailID)
}

// TeamsOf returns the teams of those of the emails that are one of the teams', by the email's id.
func (s *Service) TeamsOf(ctx context.Context, teamIDs, emailIDs []string) (map[string]string, error) {
	if len(teamIDs) == 0 || len(emailIDs) == 0 {
		return nil, nil
	}
	return teamsOf(ctx, s.d.Reader, teamIDs, emailIDs)
}

// FromMessageID returns the id of the email that has this Message-ID, if it is of the form of ours: whether there is
// such an email is another question.
func FromMessageID(messageID string) (emailID string, ok bool) {
	local, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(messageID), "<"), "@")
	if !ok || !id.Valid(local) {
		return "", false
	}
	return strings.ToLower(local), true
}

// Before is what the recipients of one email were told of until now.
type Before map[string][]events.Type

// First reports whether an event of this type is the first of its type for a recipient, and counts it. It is false
// for an address that is no recipient.
func (b Before) First(address string, t events.Type) bool {
	types, known := b[address]
	if !known || slices.Contains(types, t) {
		return false
	}
	b[address] = append(types, t)
	return true
}

// ToldBefore returns what was recorded of recipients of an email, within the transaction that is about to record
// more; another transaction that asks for one of them waits for the end of this one.
func ToldBefore(ctx context.Context, tx *db.Tx, teamID, emailID string, addresses []string) (Before, error) {
	before, err := lockRecipients(ctx, tx, teamID, emailID, addresses)
	if err == nil {
		err = before.read(ctx, tx.Reader, teamID, emailID)
	}
	if err != nil {
		return nil, fmt.Errorf("look for earlier reports on email %s: %w", emailID, err)
	}
	return before, nil
}

// References returns the Message-IDs that a sent email refers to, the closest first.
func (s *Service) References(ctx context.Context, teamID, emailID string) (all []string, err error) {
	header, err := headersOf(ctx, s.d.Reader, teamID, emailID)
	for _, name := range []string{"In-Reply-To", "References"} {
		for _, f := range header {
			if strings.EqualFold(f.Name, name) {
				ids := strings.Fields(f.Value)
				slices.Reverse(ids)
				all = append(all, ids...)
			}
		}
	}
	return all, err
}
