package certs

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/reseal"
)

// Reseal seals all values with the current master key after a rotation. Values whose key is lost are counted; nodes then
// request new certificates. Package reseal does the same for columns of rows with an id.
func Reseal(ctx context.Context, d *db.DB, keys *keyring.Keyring) (done reseal.Report, err error) {
	for after := ""; ; {
		rows, err := sealedValues(ctx, d.Reader, after)
		if err != nil || len(rows) == 0 {
			return done, err
		}
		after = rows[len(rows)-1].path
		var changed []sealedValue
		for _, r := range rows {
			again, err := keys.Reseal(purpose, r.sealed, []byte(r.path))
			switch {
			case errors.Is(err, keyring.ErrUnsealable):
				done.Lost++
			case err != nil:
				return done, fmt.Errorf("seal %s again: %w", r.path, err)
			case again != nil:
				changed = append(changed, sealedValue{r.path, r.sealed, again})
			}
		}
		if err := replaceSealed(ctx, d, changed); err != nil {
			return done, err
		}
		done.Resealed += len(changed)
	}
}
