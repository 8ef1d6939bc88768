package receiving

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

const batchRows = 2000 // maximum number of emails per batch

// listBatchFrom reads a batch of a team's received emails and returns those that may be from an address.
func listBatchFrom(ctx context.Context, r db.Reader, teamID string, a erasure.Address, after string) ([]Email, string,
	error) {
	all := page.Select{Text: `SELECT ` + columns + ` FROM received_emails WHERE team_id = $1`, ID: "id",
		Args: []any{db.ID(teamID)}}
	from := page.Select{Text: all.Text + ` AND ` + erasure.MayContain(2, "sender", "origin"), ID: "id",
		Args: []any{db.ID(teamID), a.Pattern()}}
	return page.Part(ctx, r, all, from, after, batchRows, scanEmail, func(e Email) string { return e.ID })
}
