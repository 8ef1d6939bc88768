package domainconnect

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

// getKey returns the sealed key, or db.ErrNoRows.
func getKey(ctx context.Context, r db.Reader) (sealed []byte, err error) {
	err = r.QueryRow(ctx, `SELECT private FROM domain_connect_keys WHERE id = $1`, db.ID(keyID)).Scan(&sealed)
	return sealed, err
}

// keepKey stores a sealed key unless there is one, and returns the stored one.
func keepKey(ctx context.Context, tx *db.Tx, sealed []byte) (kept []byte, err error) {
	if _, err := tx.Exec(ctx, `INSERT INTO domain_connect_keys (id, private, created_at) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO NOTHING`, db.ID(keyID), sealed, db.Micros(tx.Now())); err != nil {
		return nil, err
	}
	err = tx.QueryRow(ctx, `SELECT private FROM domain_connect_keys WHERE id = $1`, db.ID(keyID)).Scan(&kept)
	return kept, err
}
