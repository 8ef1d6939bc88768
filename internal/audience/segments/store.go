package segments

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

const segmentColumns = `g.id, g.team_id, g.name, g.filter, g.created_at`

func scanSegment(r db.Row) (g Segment, err error) {
	var created int64
	err = r.Scan((*db.ID)(&g.ID), (*db.ID)(&g.TeamID), &g.Name, &g.Filter, &created)
	g.CreatedAt = db.Time(created)
	return g, err
}

func insertSegment(ctx context.Context, tx *db.Tx, g *Segment) {
	tx.Proof(`SELECT 1 FROM segments WHERE id = $1`, db.ID(g.ID))
	tx.Queue(ctx, `INSERT INTO segments (id, team_id, name, filter, created_at, deleted_at)
		VALUES ($1, $2, $3, $4, $5, 0)`, db.ID(g.ID), db.ID(g.TeamID), g.Name, g.Filter, g.CreatedAt.UnixMicro())
}

// ByID returns a segment, or a NotFound fault. The id may be in upper case. If the id is not valid, ByID also returns a
// NotFound fault.
func ByID(ctx context.Context, r db.Reader, teamID, segmentID string) (Segment, error) {
	if !id.Valid(segmentID) {
		return Segment{}, notFound()
	}
	g, err := scanSegment(r.QueryRow(ctx, `SELECT `+segmentColumns+` FROM segments g WHERE g.id = $1 AND g.team_id = $2
		AND g.deleted_at = 0`, db.ID(segmentID), db.ID(teamID)))
	if errors.Is(err, db.ErrNoRows) {
		return g, notFound()
	}
	if err != nil {
		return g, fmt.Errorf("read segment: %w", err)
	}
	return g, nil
}

// lockSegment returns a segment and locks its row until the transaction ends.
func lockSegment(ctx context.Context, tx *db.Tx, teamID, segmentID string) (Segment, error) {
	if !id.Valid(segmentID) {
		return Segment{}, notFound()
	}
	_, err := tx.Exec(ctx, `UPDATE segments SET name = name WHERE id = $1 AND team_id = $2`, db.ID(segmentID),
		db.ID(teamID))
	if err != nil {
		return Segment{}, fmt.Errorf("lock a segment: %w", err)
	}
	return ByID(ctx, tx.Reader, teamID, segmentID)
}

func updateSegment(ctx context.Context, tx *db.Tx, g *Segment) {
	tx.Queue(ctx, `UPDATE segments SET name = $3, filter = $4 WHERE id = $1 AND team_id = $2`, db.ID(g.ID),
		db.ID(g.TeamID), g.Name, g.Filter)
}

func listSegments(ctx context.Context, r db.Reader, teamID string, p page.Page) ([]Segment, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT ` + segmentColumns + ` FROM segments g WHERE g.team_id = $1
		AND g.deleted_at = 0`, ID: "g.id", Args: []any{db.ID(teamID)}}, p, scanSegment)
}

func countSegments(ctx context.Context, r db.Reader, teamID string) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM segments WHERE team_id = $1 AND deleted_at = 0`, db.ID(teamID)).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count segments: %w", err)
	}
	return n, nil
}

// segmentsAmong returns the team's segments that have one of the given ids.
func segmentsAmong(ctx context.Context, r db.Reader, teamID string, ids []string) ([]Segment, error) {
	rows, err := r.Query(ctx, `SELECT `+segmentColumns+` FROM segments g WHERE g.id = ANY($1) AND g.team_id = $2
		AND g.deleted_at = 0`, db.IDs(ids), db.ID(teamID))
	all, err := db.Collect(rows, err, scanSegment)
	if err != nil {
		return nil, fmt.Errorf("look for segments: %w", err)
	}
	return all, nil
}

// fromMemberships is the FROM clause for queries that read a contact's memberships. CROSS JOIN makes SQLite read the
// memberships first, because a contact is usually in few segments but a team may have many.
const fromMemberships = ` FROM contact_segments m CROSS JOIN segments g WHERE m.contact_id = $2 AND m.team_id = $1
	AND g.id = m.segment_id AND g.team_id = m.team_id AND g.deleted_at = 0`

