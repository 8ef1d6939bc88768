package segments

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// Count is the number of contacts that a segment had when it was counted. The zero Count means that the segment has not
// been counted yet.
type Count struct {
	Contacts int
	At       time.Time
}

// LastCount returns a segment's last saved count, or the zero Count if there is none.
func LastCount(ctx context.Context, r db.Reader, teamID, segmentID string) (c Count, err error) {
	var at int64
	err = r.QueryRow(ctx, `SELECT contacts, counted_at FROM segment_counts WHERE segment_id = $1 AND team_id = $2`,
		countKey(teamID, segmentID), db.ID(teamID)).Scan(&c.Contacts, &at)
	if errors.Is(err, db.ErrNoRows) {
		return c, nil
	}
	if err != nil {
		return c, fmt.Errorf("read the count of a segment: %w", err)
	}
	c.At = db.Time(at)
	return c, nil
}

// SaveCount saves the count for a segment or, for [AllContacts], for a team. SaveCount saves nothing if the segment was
// deleted or its filter was changed while the contacts were being counted.
func SaveCount(ctx context.Context, tx *db.Tx, g Segment, c Count) {
	from, args := `segments g WHERE g.id = $1 AND g.team_id = $2 AND g.deleted_at = 0 AND g.filter = $5`,
		[]any{countKey(g.TeamID, g.ID), db.ID(g.TeamID), c.Contacts, c.At.UnixMicro(), g.Filter}
	if g.IsAllContacts() {
		from, args = `teams g WHERE g.id = $2`, args[:4]
	}
	tx.Queue(ctx, `INSERT INTO segment_counts (segment_id, team_id, contacts, counted_at)
		SELECT $1, $2, CAST($3 AS BIGINT), CAST($4 AS BIGINT) FROM `+from+`
		ON CONFLICT (team_id, segment_id) DO UPDATE SET contacts = excluded.contacts, counted_at = excluded.counted_at`,
		args...)
}

// deleteCount deletes a segment's last count, so that the segment is counted again.
func deleteCount(ctx context.Context, tx *db.Tx, teamID, segmentID string) {
	tx.Queue(ctx, `DELETE FROM segment_counts WHERE segment_id = $1 AND team_id = $2`,
		countKey(teamID, segmentID), db.ID(teamID))
}

// countKey returns the value of the column segment_id for a segment: none if the segment is [AllContacts], whose id is
// the team's id.
func countKey(teamID, segmentID string) db.ID {
	if segmentID == teamID {
		return db.NoID
	}
	return db.ID(segmentID)
}

func eraseCounts(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM segment_counts WHERE team_id = $1 AND segment_id <= (SELECT segment_id FROM
			(SELECT segment_id FROM segment_counts WHERE team_id = $1 ORDER BY segment_id LIMIT $2) x
			ORDER BY segment_id DESC LIMIT 1)`, db.ID(teamID), eraseRows)
}
