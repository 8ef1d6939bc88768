package automations

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

// AppAutomation is an automation whose steps a connected app wrote, or which the app enabled last.
type AppAutomation struct {
	ID, Name, GrantID string
	Enabled           bool
	Halted            bool // stopped because the app may no longer change automations
}

// OfApps returns the automations of connected apps, in order of their ids. The parameter grantIDs lists at most 100
// grants.
func (s *Service) OfApps(ctx context.Context, teamID string, grantIDs []string) ([]AppAutomation, error) {
	all, err := listOfApps(ctx, s.p.DB.Reader, teamID, grantIDs)
	if err != nil {
		return nil, fmt.Errorf("list the automations of grants of team %s: %w", teamID, err)
	}
	return all, nil
}

// setApp records which connected app is responsible for an automation. If by is not an app, setApp removes the record.
func setApp(ctx context.Context, tx *db.Tx, a *Automation, by teams.ActorRef) {
	if by.Kind == teams.GrantActor {
		saveApp(ctx, tx, a.TeamID, a.ID, by.ID)
	} else {
		deleteApp(ctx, tx, a.TeamID, a.ID)
	}
}

// StopOfApp stops the enabled automations of a connected app and cancels their runs, in the transaction that revokes or
// limits the app.
func (s *Service) StopOfApp(ctx context.Context, tx *db.Tx, teamID, grantID string) error {
	all, err := listOfApps(ctx, tx.Reader, teamID, []string{grantID})
	if err != nil {
		return fmt.Errorf("list the automations of grant %s: %w", grantID, err)
	}
	for _, one := range all {
		if !one.Enabled {
			continue
		}
		if err := s.halt(ctx, tx, teamID, one.ID); err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
	}
	return nil
}

// halt stops an automation because of its app.
func (s *Service) halt(ctx context.Context, tx *db.Tx, teamID, automationID string) error {
	a, err := markStopped(ctx, tx, teamID, automationID)
	if err != nil {
		return err
	}
	markHalted(ctx, tx, teamID, automationID)
	s.endRuns(ctx, tx, &a)
	return nil
}

// haltIfRefused stops a run's automation if a connected app is responsible for it and may no longer change automations.
// The app's grant, its limits and the role of its user are looked up, because they may have changed since the run
// began.
func (s *Service) haltIfRefused(ctx context.Context, r *row) (halted bool, err error) {
	grantID, err := appOf(ctx, s.p.DB.Reader, r.teamID, r.automationID)
	if errors.Is(err, db.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up the app of automation %s: %w", r.automationID, err)
	}
	may, err := s.p.Teams.GrantMaySend(ctx, s.p.DB.Reader, r.teamID, grantID, teams.DueSend{Automation: true})
	if err != nil || may {
		return false, err
	}
	err = s.p.DB.Update(audit.Without(ctx), func(tx *db.Tx) error {
		now, err := appOf(ctx, tx.Reader, r.teamID, r.automationID)
		if errors.Is(err, db.ErrNoRows) || err == nil && now != grantID {
			return nil // a person has taken the automation over
		}
		if err == nil {
			err = s.halt(ctx, tx, r.teamID, r.automationID)
		}
		return err
	})
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	return true, err
}
