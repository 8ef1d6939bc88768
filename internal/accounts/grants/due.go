package grants

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// MaySend reports whether emails that a grant asked for earlier may be sent now. The grant, its limits and the role of
// its user are looked up in the database, because all of them may have changed since the emails were accepted. An
// approved email needs only the scope with which the app requested the approval.
func (s *Service) MaySend(ctx context.Context, r db.Reader, teamID, grantID string, due teams.DueSend) (bool, error) {
	g, err := getGrant(ctx, r, teamID, grantID)
	var by teams.Actor
	if err == nil {
		by, err = s.grantorActor(ctx, r, &g)
	}
	switch {
	case err != nil && fault.KindOf(err) == fault.NotFound:
		return false, nil
	case err != nil:
		return false, err
	case !g.RevokedAt.IsZero():
		return false, nil
	}
	has := by.Scopes & g.Scopes.All()
	switch l := g.Limits; {
	case due.Approved:
		return has.Has(teams.EmailsSend) || has.Has(teams.ApprovalsRequest), nil
	case due.Automation:
		return l.restrict(has).Has(teams.AutomationsWrite), nil
	case due.Bulk:
		return has.Has(teams.EmailsSend) && !l.Any(), nil
	default:
		return l.restrict(has).Has(teams.EmailsSend) && (l.Recipients == 0 || int64(due.Recipients) <= l.Recipients), nil
	}
}

// ConsumeDue counts the recipients of a scheduled email, in the transaction that releases the email. If the grant
// already had its daily limit when the email was accepted, the email was counted then, and ConsumeDue counts nothing.
// If the daily limit is exceeded, ConsumeDue returns a DailyQuota fault.
func (s *Service) ConsumeDue(ctx context.Context, tx *db.Tx, teamID, grantID string, recipients int,
	accepted time.Time) error {
	g, err := getGrant(ctx, tx.Reader, teamID, grantID)
	if err != nil || g.Limits.Emails == 0 || !accepted.Before(g.dailySince) {
		return err
	}
	by := teams.Actor{Kind: teams.GrantActor, ID: grantID, TeamID: teamID}
	return s.consume(ctx, tx, by, Limits{Emails: g.Limits.Emails}, []int{recipients})
}
