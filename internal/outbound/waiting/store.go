package waiting

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

func count(ctx context.Context, r db.Reader, teamID string, now time.Time) (c Counts, err error) {
	err = r.QueryRow(ctx, `SELECT
		(SELECT COUNT(*) FROM (SELECT 1 FROM approvals WHERE team_id = $1 AND state = 'pending' AND expires_at > $2
			LIMIT $3) a),
		(SELECT COUNT(*) FROM webhooks WHERE team_id = $1 AND status = 'enabled' AND failing_since > 0)`,
		db.ID(teamID), now.UnixMicro(), Most).Scan(&c.Approvals, &c.Webhooks)
	if err != nil {
		return c, fmt.Errorf("count what waits for team %s: %w", teamID, err)
	}
	return c, nil
}
