package emails

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// idempotencyKey returns the payload hash and the encoded answer that are stored with a key, and the time at which the
// key was stored. If the key is not stored, idempotencyKey returns db.ErrNoRows.
func idempotencyKey(ctx context.Context, r db.Reader, teamID, scope, key string) (hash, response string,
	created time.Time, err error) {
	var at int64
	err = r.QueryRow(ctx, `SELECT payload_hash, response, created_at FROM idempotency_keys
		WHERE team_id = $1 AND scope = $2 AND idempotency_key = $3`, db.ID(teamID), scope, key).Scan(&hash, &response, &at)
	return hash, response, db.Time(at), err
}

// insertIdempotencyKey stores a key with its encoded answer; it first deletes an expired record for the same key.
func insertIdempotencyKey(ctx context.Context, tx *db.Tx, teamID string, key *Idempotency, response string) {
	tx.Queue(ctx, `DELETE FROM idempotency_keys WHERE team_id = $1 AND scope = $2 AND idempotency_key = $3
		AND created_at < $4`,
		db.ID(teamID), key.Scope, key.Key, tx.Now().Add(-keyLifetime).UnixMicro())
	tx.Queue(ctx, `INSERT INTO idempotency_keys (team_id, scope, idempotency_key, payload_hash, response, created_at)
		VALUES ($1, $2, $3, $4, $5, $6)`, db.ID(teamID), key.Scope, key.Key, key.Hash, response, tx.Now().UnixMicro())
}

// updateIdempotencyKey replaces the encoded answer of a stored key.
func updateIdempotencyKey(ctx context.Context, tx *db.Tx, teamID string, key *Idempotency, response string) {
	tx.Queue(ctx, `UPDATE idempotency_keys SET response = $5 WHERE team_id = $1 AND scope = $2 AND idempotency_key = $3
		AND payload_hash = $4`, db.ID(teamID), key.Scope, key.Key, key.Hash, response)
}

// deleteExpiredKeys deletes all teams' expired idempotency keys.
func deleteExpiredKeys(ctx context.Context, tx *db.Tx) error {
	_, err := tx.Exec(ctx, `DELETE FROM idempotency_keys WHERE created_at < $1`, tx.Now().Add(-keyLifetime).UnixMicro())
	return err
}
