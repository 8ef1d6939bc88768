package users

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// countForms counts the kept forms, also those that have expired but are not deleted yet. The count stops at most.
func countForms(ctx context.Context, r db.Reader, most int) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM user_kept_forms LIMIT $1) x`, most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count kept forms: %w", err)
	}
	return n, nil
}

func insertForm(ctx context.Context, tx *db.Tx, f *KeptForm, hash string, expires time.Time) {
	tx.Proof(`SELECT 1 FROM user_kept_forms WHERE hash = $1`, hash)
	tx.Queue(ctx, `INSERT INTO user_kept_forms (hash, page, action, form, expires_at) VALUES ($1, $2, $3, $4, $5)`, hash,
		f.Page, f.Action, f.Form, db.Micros(expires))
}

// takeForm deletes a form and returns it, or returns false if the page has no such form or the form has expired.
func takeForm(ctx context.Context, tx *db.Tx, hash, page string, now time.Time) (f KeptForm, ok bool, err error) {
	err = tx.QueryRow(ctx, `DELETE FROM user_kept_forms WHERE hash = $1 AND page = $2 AND expires_at > $3
		RETURNING page, action, form`, hash, page, db.Micros(now)).Scan(&f.Page, &f.Action, &f.Form)
	if errors.Is(err, db.ErrNoRows) {
		return KeptForm{}, false, nil
	}
	if err != nil {
		return KeptForm{}, false, fmt.Errorf("take a kept form: %w", err)
	}
	return f, true, nil
}

func deleteOldForms(ctx context.Context, tx *db.Tx, before time.Time, most int) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM user_kept_forms WHERE hash IN
		(SELECT hash FROM user_kept_forms WHERE expires_at < $1 ORDER BY expires_at LIMIT $2)`, db.Micros(before), most)
}
