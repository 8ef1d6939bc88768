package users

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// useStep records the time step of a TOTP code as used. If this or a later time step has already been used, or if the
// user's TOTP secret has changed, useStep returns false.
func useStep(ctx context.Context, tx *db.Tx, u *row, step int64) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE users SET totp_step = $2 WHERE id = $1 AND totp_step < $2 AND totp_secret = $3`,
		db.ID(u.ID), step, u.totpSecret)
	if err != nil {
		return false, fmt.Errorf("use a code: %w", err)
	}
	return n == 1, nil
}

// takeRecovery deletes a user's recovery code, which has one of the hashes, and reports whether the code existed.
func takeRecovery(ctx context.Context, tx *db.Tx, userID string, hashes []string) (bool, error) {
	n, err := tx.Exec(ctx, `DELETE FROM user_recovery_codes WHERE user_id = $1 AND hash = ANY($2)`, db.ID(userID), hashes)
	if err != nil {
		return false, fmt.Errorf("use a recovery code: %w", err)
	}
	return n == 1, nil
}

func replaceRecovery(ctx context.Context, tx *db.Tx, userID string, hashes []string) {
	tx.Queue(ctx, `DELETE FROM user_recovery_codes WHERE user_id = $1`, db.ID(userID))
	for _, hash := range hashes {
		tx.Queue(ctx, `INSERT INTO user_recovery_codes (user_id, hash) VALUES ($1, $2)`, db.ID(userID), hash)
	}
}

func countRecovery(ctx context.Context, r db.Reader, userID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM user_recovery_codes WHERE user_id = $1`, db.ID(userID)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count recovery codes: %w", err)
	}
	return n, nil
}
