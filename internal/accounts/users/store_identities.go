package users

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// identityUser returns the id of the user to whom an OIDC provider's account is linked, or "" if the account is not
// linked.
func identityUser(ctx context.Context, r db.Reader, issuer, subject string) (userID string, err error) {
	err = r.QueryRow(ctx, `SELECT user_id FROM user_identities WHERE issuer = $1 AND subject = $2`, issuer, subject).
		Scan((*db.ID)(&userID))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		return "", fmt.Errorf("look up an account at a provider: %w", err)
	}
	return userID, nil
}

func insertIdentity(ctx context.Context, tx *db.Tx, i *Identity, subject, userID string) {
	tx.Proof(`SELECT 1 FROM user_identities WHERE id = $1`, db.ID(i.ID))
	tx.Queue(ctx, `INSERT INTO user_identities (id, issuer, subject, user_id, email, created_at)
		VALUES ($1, $2, $3, $4, $5, $6)`, db.ID(i.ID), i.Issuer, subject, db.ID(userID), i.Email, db.Micros(i.CreatedAt))
}

func listIdentities(ctx context.Context, r db.Reader, userID string) ([]Identity, error) {
	rows, err := r.Query(ctx, `SELECT id, issuer, email, created_at FROM user_identities WHERE user_id = $1
		ORDER BY id LIMIT $2`, db.ID(userID), 2*identities)
	all, err := db.Collect(rows, err, func(r db.Row) (i Identity, err error) {
		var created int64
		err = r.Scan((*db.ID)(&i.ID), &i.Issuer, &i.Email, &created)
		i.CreatedAt = db.Time(created)
		return i, err
	})
	if err != nil {
		return nil, fmt.Errorf("list accounts at a provider: %w", err)
	}
	return all, nil
}

func deleteIdentity(ctx context.Context, tx *db.Tx, userID, identityID string) {
	tx.QueueOne(ctx, fault.NotFoundf("Linked account not found"),
		`DELETE FROM user_identities WHERE id = $1 AND user_id = $2`, db.ID(identityID), db.ID(userID))
}
