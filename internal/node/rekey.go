package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/certs"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/reseal"
	"github.com/postrider/postrider/internal/sending/domainconnect"
	"github.com/postrider/postrider/internal/sending/domains"
)

// rekeyPause is the time between two attempts to seal all secrets again.
const rekeyPause = time.Minute

// rekey seals the secrets in the database again after a rotation of the master key, in the background. Until it has
// succeeded, nodes need the former key to start.
func (n *Node) rekey(ctx context.Context) error {
	for ctx.Err() == nil {
		err := n.Rekey(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			n.Log.Error("the secrets could not be sealed with the new secret key; trying again", "in", rekeyPause, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(rekeyPause):
		}
	}
	return nil
}

// Rekey seals the secrets in the database with the current master key, if this node has earlier ones. The new check
// value is stored when all of them are sealed.
//
// Each start repeats this, because another node may have gone on sealing with the former key until it was restarted. A
// node that still has the former key first does nothing after the rotation.
func (n *Node) Rekey(ctx context.Context) error {
	if len(n.Keys.Checks()) == 1 {
		return nil
	}
	former, err := n.DB.Fact(ctx, db.FactKeyCheck)
	if err != nil {
		return err
	}
	replaced, err := n.DB.Fact(ctx, db.FactEarlierKeys)
	if err != nil {
		return err
	}
	if slices.Contains(strings.Fields(replaced), n.Keys.Check()) {
		n.Log.Warn("this node still has the former secret key in the first place; put the new one first and restart it")
		return nil
	}
	done, err := reseal.Run(ctx, n.DB, n.Keys, slices.Concat(domains.Sealed, webhooks.Sealed, forwards.Sealed,
		grants.Sealed, users.Sealed, domainconnect.Sealed)...)
	if err != nil {
		return err
	}
	values, err := certs.Reseal(ctx, n.DB, n.Keys)
	if err != nil {
		return err
	}
	resealed, lost := done.Resealed+values.Resealed, done.Lost+values.Lost
	if former == n.Keys.Check() { // no rotation since the last start
		if resealed > 0 {
			n.Log.Info("secrets that other nodes had sealed with a former secret key are sealed with the current one",
				"secrets", resealed, "unreadable", lost)
		}
		return nil
	}
	err = n.DB.Update(ctx, func(tx *db.Tx) error {
		db.SetFact(ctx, tx, db.FactKeyCheck, n.Keys.Check())
		// A node that restarts later with other keys warns if it lacks one of these.
		db.SetFact(ctx, tx, db.FactEarlierKeys, strings.Join(n.Keys.Checks()[1:], " "))
		return nil
	})
	if err != nil {
		return fmt.Errorf("store the check value of the secret key: %w", err)
	}
	n.Log.Info("the secrets are sealed with the new secret key", "secrets", resealed, "unreadable", lost)
	return nil
}

// warnOfMissingKeys logs a warning if this node lacks an earlier master key of the installation.
func (n *Node) warnOfMissingKeys(ctx context.Context) error {
	earlier, err := n.DB.Fact(ctx, db.FactEarlierKeys)
	if err != nil {
		return err
	}
	missing := 0
	for _, check := range strings.Fields(earlier) {
		if !n.Keys.Matches(check) {
			missing++
		}
	}
	if missing > 0 {
		n.Log.Warn("earlier secret keys of this installation are missing: links, unsubscribe addresses and return paths "+
			"that were made with them do not work; put the keys after the current one into secret.key or secret_key",
			"missing", missing)
	}
	return nil
}
