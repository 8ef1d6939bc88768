package emails

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// BounceTarget is what the handling of bounces and complaints needs of an email.
type BounceTarget struct {
	ID, TeamID, DomainID, BroadcastID string
	ContactID                         string // that it was entered for; "" for none
	MessageID                         string
	To                                []BounceRecipient
}

// BounceRecipient is an envelope address with its destination.
type BounceRecipient struct{ Address, Domain string }

// BounceTarget returns the email that a report is about, of any team, or a fault of kind NotFound when there is none.
func (s *Service) BounceTarget(ctx context.Context, emailID string) (BounceTarget, error) {
	return bounceTarget(ctx, s.d.Reader, emailID)
}

// TeamsOf returns the team of each of the emails that belongs to one of the teams, by the email's id.
func (s *Service) TeamsOf(ctx context.Context, teamIDs, emailIDs []string) (map[string]string, error) {
	if len(teamIDs) == 0 || len(emailIDs) == 0 {
		return nil, nil
	}
	return teamsOf(ctx, s.d.Reader, teamIDs, emailIDs)
}

// FromMessageID returns the email id in a Message-ID of the form that this package makes. It does not check that there
// is such an email.
func FromMessageID(messageID string) (emailID string, ok bool) {
	local, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(messageID), "<"), "@")
	if !ok || !id.Valid(local) {
		return "", false
	}
	return strings.ToLower(local), true
}

// ReportHistory holds the types of the events that were recorded before, by the recipient of one email.
type ReportHistory map[string][]events.Type

// First reports whether an event of this type would be the first of its type for a recipient, and adds it. It is false
// for an address that is not a recipient.
func (b ReportHistory) First(address string, t events.Type) bool {
	types, known := b[address]
	if !known || slices.Contains(types, t) {
		return false
	}
	b[address] = append(types, t)
	return true
}

// LockReportHistory returns the types of the events recorded so far for some recipients of an email. It is called in the
// transaction that is about to record more: another transaction that calls it for one of them waits until this one
// ends.
func LockReportHistory(ctx context.Context, tx *db.Tx, teamID, emailID string, addresses []string) (ReportHistory, error) {
	before, err := lockRecipients(ctx, tx, teamID, emailID, addresses)
	if err == nil {
		err = before.load(ctx, tx.Reader, teamID, emailID)
	}
	if err != nil {
		return nil, fmt.Errorf("look for earlier reports on email %s: %w", emailID, err)
	}
	return before, nil
}

// References returns the Message-IDs that a sent email refers to, the nearest first.
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
