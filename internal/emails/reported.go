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

// FromMessageID returns the id of the email that has this Message-ID, if it is of the form of ours: whether there is such
// an email is another question.
func FromMessageID(messageID string) (emailID string, ok bool) {
	local, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(messageID), "<"), "@")
	if !ok || !id.Valid(local) {
		return "", false
	}
	return strings.ToLower(local), true
}

// FirstOf reports whether an event of this type is the first of its type for a recipient, within the transaction that is
// about to record it; another transaction that asks the same waits for the end of this one. It is false for an address that
// is no recipient.
func FirstOf(ctx context.Context, tx *db.Tx, teamID, emailID, address string, t events.Type) (bool, error) {
	known, err := lockRecipient(ctx, tx, teamID, emailID, address)
	if err != nil || !known {
		return false, err
	}
	before, err := happened(ctx, tx.Reader, teamID, emailID, address, strings.TrimPrefix(string(t), "email."))
	if err != nil {
		return false, fmt.Errorf("look for an earlier %s of email %s: %w", t, emailID, err)
	}
	return !before, nil
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
