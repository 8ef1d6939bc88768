package users

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// row is a user together with the columns that only this package uses.
type row struct {
	User
	password   string
	totpSecret []byte
	totpStep   int64
	handle     []byte
}

const userColumns = `id, email, name, password, disabled, totp_secret, totp_step, handle, created_at, last_sign_in_at`

func scanRow(r db.Row) (u row, err error) {
	var created, signedIn int64
	err = r.Scan((*db.ID)(&u.ID), &u.Email, &u.Name, &u.password, &u.Disabled, &u.totpSecret, &u.totpStep, &u.handle,
		&created, &signedIn)
	u.CreatedAt, u.LastSignInAt = db.Time(created), db.Time(signedIn)
	u.HasPassword, u.HasTOTP = u.password != "", len(u.totpSecret) > 0
	if errors.Is(err, db.ErrNoRows) {
		return u, fault.NotFoundf("User not found")
	}
	if err != nil {
		return u, fmt.Errorf("read user: %w", err)
	}
	return u, nil
}

func getRow(ctx context.Context, r db.Reader, userID string) (row, error) {
	return scanRow(r.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE id = $1`, db.ID(userID)))
}

// lockRow reads and locks a user's row, for transactions that begin a session or delete a factor. A concurrent change
// to the user either waits for this transaction and then ends the new session, or commits first and is visible to this
// transaction.
func lockRow(ctx context.Context, tx *db.Tx, userID string) (row, error) {
	text := `SELECT ` + userColumns + ` FROM users WHERE id = $1`
	if !tx.OneWriter() {
		text += ` FOR NO KEY UPDATE`
	}
	return scanRow(tx.QueryRow(ctx, text, db.ID(userID)))
}

func getUser(ctx context.Context, r db.Reader, userID string) (User, error) {
	u, err := getRow(ctx, r, userID)
	return u.User, err
}

func byEmail(ctx context.Context, r db.Reader, email string) (row, error) {
	return scanRow(r.QueryRow(ctx, `SELECT `+userColumns+` FROM users WHERE email = $1`, email))
}

func listUsers(ctx context.Context, r db.Reader, after string, limit int) ([]User, error) {
	rows, err := r.Query(ctx, `SELECT `+userColumns+` FROM users WHERE id > $1 ORDER BY id LIMIT $2`,
		db.OrNoID(after), limit)
	all, err := db.Collect(rows, err, func(r db.Row) (User, error) {
		u, err := scanRow(r)
		return u.User, err
	})
	if err != nil {
		return nil, fmt.Errorf("list users: %w", err)
	}
	return all, nil
}

func insertUser(ctx context.Context, tx *db.Tx, u *Draft) {
	tx.Proof(`SELECT 1 FROM users WHERE id = $1`, db.ID(u.ID))
	tx.Queue(ctx, `INSERT INTO users (`+userColumns+`) VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8, 0)`,
		db.ID(u.ID), u.Email, u.Name, u.hash, false, []byte{}, u.handle, db.Micros(u.CreatedAt))
}

// setUser changes one column of a user. The column name must be a constant, because it becomes part of the SQL text.
func setUser(ctx context.Context, tx *db.Tx, userID, column string, value any) error {
	n, err := tx.Exec(ctx, `UPDATE users SET `+column+` = $2 WHERE id = $1`, db.ID(userID), value)
	if err != nil {
		return fmt.Errorf("change %s of user: %w", column, err)
	}
	if n == 0 {
		return fault.NotFoundf("User not found")
	}
	return nil
}

func deleteUser(ctx context.Context, tx *db.Tx, userID string) error {
	n, err := tx.Exec(ctx, `DELETE FROM users WHERE id = $1`, db.ID(userID))
	if err != nil {
		return fmt.Errorf("delete user: %w", err)
	}
	if n == 0 {
		return fault.NotFoundf("User not found")
	}
	return nil
}

func deleteTokens(ctx context.Context, tx *db.Tx, userID string) {
	tx.Queue(ctx, `DELETE FROM user_tokens WHERE kind = ANY($2) AND user_id = $1`, db.ID(userID), tokenKinds)
}

func setSignedIn(ctx context.Context, tx *db.Tx, userID string, at time.Time) {
	tx.Queue(ctx, `UPDATE users SET last_sign_in_at = $2 WHERE id = $1`, db.ID(userID), db.Micros(at))
}

// replacePassword replaces a user's password hash if the stored hash is still the given old one, and reports whether
// the hash was replaced.
func replacePassword(ctx context.Context, tx *db.Tx, userID, old, hash string) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE users SET password = $2 WHERE id = $1 AND password = $3`, db.ID(userID), hash, old)
	if err != nil {
		return false, fmt.Errorf("change a password: %w", err)
	}
	return n == 1, nil
}
