package contacts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const segmentColumns = `g.id, g.team_id, g.name, g.filter, g.created_at`

func scanSegment(r db.Row) (g Segment, err error) {
	var created int64
	err = r.Scan(&g.ID, &g.TeamID, &g.Name, &g.Filter, &created)
	g.CreatedAt = db.Time(created)
	return g, err
}

func insertSegment(ctx context.Context, tx *db.Tx, g *Segment) {
	tx.Proof(`SELECT 1 FROM segments WHERE id = $1`, g.ID)
	tx.Queue(ctx, `INSERT INTO segments (id, team_id, name, filter, created_at, deleted_at)
		VALUES ($1, $2, $3, $4, $5, 0)`, g.ID, g.TeamID, g.Name, g.Filter, g.CreatedAt.UnixMicro())
}

// segmentByID takes the id as it was given.
func segmentByID(ctx context.Context, r db.Reader, teamID, segmentID string) (Segment, error) {
	if !id.Valid(segmentID) {
		return Segment{}, noSegment()
	}
	g, err := scanSegment(r.QueryRow(ctx, `SELECT `+segmentColumns+` FROM segments g WHERE g.id = $1 AND g.team_id = $2
		AND g.deleted_at = 0`, strings.ToLower(segmentID), teamID))
	if errors.Is(err, db.ErrNoRows) {
		return g, noSegment()
	}
	if err != nil {
		return g, fmt.Errorf("read segment: %w", err)
	}
	return g, nil
}

// lockSegment returns a segment and keeps other transactions from changing it until this one ends.
func lockSegment(ctx context.Context, tx *db.Tx, teamID, segmentID string) (Segment, error) {
	_, err := tx.Exec(ctx, `UPDATE segments SET name = name WHERE id = $1 AND team_id = $2`, strings.ToLower(segmentID),
		teamID)
	if err != nil {
		return Segment{}, fmt.Errorf("lock a segment: %w", err)
	}
	return segmentByID(ctx, tx.Reader, teamID, segmentID)
}

func updateSegment(ctx context.Context, tx *db.Tx, g *Segment) {
	tx.Queue(ctx, `UPDATE segments SET name = $3, filter = $4 WHERE id = $1 AND team_id = $2`, g.ID, g.TeamID, g.Name,
		g.Filter)
}

func listSegments(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Segment, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + segmentColumns + ` FROM segments g WHERE g.team_id = $1
		AND g.deleted_at = 0`, ID: "g.id", Args: []any{teamID}}, p, scanSegment)
}

func countSegments(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM segments WHERE team_id = $1 AND deleted_at = 0`, teamID).Scan(&n)
	return n, err
}

// segmentsAmong returns those of the ids that are segments of the team.
func segmentsAmong(ctx context.Context, r db.Reader, teamID string, ids []string) ([]Segment, error) {
	rows, err := r.Query(ctx, `SELECT `+segmentColumns+` FROM segments g WHERE g.id = ANY($1) AND g.team_id = $2
		AND g.deleted_at = 0`, ids, teamID)
	all, err := db.Collect(rows, err, scanSegment)
	if err != nil {
		return nil, fmt.Errorf("look for segments: %w", err)
	}
	return all, nil
}

// fromMemberships fixes the order of the join: a contact is in few segments, and a team may have many.
const fromMemberships = ` FROM contact_segments m CROSS JOIN segments g WHERE m.contact_id = $2 AND m.team_id = $1
	AND g.id = m.segment_id AND g.team_id = m.team_id AND g.deleted_at = 0`

// segmentIDsOf returns the segments that a contact was added to, the first one first.
func segmentIDsOf(ctx context.Context, r db.Reader, teamID, contactID string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT m.segment_id`+fromMemberships+` ORDER BY m.created_at, m.segment_id LIMIT $3`,
		teamID, contactID, MaxSegments)
	ids, err := db.Collect(rows, err, scanText)
	if err != nil {
		return nil, fmt.Errorf("read the segments of a contact: %w", err)
	}
	return ids, nil
}

func listMemberships(ctx context.Context, r db.Reader, teamID, contactID string, p page.Page) (
	[]Membership, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT m.created_at, ` + segmentColumns + fromMemberships,
		ID: "m.segment_id", Args: []any{teamID, contactID}}, p, func(r db.Row) (m Membership, err error) {
		var since, created int64
		err = r.Scan(&since, &m.ID, &m.TeamID, &m.Name, &m.Filter, &created)
		m.Since, m.CreatedAt = db.Time(since), db.Time(created)
		return m, err
	})
}

func addMember(ctx context.Context, tx *db.Tx, of *Contact, segmentID string) {
	tx.Queue(ctx, `INSERT INTO contact_segments (team_id, segment_id, contact_id, created_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (segment_id, contact_id) DO NOTHING`, of.TeamID, segmentID, of.ID, tx.Now().UnixMicro())
}

// removeMember reports whether the contact was in the segment.
func removeMember(ctx context.Context, tx *db.Tx, of *Contact, segmentID string) (was bool, err error) {
	n, err := tx.Exec(ctx, `DELETE FROM contact_segments WHERE segment_id = $1 AND contact_id = $2 AND team_id = $3`,
		segmentID, of.ID, of.TeamID)
	if err != nil {
		return false, fmt.Errorf("remove a contact from a segment: %w", err)
	}
	return n > 0, nil
}
