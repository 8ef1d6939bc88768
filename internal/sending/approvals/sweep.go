package approvals

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
)

const sweepBatch = 100

// Sweep marks overdue approvals as expired and deletes decided approvals whose retention period has ended. The caller
// runs Sweep every few minutes.
func (s *Service) Sweep(ctx context.Context) error {
	err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		ended, err := expire(ctx, tx, sweepBatch)
		if err != nil {
			return 0, fmt.Errorf("end approvals that nobody decided: %w", err)
		}
		for i := range ended {
			if err := s.recordEvent(ctx, tx, events.ApprovalDecided, &ended[i]); err != nil {
				return 0, err
			}
		}
		return int64(len(ended)), nil
	})
	if err != nil {
		return err
	}
	before := s.d.Now().Add(-retention)
	return s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteDecided(ctx, tx, before, sweepBatch) })
}

// EraseTeam deletes the approvals of a deleted team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	return s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return eraseTeam(ctx, tx, teamID, sweepBatch) })
}

// decidedTexts are the texts that remain of a decided approval.
var decidedTexts = erasure.Texts{Kind: "decided approvals in which it was replaced", Table: "approvals",
	Condition: "state <> 'pending'", Columns: []string{"sender", "subject", "reason"}}

// EraseAddress deletes the pending approvals whose emails contain an address, and replaces the address in the texts of
// decided approvals.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	found, err = erasePending(ctx, d, a, scope)
	if err != nil {
		return found, err
	}
	decided, err := decidedTexts.Erase(ctx, d, a, scope)
	found.Merge(decided)
	return found, err
}

func erasePending(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	const atOnce = 10 // a small page size, because each email may be large
	for _, teamID := range scope.Teams {
		for after := ""; ; {
			some, err := requestsNaming(ctx, d.Reader, teamID, a.Pattern(), after, atOnce)
			if err != nil {
				return found, fmt.Errorf("look for an address in the approvals of team %s: %w", teamID, err)
			}
			if len(some) == 0 {
				break
			}
			after = some[len(some)-1].id
			err = d.Update(ctx, func(tx *db.Tx) error {
				for _, n := range some {
					if a.In(n.request) && !scope.DryRun {
						remove(ctx, tx, teamID, n.id)
					}
				}
				return nil
			})
			if err != nil {
				return found, fmt.Errorf("erase an address in the approvals of team %s: %w", teamID, err)
			}
			for _, n := range some {
				if a.In(n.request) {
					found.Add("approvals", 1)
				}
			}
		}
	}
	return found, nil
}
