package automations

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// sweepAfter is how long the rows of a deleted automation are kept. Once sweepAfter has passed, every transaction that
// was inserting a run during the deletion has ended.
const sweepAfter = time.Hour

// Sweep deletes the rows of deleted automations whose runs have all ended. A cron job calls Sweep.
func (s *Service) Sweep(ctx context.Context) error {
	before := s.p.DB.Now().Add(-sweepAfter)
	for after := (deleted{}); ; {
		some, err := deletedBefore(ctx, s.p.DB.Reader, before.UnixMicro(), after)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, after = range some {
			if after.running {
				continue
			}
			if err := s.clear(ctx, after.teamID, after.id); err != nil {
				return err
			}
		}
	}
}

// clear deletes all rows of an automation that is marked as deleted.
func (s *Service) clear(ctx context.Context, teamID, automationID string) error {
	steps := []func(tx *db.Tx) (int64, error){
		func(tx *db.Tx) (int64, error) { return clearRuns(ctx, tx, teamID, automationID) },
		func(tx *db.Tx) (int64, error) { return clearContacts(ctx, tx, teamID, automationID) },
		func(tx *db.Tx) (int64, error) { return clearVersions(ctx, tx, teamID, automationID) },
		func(tx *db.Tx) (int64, error) { return deleteAutomation(ctx, tx, teamID, automationID) },
	}
	for _, step := range steps {
		if err := s.p.DB.Repeat(ctx, step); err != nil {
			return fmt.Errorf("delete the rows of automation %s: %w", automationID, err)
		}
	}
	return nil
}

// EraseTeam deletes a team's automations. The team's jobs must be deleted first.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return markAllDeleted(ctx, tx, teamID) })
	if err != nil {
		return fmt.Errorf("erase the automations of team %s: %w", teamID, err)
	}
	for {
		some, err := deletedOf(ctx, s.p.DB.Reader, teamID)
		if err != nil || len(some) == 0 {
			return err
		}
		for _, automationID := range some {
			if err := s.clear(ctx, teamID, automationID); err != nil {
				return err
			}
		}
	}
}

// RemoveRuns deletes a batch of runs that ended before the given time, together with their steps. RemoveRuns returns ""
// if no such runs remain. The counters that enforce the reentry rules of automations are kept.
func (s *Service) RemoveRuns(ctx context.Context, teamID string, before time.Time, _ string) (next string, err error) {
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		next = ""
		all, more, err := endedRuns(ctx, tx.Reader, teamID, before.UnixMicro())
		if err != nil {
			return err
		}
		deleteRuns(ctx, tx, teamID, all)
		if more {
			next = "more" // any string works, because the next call does not find deleted runs
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("delete old runs of team %s: %w", teamID, err)
	}
	return next, nil
}

// Names of the counters that EraseAddress reports.
const (
	erasedRuns   = "runs of automations deleted"
	replacedRuns = "runs of automations in which it was replaced"
)

// EraseAddress deletes the runs of contacts with the given address, and replaces the address in the events and steps of
// other runs. Call EraseAddress before the contacts are deleted, because EraseAddress finds the contacts by their
// address. EraseAddress reads all runs of the teams in scope, in batches.
func (s *Service) EraseAddress(ctx context.Context, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	for _, teamID := range scope.Teams {
		if err := s.eraseIn(ctx, teamID, a, scope.DryRun, &found); err != nil {
			return found, fmt.Errorf("erase an address from the automations of team %s: %w", teamID, err)
		}
	}
	return found, nil
}

func (s *Service) eraseIn(ctx context.Context, teamID string, a erasure.Address, dry bool,
	found *erasure.Report) error {
	c, err := s.p.Contacts.Get(ctx, teamID, a.Key())
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return fmt.Errorf("look for the contact: %w", err)
	}
	if err == nil {
		if err := s.eraseContact(ctx, &c, dry, found); err != nil {
			return err
		}
	}
	for after := ""; ; {
		all, err := automationsOf(ctx, s.p.DB.Reader, teamID, after)
		if err != nil || len(all) == 0 {
			return err
		}
		for _, after = range all {
			if err := s.replaceIn(ctx, teamID, after, c.ID, a, dry, found); err != nil {
				return fmt.Errorf("automation %s: %w", after, err)
			}
		}
	}
}

// eraseContact deletes a contact's runs and run counters.
func (s *Service) eraseContact(ctx context.Context, c *contacts.Contact, dry bool, found *erasure.Report) error {
	if dry {
		for after, more := "", true; more; {
			some, beyond, err := runsOf(ctx, s.p.DB.Reader, c.TeamID, c.ID, after)
			if err != nil {
				return err
			}
			if len(some) > 0 {
				found.Add(erasedRuns, len(some))
				after = some[len(some)-1].id
			}
			more = beyond
		}
		return nil
	}
	for more := true; more; {
		var some []runSize
		err := s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
			if some, more, err = runsOf(ctx, tx.Reader, c.TeamID, c.ID, ""); err != nil {
				return err
			}
			ids := idsOf(some)
			s.p.Queue.RemoveAll(ctx, tx, runKind, c.TeamID, ids)
			s.p.Queue.RemoveAll(ctx, tx, callKind, c.TeamID, ids)
			deleteRuns(ctx, tx, c.TeamID, some)
			if !more {
				deleteContactCounts(ctx, tx, c.TeamID, c.ID)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("delete the runs of a contact: %w", err)
		}
		if len(some) > 0 {
			found.Add(erasedRuns, len(some))
		}
	}
	return nil
}

// replaceIn replaces an address in an automation's runs. The runs of the given contact are left out, because
// eraseContact deletes them.
func (s *Service) replaceIn(ctx context.Context, teamID, automationID, contactID string, a erasure.Address, dry bool,
	found *erasure.Report) error {
	for after := ""; ; {
		upTo, err := nextRangeEnd(ctx, s.p.DB.Reader, teamID, automationID, after)
		if err != nil || upTo == "" {
			return err
		}
		batch := runRange{teamID, automationID, after, upTo}
		runs, err := runsWithAddress(ctx, s.p.DB.Reader, batch, a, contactID)
		if err != nil {
			return err
		}
		steps, err := stepsWithAddress(ctx, s.p.DB.Reader, batch, a, contactID)
		if err != nil {
			return err
		}
		named := map[string]bool{}
		for i := range runs {
			named[runs[i].id] = true
		}
		for i := range steps {
			named[steps[i].run] = true
		}
		if len(named) > 0 {
			found.Add(replacedRuns, len(named))
		}
		if !dry && len(named) > 0 {
			err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
				for i := range runs {
					replaceInRun(ctx, tx, teamID, &runs[i], a)
				}
				for i := range steps {
					replaceInStep(ctx, tx, teamID, &steps[i], a)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		after = upTo
	}
}
