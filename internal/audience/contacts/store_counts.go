package contacts

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// countUpTo returns how many contacts a segment has that are added by hand, or a team when segmentID is "", but most at
// most. It does not name the team of a segment, which the index does not have.
func countUpTo(ctx context.Context, r db.Reader, teamID, segmentID string, most int) (n int, err error) {
	text, of := `SELECT 1 FROM contact_segments WHERE segment_id = $1`, segmentID
	if segmentID == "" {
		text, of = `SELECT 1 FROM contacts WHERE team_id = $1`, teamID
	}
	if err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (`+text+` LIMIT $2) x`, of, most).Scan(&n); err != nil {
		return 0, fmt.Errorf("count some contacts: %w", err)
	}
	return n, nil
}

func keptCount(ctx context.Context, r db.Reader, teamID, segmentID string) (c Count, err error) {
	var at int64
	err = r.QueryRow(ctx, `SELECT contacts, counted_at FROM segment_counts WHERE segment_id = $1 AND team_id = $2`,
		segmentID, teamID).Scan(&c.Contacts, &at)
	if errors.Is(err, db.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the count of a segment: %w", err)
	}
	c.At = db.Time(at)
	return c, nil
}

// keepCount keeps nothing of a segment or a team that was deleted meanwhile, or whose filter was changed.
func keepCount(ctx context.Context, tx *db.Tx, g Segment, c Count) {
	from, args := `segments g WHERE g.id = $1 AND g.team_id = $2 AND g.deleted_at = 0 AND g.filter = $5`,
		[]any{g.ID, g.TeamID, c.Contacts, c.At.UnixMicro(), g.Filter}
	if g.isAllContacts() {
		from, args = `teams g WHERE g.id = $1 AND g.id = $2`, args[:4]
	}
	tx.Queue(ctx, `INSERT INTO segment_counts (segment_id, team_id, contacts, counted_at)
		SELECT $1, $2, CAST($3 AS BIGINT), CAST($4 AS BIGINT) FROM `+from+`
		ON CONFLICT (segment_id) DO UPDATE SET contacts = excluded.contacts, counted_at = excluded.counted_at`, args...)
}

// forgetCount has a segment counted again.
func forgetCount(ctx context.Context, tx *db.Tx, teamID, segmentID string) {
	tx.Queue(ctx, `DELETE FROM segment_counts WHERE segment_id = $1 AND team_id = $2`, segmentID, teamID)
}
