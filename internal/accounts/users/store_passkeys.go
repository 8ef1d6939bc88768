package users

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/postrider/postrider/internal/platform/db"
)

// passkey is a passkey together with its WebAuthn credential as stored in the database.
type passkey struct {
	Passkey
	userID     string
	credential webauthn.Credential
}

const passkeyColumns = `id, user_id, name, record, created_at, last_used_at`

func scanPasskey(r db.Row) (p passkey, err error) {
	var record string
	var created, used int64
	if err := r.Scan((*db.ID)(&p.ID), (*db.ID)(&p.userID), &p.Name, &record, &created, &used); err != nil {
		return p, err
	}
	p.CreatedAt, p.LastUsedAt = db.Time(created), db.Time(used)
	if err := json.Unmarshal([]byte(record), &p.credential); err != nil {
		return p, fmt.Errorf("decode passkey %s: %w", p.ID, err)
	}
	return p, nil
}

func listPasskeys(ctx context.Context, r db.Reader, userID string) ([]passkey, error) {
	rows, err := r.Query(ctx, `SELECT `+passkeyColumns+` FROM user_passkeys WHERE user_id = $1 ORDER BY id LIMIT $2`,
		db.ID(userID), 2*passkeysMost)
	all, err := db.Collect(rows, err, scanPasskey)
	if err != nil {
		return nil, fmt.Errorf("list passkeys: %w", err)
	}
	return all, nil
}

func credentialKey(credential []byte) string { return base64.RawURLEncoding.EncodeToString(credential) }

func insertPasskey(ctx context.Context, tx *db.Tx, p *passkey) error {
	record, err := json.Marshal(p.credential)
	if err != nil {
		return fmt.Errorf("encode a passkey: %w", err)
	}
	tx.Proof(`SELECT 1 FROM user_passkeys WHERE id = $1`, db.ID(p.ID))
	tx.Queue(ctx, `INSERT INTO user_passkeys (id, user_id, credential, name, record, created_at, last_used_at)
		VALUES ($1, $2, $3, $4, $5, $6, 0)`, db.ID(p.ID), db.ID(p.userID), credentialKey(p.credential.ID), p.Name,
		string(record), db.Micros(p.CreatedAt))
	return nil
}

// updatePasskey stores a passkey's signature counter and time of last use, and reports whether the passkey still
// exists.
func updatePasskey(ctx context.Context, tx *db.Tx, userID string, used *webauthn.Credential, at time.Time) (bool,
	error) {
	record, err := json.Marshal(used)
	if err != nil {
		return false, fmt.Errorf("encode a passkey: %w", err)
	}
	n, err := tx.Exec(ctx, `UPDATE user_passkeys SET record = $3, last_used_at = $4
		WHERE credential = $1 AND user_id = $2`,
		credentialKey(used.ID), db.ID(userID), string(record), db.Micros(at))
	if err != nil {
		return false, fmt.Errorf("note the use of a passkey: %w", err)
	}
	return n == 1, nil
}

func byHandle(ctx context.Context, r db.Reader, handle []byte) (row, error) {
	return scanRow(r.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE handle = $1`, handle))
}

// countFactors returns the number of a user's passkeys and linked OIDC accounts.
func countFactors(ctx context.Context, r db.Reader, userID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT (SELECT COUNT(*) FROM user_passkeys WHERE user_id = $1)
		+ (SELECT COUNT(*) FROM user_identities WHERE user_id = $1)`, db.ID(userID)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the ways in which a user signs in: %w", err)
	}
	return n, nil
}

func renamePasskey(ctx context.Context, tx *db.Tx, userID, passkeyID, name string) {
	tx.QueueOne(ctx, errNoPasskey, `UPDATE user_passkeys SET name = $3 WHERE id = $1 AND user_id = $2`,
		db.ID(passkeyID), db.ID(userID), name)
}

func deletePasskey(ctx context.Context, tx *db.Tx, userID, passkeyID string) {
	tx.QueueOne(ctx, errNoPasskey, `DELETE FROM user_passkeys WHERE id = $1 AND user_id = $2`, db.ID(passkeyID),
		db.ID(userID))
}

func deletePasskeys(ctx context.Context, tx *db.Tx, userID string) {
	tx.Queue(ctx, `DELETE FROM user_passkeys WHERE user_id = $1`, db.ID(userID))
}
