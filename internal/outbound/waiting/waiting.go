// Package waiting counts what waits for the people of a team: emails that need approval, and webhook endpoints that
// fail. The navigation of the dashboard shows the counts on every page.
//
// # Invariants
//
// A count is one query by index. It reads at most [Most] approvals, and the endpoints of the team, which are few.
//
// # Out of scope
//
// Package waiting changes nothing and does not check permissions. The dashboard shows a count only to members who may
// open the page that it leads to.
package waiting

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

// Most is the number of approvals at which a count stops.
const Most = 100

// Counts are the numbers of things that wait for the people of a team.
type Counts struct {
	Approvals int64 // emails that wait for approval; at most Most
	Webhooks  int64 // enabled endpoints at which every known attempt fails
}

// Of returns how many approvals and failing webhooks wait for the people of a team.
func Of(ctx context.Context, d *db.DB, teamID string) (Counts, error) {
	return count(ctx, d.Reader, teamID, d.Now())
}
