package emails

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Reasons why a scheduled email of a connected app fails, although the app's grant is still active. The API reference
// knows no such reasons.
const (
	reasonAppNotAllowed = "app_not_allowed"    // the app now lacks emails:send, needs approval, or has too low a limit
	reasonAppLimit      = "app_limit_exceeded" // the app's daily limit is used up
)

// ReasonSuspended is the reason why an email of a suspended team fails if it was scheduled or withheld, or if it
// belongs to a broadcast that has ended.
const ReasonSuspended = "account_suspended"

// actorObstacle returns the reason why the actor that scheduled an email may no longer send it, or "" if the actor may
// send it. The rights of a connected app are looked up again. If a person has approved the email, it does not matter
// whether the app may send other emails.
func (s *Service) actorObstacle(ctx context.Context, e *Email) (reason string, err error) {
	active, err := s.Teams.Active(ctx, s.DB.Reader, e.TeamID, e.Actor)
	if err != nil {
		return "", fmt.Errorf("look up who scheduled email %s: %w", e.ID, err)
	}
	if !active {
		return "invalid_api_key", nil
	}
	if e.Actor.Kind != teams.GrantActor {
		return "", nil
	}
	due := teams.DueSend{Recipients: len(e.To) + len(e.Cc) + len(e.Bcc)}
	if due.Approved, err = s.IsApproved(ctx, e.TeamID, e.ID); err != nil {
		return "", fmt.Errorf("look up the approval of email %s: %w", e.ID, err)
	}
	may, err := s.Teams.GrantMaySend(ctx, s.DB.Reader, e.TeamID, e.Actor.ID, due)
	if err != nil {
		return "", fmt.Errorf("look up the grant of email %s: %w", e.ID, err)
	}
	if !may {
		return reasonAppNotAllowed, nil
	}
	return "", nil
}

// errAppLimit means that the daily limit of a connected app is used up.
var errAppLimit = errors.New("the daily limit of the app is used up")

// dueLimitApplies reports whether a due email counts against the daily limit of the app that scheduled it. An email
// that a person has approved does not count.
func (s *Service) dueLimitApplies(ctx context.Context, e *Email) (bool, error) {
	if e.LastEvent != Scheduled || e.Actor.Kind != teams.GrantActor {
		return false, nil
	}
	approved, err := s.IsApproved(ctx, e.TeamID, e.ID)
	if err != nil {
		return false, fmt.Errorf("look up the approval of email %s: %w", e.ID, err)
	}
	return !approved, nil
}

// consumeDueLimit counts a due email against the daily limit of the app that scheduled it, unless the email was counted
// when it was accepted. If the limit is exceeded, consumeDueLimit returns errAppLimit.
func (s *Service) consumeDueLimit(ctx context.Context, tx *db.Tx, e *Email) error {
	err := s.ConsumeDueLimit(ctx, tx, e.TeamID, e.Actor.ID, len(e.To)+len(e.Cc)+len(e.Bcc), e.CreatedAt)
	if fault.KindOf(err) == fault.DailyQuota {
		return errAppLimit
	}
	return err
}
