package emails

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// BounceTarget is an email to which a bounce or a complaint refers.
type BounceTarget struct {
	ID, TeamID, DomainID, BroadcastID string
	ContactID                         string // the recipient's contact; "" for none
	MessageID                         string
	ForwardRule                       string // the rule that forwarded the email; "" for none
	OneRecipient                      bool   // see [events.Event]
	To                                []BounceRecipient
}

// BounceRecipient is an envelope address with its destination domain.
type BounceRecipient struct{ Address, Domain string }

// Ref returns the ref with which tokens name an email of a team.
func (s *Service) Ref(ctx context.Context, teamID, emailID string) (tokens.Ref, error) {
	short, err := s.Teams.ShortID(ctx, teamID)
	return tokens.Ref{Team: short, EmailID: emailID}, err
}

// BounceTarget returns the email to which a bounce or complaint refers. A ref without a team, from a Message-ID, may
// name an email of any team. If the email does not exist, BounceTarget returns a NotFound fault.
func (s *Service) BounceTarget(ctx context.Context, of tokens.Ref) (BounceTarget, error) {
	if of.Team == 0 {
		teamID, err := findTeam(ctx, s.DB.Reader, of.EmailID)
		if err != nil {
			return BounceTarget{}, fmt.Errorf("find the team of an email: %w", err)
		}
		if teamID == "" {
			return BounceTarget{}, fault.NotFoundf("Email not found")
		}
		return bounceTarget(ctx, s.DB.Reader, teamID, of.EmailID)
	}
	teamID, err := s.Teams.OfShortID(ctx, of.Team)
	if err != nil {
		return BounceTarget{}, err
	}
	return bounceTarget(ctx, s.DB.Reader, teamID, of.EmailID)
}

// TeamsOf returns a map from email id to team id for the emails that belong to one of the given teams.
func (s *Service) TeamsOf(ctx context.Context, teamIDs, emailIDs []string) (map[string]string, error) {
	if len(teamIDs) == 0 || len(emailIDs) == 0 {
		return nil, nil
	}
	return teamsOf(ctx, s.DB.Reader, teamIDs, emailIDs)
}

// FromMessageID returns the email id contained in a Message-ID that this package created. The email does not have to
// exist.
func FromMessageID(messageID string) (emailID string, ok bool) {
	local, _, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(messageID), "<"), "@")
	if !ok || !id.Valid(local) {
		return "", false
	}
	return strings.ToLower(local), true
}

// ReportHistory maps each recipient of an email to the types of the events recorded for it so far.
type ReportHistory map[string][]events.Type

// First reports whether an event is the first of its type for a recipient, and adds the type to the history. First
// returns false for an address that is not a recipient.
func (b ReportHistory) First(address string, t events.Type) bool {
	types, known := b[address]
	if !known || slices.Contains(types, t) {
		return false
	}
	b[address] = append(types, t)
	return true
}

// LockReportHistory returns the types of the events recorded so far for the given recipients of an email.
// LockReportHistory locks the recipients, so that other calls for the same recipients wait until the transaction ends.
// The caller should record new events in the same transaction.
func LockReportHistory(ctx context.Context, tx *db.Tx, teamID, emailID string,
	addresses []string) (ReportHistory, error) {
	before, err := lockRecipients(ctx, tx, teamID, emailID, addresses)
	if err == nil {
		err = before.load(ctx, tx.Reader, teamID, emailID)
	}
	if err != nil {
		return nil, fmt.Errorf("look for earlier reports on email %s: %w", emailID, err)
	}
	return before, nil
}

// References returns the Message-IDs in a sent email's In-Reply-To and References fields, the nearest ancestor first.
func (s *Service) References(ctx context.Context, teamID, emailID string) (all []string, err error) {
	header, err := headersOf(ctx, s.DB.Reader, teamID, emailID)
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
