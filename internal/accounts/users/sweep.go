package users

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const sweepRows = 500 // maximum number of rows that one transaction deletes

// Sweep deletes expired sessions, tokens, kept forms and counters for sign-in attempts.
func (s *Service) Sweep(ctx context.Context) error {
	now := s.now()
	for _, old := range []struct {
		what   string
		delete func(ctx context.Context, tx *db.Tx, before time.Time, most int) (int64, error)
		before time.Time
	}{
		{"sessions", deleteOldSessions, now.Add(-sessionIdle)},
		{"tokens", deleteOldTokens, now},
		{"kept forms", deleteOldForms, now},
		{"attempts", deleteOldAttempts, now.Add(-attemptsFor)},
	} {
		err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return old.delete(ctx, tx, old.before, sweepRows) })
		if err != nil {
			return fmt.Errorf("delete old %s of users: %w", old.what, err)
		}
	}
	return nil
}
