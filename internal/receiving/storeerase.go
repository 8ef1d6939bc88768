package receiving

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/db"
)

const eraseEmails = 100 // in one transaction

// EraseTeam takes away what a team received. Teams that received the same message share its file, which goes with the
// last of them; what an interruption leaves is the sweep's.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for {
		some, err := someReceived(ctx, s.p.DB.Reader, teamID)
		if err != nil {
			return fmt.Errorf("erase what team %s received: %w", teamID, err)
		}
		if len(some) == 0 {
			return nil
		}
		if err := s.p.DB.Update(ctx, func(tx *db.Tx) error { return deleteReceived(ctx, tx, teamID, some) }); err != nil {
			return fmt.Errorf("erase what team %s received: %w", teamID, err)
		}
		for _, key := range some {
			if key == "" {
				continue
			}
			used, err := usesBlob(ctx, s.p.DB.Reader, key)
			if err != nil {
				return fmt.Errorf("look for who needs %s: %w", key, err)
			}
			if used {
				continue
			}
			if err := s.p.Blobs.Delete(ctx, key); err != nil {
				return err
			}
		}
	}
}

// someReceived returns some of a team's received emails with their files' keys.
func someReceived(ctx context.Context, r db.Reader, teamID string) (map[string]string, error) {
	found := map[string]string{}
	rows, err := r.Query(ctx, `SELECT id, blob_key FROM received_emails WHERE team_id = $1 ORDER BY id LIMIT $2`, teamID, eraseEmails)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var emailID, key string
		err = r.Scan(&emailID, &key)
		found[emailID] = key
		return none, err
	})
	return found, err
}

func deleteReceived(ctx context.Context, tx *db.Tx, teamID string, some map[string]string) error {
	var ids []string
	for emailID := range some {
		ids = append(ids, emailID)
	}
	if _, err := tx.Exec(ctx, `DELETE FROM received_raws WHERE team_id = $1 AND email_id = ANY($2)`, teamID, ids); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `DELETE FROM received_emails WHERE team_id = $1 AND id = ANY($2)`, teamID, ids)
	return err
}
