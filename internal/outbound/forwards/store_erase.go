package forwards

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

const (
	eraseRows = 200                 // maximum number of rows deleted in one transaction
	forgetFor = 30 * 24 * time.Hour // time after which an address without rules is deleted
)

// EraseTeam deletes a team's rules and addresses.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for _, table := range []string{"forwards", "forward_targets"} {
		err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
			return tx.Exec(ctx, `DELETE FROM `+table+` WHERE id IN (SELECT id FROM `+table+` WHERE team_id = $1 LIMIT $2)`,
				db.ID(teamID), eraseRows)
		})
		if err != nil {
			return fmt.Errorf("erase the forwarding rules of team %s: %w", teamID, err)
		}
	}
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteSomeCopies(ctx, tx, teamID) })
	if err != nil {
		return fmt.Errorf("erase the list of forwarded emails of team %s: %w", teamID, err)
	}
	return nil
}

// EraseAddress deletes the rules that forward to an address, and what is known of its owner. A refusal stays, because
// only the owner may take it back. An address that was asked within the last day becomes a nameless row, so that an
// erasure does not raise the number of confirmation emails that the team may send.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (found erasure.Report,
	err error) {
	for teamIDs := range slices.Chunk(scope.Teams, eraseRows) {
		for _, x := range []struct{ kind, table, where string }{
			{"forwarding rules deleted", "forwards", ""},
			{"forwarding addresses deleted", "forward_targets", fmt.Sprintf(" AND state <> %d", refused)},
		} {
			var n int
			where := ` WHERE team_id = ANY($1) AND target = $2` + x.where
			err := d.QueryRow(ctx, `SELECT COUNT(*) FROM `+x.table+where, db.IDs(teamIDs), a.Key()).Scan(&n)
			if err != nil {
				return found, fmt.Errorf("find the forwarding rules to an address: %w", err)
			}
			if n == 0 {
				continue
			}
			if found.Add(x.kind, n); scope.DryRun {
				continue
			}
			err = d.Update(ctx, func(tx *db.Tx) error {
				if x.table == "forward_targets" {
					tx.Queue(ctx, `UPDATE forward_targets SET target = $4, address = '', state = $5`+where+`
						AND asked_at > $3`, db.IDs(teamIDs), a.Key(), tx.Now().Add(-askEvery).UnixMicro(), id.New(), int16(asked))
				}
				tx.Queue(ctx, `DELETE FROM `+x.table+where, db.IDs(teamIDs), a.Key())
				return nil
			})
			if err != nil {
				return found, fmt.Errorf("erase the forwarding rules to an address: %w", err)
			}
		}
	}
	return found, nil
}

// sweepAsks deletes the times of confirmation emails before the given time. It also deletes addresses
// without rules whose last change is forgetFor older.
func sweepAsks(ctx context.Context, d *db.DB, before time.Time) error {
	err := d.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		return tx.Exec(ctx, `DELETE FROM forward_asks WHERE address IN (SELECT address FROM forward_asks
			WHERE asked_at < $1 ORDER BY asked_at LIMIT $2)`, before.UnixMicro(), eraseRows)
	})
	if err != nil {
		return err
	}
	return d.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		return tx.Exec(ctx, `DELETE FROM forward_targets WHERE id IN (SELECT t.id FROM forward_targets t
			WHERE t.changed_at < $1 AND t.asked_at < $1 AND t.state <> $2 AND NOT EXISTS (SELECT 1 FROM forwards f
			WHERE f.team_id = t.team_id AND f.target = t.target) LIMIT $3)`, before.Add(-forgetFor).UnixMicro(),
			int16(refused), eraseRows)
	})
}
