// Package reseal seals the secrets in the database again after a rotation of the master key.
//
// # Invariants
//
// A row is changed only if its column still has the value that was read, so a secret that is replaced meanwhile is not
// overwritten. A transaction changes at most [step] rows. Run may be stopped at any instant and called again.
//
// # Failures
//
// A secret that no key of the keyring opens stays as it is, and Run counts it.
//
// # Out of scope
//
// The package does not know which columns hold secrets: the packages that own them do.
package reseal

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// step is the number of rows that are read and changed at once.
const step = 100

// Report says what Run has done.
type Report struct {
	Resealed int // secrets that are sealed with the current key now
	Lost     int // secrets that no key opens
}

// Run seals the secrets in the given columns with the current key of the keyring.
func Run(ctx context.Context, d *db.DB, k *keyring.Keyring, columns ...keyring.Column) (done Report, err error) {
	for _, c := range columns {
		for after := string(db.NoID); ; {
			rows, err := sealedRows(ctx, d.Reader, c, after)
			if err != nil {
				return done, fmt.Errorf("read %s of %s: %w", c.Name, c.Table, err)
			}
			if len(rows) == 0 {
				break
			}
			after = rows[len(rows)-1].id
			n, lost, err := again(ctx, d, k, c, rows)
			done.Resealed, done.Lost = done.Resealed+n, done.Lost+lost
			if err != nil {
				return done, fmt.Errorf("seal %s of %s again: %w", c.Name, c.Table, err)
			}
		}
	}
	return done, nil
}

// again seals some rows of a column again, in one transaction.
func again(ctx context.Context, d *db.DB, k *keyring.Keyring, c keyring.Column, rows []row) (n, lost int, err error) {
	var changed []row
	for _, r := range rows {
		sealed, err := k.Reseal(c.Purpose, r.sealed, []byte(r.id))
		switch {
		case errors.Is(err, keyring.ErrUnsealable):
			lost++
		case err != nil:
			return 0, lost, err
		case sealed != nil:
			changed = append(changed, row{r.id, r.sealed, sealed})
		}
	}
	if len(changed) == 0 {
		return 0, lost, nil
	}
	return len(changed), lost, d.Update(ctx, func(tx *db.Tx) error {
		replace(ctx, tx, c, changed)
		return nil
	})
}
