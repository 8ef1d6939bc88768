package users

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

func insertToken(ctx context.Context, tx *db.Tx, token, kind, userID string, expires time.Time) {
	hash := hashToken(token)
	tx.Proof(`SELECT 1 FROM user_tokens WHERE hash = $1`, hash)
	tx.Queue(ctx, `INSERT INTO user_tokens (hash, kind, user_id, tries, expires_at) VALUES ($1, $2, $3, 0, $4)`, hash,
		kind, db.OrNoID(userID), db.Micros(expires))
}

// tokenUser returns the id of the user to whom a valid token belongs, or "" if the token is invalid or expired.
func tokenUser(ctx context.Context, r db.Reader, hash, kind string, now time.Time) (userID string, err error) {
	err = r.QueryRow(ctx, `SELECT user_id FROM user_tokens WHERE hash = $1 AND kind = $2 AND expires_at > $3`, hash,
		kind, db.Micros(now)).Scan((*db.ID)(&userID))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return "", fmt.Errorf("look up a token: %w", err)
	}
	return userID, nil
}

// tryToken counts an attempt to use a token, and returns false if the maximum number of attempts had already been made.
func tryToken(ctx context.Context, tx *db.Tx, hash, kind string, most int, now time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE user_tokens SET tries = tries + 1
		WHERE hash = $1 AND kind = $2 AND expires_at > $3 AND tries < $4`, hash, kind, db.Micros(now), most)
	if err != nil {
		return false, fmt.Errorf("count a try: %w", err)
	}
	return n == 1, nil
}

// takeToken deletes a token that has not expired, and reports whether such a token existed.
func takeToken(ctx context.Context, tx *db.Tx, hash, kind string, now time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `DELETE FROM user_tokens WHERE hash = $1 AND kind = $2 AND expires_at > $3`, hash, kind,
		db.Micros(now))
	if err != nil {
		return false, fmt.Errorf("use a token: %w", err)
	}
	return n == 1, nil
}

// markUsed marks a challenge as used, and returns false if the challenge had already been used. The row that marks the
// challenge as used is kept until the challenge expires.
func markUsed(ctx context.Context, tx *db.Tx, challenge string, expires time.Time) (bool, error) {
	n, err := tx.Exec(ctx, `INSERT INTO user_tokens (hash, kind, user_id, tries, expires_at) VALUES ($1, $2, $4, 0, $3)
		ON CONFLICT (hash) DO NOTHING`, hashToken(challenge), usedToken, db.Micros(expires), db.NoID)
	if err != nil {
		return false, fmt.Errorf("mark a challenge as used: %w", err)
	}
	return n == 1, nil
}

func hasToken(ctx context.Context, r db.Reader, hash, kind string, now time.Time) (bool, error) {
	var n int
	err := r.QueryRow(ctx, `SELECT COUNT(*) FROM user_tokens WHERE hash = $1 AND kind = $2 AND expires_at > $3`, hash,
		kind, db.Micros(now)).Scan(&n)
	if err != nil {
		return false, fmt.Errorf("look up a token: %w", err)
	}
	return n > 0, nil
}

// deleteKind deletes a user's tokens of one kind. If the user id is empty, deleteKind deletes the tokens that belong to
// no user.
func deleteKind(ctx context.Context, tx *db.Tx, kind, userID string) {
	tx.Queue(ctx, `DELETE FROM user_tokens WHERE kind = $1 AND user_id = $2`, kind, db.OrNoID(userID))
}

// endToken deletes a token. If the token does not exist, the transaction fails with the given error.
func endToken(ctx context.Context, tx *db.Tx, missing error, hash string) {
	tx.QueueOne(ctx, missing, `DELETE FROM user_tokens WHERE hash = $1`, hash)
}

func deleteOldTokens(ctx context.Context, tx *db.Tx, before time.Time, most int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM user_tokens WHERE hash IN
		(SELECT hash FROM user_tokens WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`, db.Micros(before), most)
}
