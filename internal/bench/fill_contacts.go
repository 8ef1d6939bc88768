package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/platform/db"
)

// contactsBatch is the number of contacts that one transaction inserts.
const contactsBatch = 10_000

// fillContacts adds contacts to a store, without events. The n-th team has a share of the contacts that is proportional
// to 1/n, as it has of the emails. The addresses are those of recipients of the filled emails.
func (b *measurement) fillContacts(ctx context.Context, c config.Config) error {
	n, err := b.openHere(ctx, c)
	if err != nil {
		return err
	}
	defer n.Close()
	f := filler{b: b, n: n}
	if err := f.makeTeams(ctx); err != nil {
		return err
	}
	began, random := time.Now(), rand.New(rand.NewPCG(3, 4))
	first := n.DB.Now().AddDate(0, 0, -b.days)
	for from := 0; from < b.contacts; from += contactsBatch {
		var rows contactRows
		for i := from; i < min(from+contactsBatch, b.contacts); i++ {
			at := first.Add(time.Duration(float64(i) / float64(b.contacts) * float64(n.DB.Now().Sub(first))))
			rows.add(idAt(random, at), f.pick(random).teamID, i, at)
		}
		if err := n.DB.Update(ctx, func(tx *db.Tx) error {
			notDurable(ctx, tx)
			rows.insert(ctx, tx)
			return nil
		}); err != nil {
			return fmt.Errorf("insert the contacts from number %d on: %w", from, err)
		}
	}
	if err := analyze(ctx, n.DB, "contacts"); err != nil {
		return fmt.Errorf("gather statistics of the contacts: %w", err)
	}
	b.say("contacts                    %8.0f /s   %d", float64(b.contacts)/time.Since(began).Seconds(), b.contacts)
	return nil
}
