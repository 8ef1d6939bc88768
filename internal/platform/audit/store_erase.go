package audit

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// erasableTexts are the texts in which an erasure replaces an address. Details contain texts that people wrote, such as
// the reason for rejecting an email.
var erasableTexts = erasure.Texts{Kind: "entries of the audit log in which it was replaced", Table: "audit_log",
	Columns: []string{"detail", "user_agent"}}

// keptTexts are the names of actors, which an erasure counts but does not change.
var keptTexts = erasure.Texts{Kind: "entries of the audit log LEFT: they name the person who acted, as evidence",
	Table: "audit_log", Columns: []string{"actor_name"}, Keep: true}

// EraseAddress replaces an address in the details of the audit log. Entries of a user with this address keep the
// address as the name of their actor, because the audit log must say who changed the team's data. EraseAddress counts
// these entries. If the scope is all teams, EraseAddress also reads the entries without a team.
func EraseAddress(ctx context.Context, d *db.DB, a erasure.Address, scope erasure.Scope) (erasure.Report, error) {
	if scope.All {
		scope.Teams = append(slices.Clone(scope.Teams), "")
	}
	found, err := erasableTexts.Erase(ctx, d, a, scope)
	if err != nil {
		return found, err
	}
	kept, err := keptTexts.Erase(ctx, d, a, scope)
	found.Merge(kept)
	return found, err
}
