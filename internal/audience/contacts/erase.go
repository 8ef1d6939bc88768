package contacts

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// These names identify the counts in the report that EraseAddress returns.
const (
	erasedContacts = "contacts deleted"
	leftRefusals   = "contacts LEFT without their names, because they unsubscribed"
)

// EraseAddress deletes the contacts that have the given address. If the refusals parameter is false, a contact that is
// unsubscribed or has opted out of a topic keeps its address and these choices. Otherwise, the address could be mailed
// again. EraseAddress records no event, because the webhook for the event would contain the address.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope, refusals bool) (
	found erasure.Report, err error) {
	for teamIDs := range slices.Chunk(scope.Teams, eraseRows) {
		all, err := erasableContacts(ctx, d.Reader, teamIDs, a.Key())
		if err != nil {
			return found, fmt.Errorf("look for contacts with an address: %w", err)
		}
		for _, c := range all {
			kind, erase := erasedContacts, deleteContacts
			if c.refuses && !refusals {
				kind, erase = leftRefusals, deleteDetails
			}
			if kind == leftRefusals {
				found.Leave(kind, erasure.LeftKept, 1)
			} else {
				found.Add(kind, 1)
			}
			if scope.DryRun {
				continue
			}
			err := d.Update(ctx, func(tx *db.Tx) error { erase(ctx, tx, c.teamID, []string{c.id}); return nil })
			if err != nil {
				return found, fmt.Errorf("erase a contact: %w", err)
			}
		}
	}
	return found, nil
}
