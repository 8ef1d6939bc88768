package suppressions

import (
	"context"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Imported is an entry of the suppression list of another installation or product.
type Imported struct {
	Address string
	Origin  Origin
}

// ImportResult is what happened to an imported entry.
type ImportResult struct {
	Err      error       // the fault of an entry that was refused
	Existing Suppression // the team's entry for the address; zero if the import added it, or would add it
}

// Import adds entries in one transaction, and returns the results in their order. Addresses that are already suppressed
// keep their entries. Unlike Add, Import records no events, because a long list would cause as many webhook requests.
// If dry is set, Import only returns what it would do.
func (s *Service) Import(ctx context.Context, teamID string, entries []Imported, dry bool) ([]ImportResult, error) {
	results := make([]ImportResult, len(entries))
	keys := make([]string, len(entries))
	var addresses []string
	for i, e := range entries {
		if keys[i], results[i].Err = normal("email", e.Address); results[i].Err == nil {
			results[i].Err = e.Origin.check()
		}
		if results[i].Err == nil {
			addresses = append(addresses, keys[i])
		}
	}
	compare := func(r db.Reader) ([]int, error) {
		have, err := s.Suppressed(ctx, r, teamID, addresses)
		var missing []int
		for i := range entries {
			if results[i].Err != nil {
				continue
			}
			found, ok := have[keys[i]]
			if results[i].Existing = found; !ok {
				missing = append(missing, i)
				have[keys[i]] = Suppression{TeamID: teamID, Address: keys[i], Origin: entries[i].Origin}
			}
		}
		return missing, err
	}
	if dry {
		_, err := compare(s.d.Reader)
		return results, err
	}
	err := s.d.Update(ctx, func(tx *db.Tx) error {
		missing, err := compare(tx.Reader)
		if err != nil {
			return err
		}
		fresh := make([]Suppression, len(missing))
		for k, i := range missing {
			fresh[k] = Suppression{ID: id.At(tx.Now()), TeamID: teamID, Address: keys[i], Origin: entries[i].Origin,
				CreatedAt: tx.Now()}
		}
		insertAll(ctx, tx, teamID, fresh)
		return nil
	})
	return results, err
}