// IDsOf returns the ids of the segments that a contact was added to, oldest membership first.
func IDsOf(ctx context.Context, r db.Reader, teamID, contactID string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT m.segment_id`+fromMemberships+` ORDER BY m.created_at, m.segment_id LIMIT $3`,
		db.ID(teamID), db.ID(contactID), Max)
	ids, err := db.Collect(rows, err, scanID)
	if err != nil {
		return nil, fmt.Errorf("read the segments of a contact: %w", err)
	}
	return ids, nil
}

func listMemberships(ctx context.Context, r db.Reader, teamID, contactID string, p page.Page) (
	[]Membership, bool, error) {
	return page.Query(ctx, r, page.Select{Text: `SELECT m.created_at, ` + segmentColumns + fromMemberships,
		ID: "m.segment_id", Args: []any{db.ID(teamID), db.ID(contactID)}}, p, func(r db.Row) (m Membership,
		err error) {
		var since, created int64
		err = r.Scan(&since, (*db.ID)(&m.ID), (*db.ID)(&m.TeamID), &m.Name, &m.Filter, &created)
		m.Since, m.CreatedAt = db.Time(since), db.Time(created)
		return m, err
	})
}

// AddMember adds a contact to a segment. If the contact is already in the segment, nothing changes.
func AddMember(ctx context.Context, tx *db.Tx, teamID, segmentID, contactID string) {
	tx.Queue(ctx, `INSERT INTO contact_segments (team_id, segment_id, contact_id, created_at) VALUES ($1, $2, $3, $4)
		ON CONFLICT (segment_id, contact_id) DO NOTHING`, db.ID(teamID), db.ID(segmentID), db.ID(contactID),
		tx.Now().UnixMicro())
}

// RemoveMember removes a contact from a segment, and reports whether it was in the segment.
func RemoveMember(ctx context.Context, tx *db.Tx, teamID, segmentID, contactID string) (was bool, err error) {
	n, err := tx.Exec(ctx, `DELETE FROM contact_segments WHERE segment_id = $1 AND contact_id = $2 AND team_id = $3`,
		db.ID(segmentID), db.ID(contactID), db.ID(teamID))
	if err != nil {
		return false, fmt.Errorf("remove a contact from a segment: %w", err)
	}
	return n > 0, nil
}

// MembersAmong returns those of the given contacts that are in the segment, as a set of ids.
func MembersAmong(ctx context.Context, r db.Reader, teamID, segmentID string, contactIDs []string) (map[string]bool,
	error) {
	if len(contactIDs) == 0 {
		return nil, nil
	}
	found := map[string]bool{}
	rows, err := r.Query(ctx, `SELECT contact_id FROM contact_segments WHERE segment_id = $2 AND contact_id = ANY($3)
		AND team_id = $1`, db.ID(teamID), db.ID(segmentID), db.IDs(contactIDs))
	all, err := db.Collect(rows, err, scanID)
	if err != nil {
		return nil, fmt.Errorf("read members of a segment: %w", err)
	}
	for _, contactID := range all {
		found[contactID] = true
	}
	return found, nil
}

// AddMembers adds contacts to a segment. Contacts that are already in the segment are skipped.
func AddMembers(ctx context.Context, tx *db.Tx, teamID, segmentID string, contactIDs []string) {
	if len(contactIDs) > 0 {
		tx.QueueRows(ctx, `contact_segments (team_id, segment_id, contact_id, created_at)`,
			`ON CONFLICT (segment_id, contact_id) DO NOTHING`, db.ID(teamID), db.ID(segmentID), db.IDs(contactIDs),
			tx.Now().UnixMicro())
	}
}

// MemberOf returns those of the given segments that a contact was added to.
func MemberOf(ctx context.Context, r db.Reader, teamID, contactID string, segmentIDs []string) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT segment_id FROM contact_segments WHERE contact_id = $1 AND segment_id = ANY($2)
		AND team_id = $3`, db.ID(contactID), db.IDs(segmentIDs), db.ID(teamID))
	found, err := db.Collect(rows, err, scanID)
	if err != nil {
		return nil, fmt.Errorf("read the segments of a contact: %w", err)
	}
	return found, nil
}

// HaveFilters returns a map whose keys are those of the given ids that belong to segments of the team. Each map value
// says whether the segment has a filter.
func HaveFilters(ctx context.Context, r db.Reader, teamID string, segmentIDs []string) (map[string]bool, error) {
	if len(segmentIDs) == 0 {
		return nil, nil
	}
	rows, err := r.Query(ctx, `SELECT id, filter <> '' FROM segments WHERE id = ANY($1) AND team_id = $2
		AND deleted_at = 0`, db.IDs(id.OnlyValid(segmentIDs)), db.ID(teamID))
	found := map[string]bool{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var segmentID string
		var filtered bool
		err = r.Scan((*db.ID)(&segmentID), &filtered)
		found[segmentID] = filtered
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("look up the segments of a filter: %w", err)
	}
	return found, nil
}

// membershipPair is a contact and a segment that the contact was added to.
type membershipPair struct{ contactID, segmentID string }

// membershipPairs returns the given contacts' memberships, sorted by contact id and then by age, oldest first.
func membershipPairs(ctx context.Context, r db.Reader, teamID string, contactIDs []string) ([]membershipPair, error) {
	rows, err := r.Query(ctx, `SELECT m.contact_id, m.segment_id FROM contact_segments m WHERE m.contact_id = ANY($1)
		AND m.team_id = $2 ORDER BY m.contact_id, m.created_at, m.segment_id`, db.IDs(contactIDs), db.ID(teamID))
	all, err := db.Collect(rows, err, func(r db.Row) (p membershipPair, err error) {
		err = r.Scan((*db.ID)(&p.contactID), (*db.ID)(&p.segmentID))
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the segments of contacts: %w", err)
	}
	return all, nil
}

const eraseRows = 500 // rows deleted per transaction

func eraseSegments(ctx context.Context, tx *db.Tx, teamID string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM segments WHERE team_id = $1 AND id <= (SELECT id FROM
			(SELECT id FROM segments WHERE team_id = $1 ORDER BY id LIMIT $2) x ORDER BY id DESC LIMIT 1)`, db.ID(teamID),
		eraseRows)
}

func scanID(r db.Row) (id string, err error) {
	err = r.Scan((*db.ID)(&id))
	return id, err
}

// ErasableTexts are the texts of segments in which an erasure replaces an address.
var ErasableTexts = erasure.Texts{Kind: "names of segments in which it was replaced", Table: "segments",
	Columns: []string{"name"}}
