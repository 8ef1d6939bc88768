package webhooks

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

const eraseRows = 500 // maximum number of rows deleted in one transaction

// EraseTeam deletes a team's endpoints with their messages and attempts. EraseTeam first marks the endpoints as
// deleted, so that no more messages are inserted.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.eraseEndpoints(ctx, teamID)
	if err == nil {
		err = s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
			return tx.Exec(ctx, `DELETE FROM webhook_messages WHERE id IN
				(SELECT id FROM webhook_messages WHERE team_id = $1 ORDER BY id LIMIT $2)`, db.ID(teamID), eraseRows)
		})
	}
	if err != nil {
		return fmt.Errorf("erase the webhooks of team %s: %w", teamID, err)
	}
	return nil
}

func (s *Service) eraseEndpoints(ctx context.Context, teamID string) error {
	err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `UPDATE webhooks SET status = 'deleted' WHERE team_id = $1`, db.ID(teamID))
		s.endpoints.changed(tx, teamID)
		return nil
	})
	if err == nil {
		err = s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
			return tx.Exec(ctx, `DELETE FROM webhook_fanouts WHERE team_id = $1 AND (chain, message_id) IN
				(SELECT chain, message_id FROM webhook_fanouts WHERE team_id = $1 ORDER BY chain, message_id LIMIT
				$2)`, db.ID(teamID), eraseRows)
		})
	}
	for err == nil {
		var id db.ID
		err = s.p.DB.QueryRow(ctx, `SELECT id FROM webhooks WHERE team_id = $1 ORDER BY id LIMIT 1`,
			db.ID(teamID)).Scan(&id)
		if errors.Is(err, db.ErrNoRows) {
			return nil
		}
		for _, table := range []string{"webhook_attempts", "webhook_deliveries"} {
			if err != nil {
				return err
			}
			err = s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
				return tx.Exec(ctx, `DELETE FROM `+table+` WHERE webhook_id = $1 AND team_id = $2 AND message_id IN
					(SELECT message_id FROM `+table+` WHERE webhook_id = $1 ORDER BY message_id LIMIT $3)`, id, db.ID(teamID),
					eraseRows)
			})
		}
		if err == nil {
			err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
				tx.Queue(ctx, `DELETE FROM webhooks WHERE id = $1 AND team_id = $2`, id, db.ID(teamID))
				return nil
			})
		}
	}
	return err
}
