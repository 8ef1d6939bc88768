package users

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

// Audit log actions that only this package uses.
const (
	userDeleted     = "user.deleted"
	resetRequested  = "user.reset_asked"
	recoveryCreated = "user.recovery_codes_made"
	sessionsEnded   = "user.sessions_ended"
	factorsCleared  = "user.factors_cleared"
	passkeyRenamed  = "user.passkey_renamed"
	authenticator   = "authenticator app"
	actorKindOfUser = "user" // same value as in package teams
)

// recordByUser records an action in the audit log with the user as actor.
func (s *Service) recordByUser(ctx context.Context, tx *db.Tx, u User, action, detail string, c Client) error {
	return s.record(ctx, tx, u, audit.Entry{ActorKind: actorKindOfUser, ActorID: u.ID, ActorName: u.Email,
		Action: action, Target: u.ID, Detail: detail, Address: c.Address, UserAgent: c.UserAgent})
}

// recordByOthers records in the audit log that somebody else changed a user. The actor comes from the context; if the
// context has none, the actor is the operator.
func (s *Service) recordByOthers(ctx context.Context, tx *db.Tx, u User, action, detail string) error {
	return s.record(ctx, tx, u, audit.Entry{Action: action, Target: u.ID, Detail: detail})
}

// record writes an entry to the audit log of each of the user's teams, or an entry without a team if the user has none.
func (s *Service) record(ctx context.Context, tx *db.Tx, u User, e audit.Entry) error {
	teams, err := s.TeamsOf(ctx, tx.Reader, u.ID)
	if err != nil {
		return fmt.Errorf("list the teams of a user: %w", err)
	}
	if len(teams) == 0 {
		teams = []string{""}
	}
	for _, e.TeamID = range teams {
		s.Audit.Record(ctx, tx, e)
	}
	return nil
}

// recordByUserID looks up a user by id and calls recordByUser.
func (s *Service) recordByUserID(ctx context.Context, tx *db.Tx, userID, action, detail string, c Client) error {
	u, err := getUser(ctx, tx.Reader, userID)
	if err != nil {
		return err
	}
	return s.recordByUser(ctx, tx, u, action, detail, c)
}
