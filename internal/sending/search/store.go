package search

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/termindex"
)

// segmentState is the state of a segment of the search index, as the column email_terms.state has it.
type segmentState int16

const (
	segmentNew      segmentState = 0 // emails that were committed late may be missing
	segmentChecked  segmentState = 1
	segmentBroken   segmentState = 2 // an email of it was changed or erased; searches read the emails instead
	segmentBuilding segmentState = 3 // not complete; searches ignore it
	segmentDead     segmentState = 4 // replaced by another segment; searches ignore it
)

// segment is the header of a segment of a team's search index. It covers all emails with ids from the first to the last
// one.
type segment struct {
	last, from string
	gen        int16
	emails     int
	state      segmentState
}

const selectSegments = `SELECT s.last_id, s.from_id, s.gen, s.emails, s.state FROM email_terms s
	WHERE s.team_id = $1 AND s.from_id IS NOT NULL`

func scanSegment(r db.Row) (g segment, err error) {
	err = r.Scan((*db.ID)(&g.last), (*db.ID)(&g.from), &g.gen, &g.emails, &g.state)
	return g, err
}

// segmentsPage returns a page of the segments that searches use, newest first.
func segmentsPage(ctx context.Context, d *db.DB, teamID string, p page.Page) ([]segment, bool, error) {
	return page.Query(ctx, d.Reader, page.Select{Text: selectSegments + ` AND s.state <= 2`, ID: "s.last_id",
		InSpans: !d.Alone(), Args: []any{db.ID(teamID)}}, p, scanSegment)
}

// newestSegment returns the newest segment that covers emails. It returns false if there is none.
func newestSegment(ctx context.Context, r db.Reader, teamID string) (g segment, ok bool, err error) {
	g, err = scanSegment(r.QueryRow(ctx, selectSegments+` AND s.state <= 2 ORDER BY s.last_id DESC LIMIT 1`,
		db.ID(teamID)))
	if errors.Is(err, db.ErrNoRows) {
		return g, false, nil
	}
	return g, err == nil, err
}

// openSegments returns the oldest segments that the job has not finished.
func openSegments(ctx context.Context, r db.Reader, teamID string, limit int) ([]segment, error) {
	rows, err := r.Query(ctx, selectSegments+` AND s.state <> 1 ORDER BY s.last_id LIMIT $2`, db.ID(teamID), limit)
	return db.Collect(rows, err, scanSegment)
}

// insertSegment inserts the header of a segment.
func insertSegment(ctx context.Context, tx *db.Tx, teamID string, g segment) {
	tx.Queue(ctx, `INSERT INTO email_terms (team_id, last_id, gen, term, from_id, emails, state, data)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $4)`, db.ID(teamID), db.ID(g.last), g.gen, []byte{}, db.ID(g.from), g.emails,
		g.state)
}

// insertTerms inserts rows of a segment.
func insertTerms(ctx context.Context, tx *db.Tx, teamID string, g segment, rows []termindex.Row) {
	if len(rows) == 0 {
		return
	}
	keys, data := make([][]byte, len(rows)), make([][]byte, len(rows))
	for i, r := range rows {
		keys[i], data[i] = r.Key, r.Data
	}
	tx.QueueRows(ctx, `email_terms (team_id, last_id, gen, term, data)`, "", db.ID(teamID), db.ID(g.last), int64(g.gen),
		keys, data)
}

// setSegmentState changes the state of a segment, and returns false if the segment does not have the state that it was
// read with.
func setSegmentState(ctx context.Context, tx *db.Tx, teamID string, g segment, state segmentState) (bool, error) {
	n, err := tx.Exec(ctx, `UPDATE email_terms SET state = $5 WHERE team_id = $1 AND last_id = $2 AND gen = $3
		AND term = $6 AND state = $4`, db.ID(teamID), db.ID(g.last), g.gen, g.state, state, []byte{})
	return n == 1, err
}

// holdSegment makes the transaction fail with errReplaced unless a segment is being written.
func holdSegment(ctx context.Context, tx *db.Tx, teamID string, g segment) {
	finishSegment(ctx, tx, teamID, g, g.emails, segmentBuilding)
}

// finishSegment sets the state and the number of emails of a segment. If the segment is no longer being written, the
// transaction fails with errReplaced.
func finishSegment(ctx context.Context, tx *db.Tx, teamID string, g segment, emails int, state segmentState) {
	tx.QueueOne(ctx, errReplaced, fmt.Sprintf(`UPDATE email_terms SET state = $4, emails = $5 WHERE team_id = $1
		AND last_id = $2 AND gen = $3 AND term = $6 AND state = %d`, segmentBuilding), db.ID(teamID), db.ID(g.last), g.gen,
		state, emails, []byte{})
}

// nextGen returns a gen that no row of a segment with the given last email has.
func nextGen(ctx context.Context, r db.Reader, teamID, last string) (gen int16, err error) {
	err = r.QueryRow(ctx, `SELECT gen FROM email_terms WHERE team_id = $1 AND last_id = $2 ORDER BY gen DESC LIMIT 1`,
		db.ID(teamID), db.ID(last)).Scan(&gen)
	if errors.Is(err, db.ErrNoRows) {
		return 0, nil
	}
	return gen + 1, err
}

// coveringSegments is a query for the segments of team $1 that cover the email $2. No segment ends after the day that
// follows the email's, which ends before $3.
const coveringSegments = `SELECT last_id, gen, from_id, emails, state FROM email_terms WHERE team_id = $1
	AND from_id IS NOT NULL AND last_id >= $2 AND last_id < $3 ORDER BY last_id, gen LIMIT 2000`

// coveringEnd returns the argument $3 of coveringSegments.
func coveringEnd(emailID string) string {
	return id.First(time.Unix((dayOf(emailID)+2)*secondsPerDay, 0))
}

// Break makes the segments unusable that cover an email, because the transaction changes or deletes it. Searches
// read the emails of these segments instead, until the job has built them again. Segments that are being written are
// given up.
func Break(ctx context.Context, tx *db.Tx, teamID, emailID string) error {
	if err := lockIndex(ctx, tx, teamID); err != nil {
		return fmt.Errorf("lock the search index: %w", err)
	}
	tx.Queue(ctx, fmt.Sprintf(`UPDATE email_terms SET state = CASE WHEN state = %[3]d THEN %[4]d ELSE %[1]d END
		WHERE team_id = $1 AND term = $4 AND state IN (%[5]d, %[2]d, %[3]d) AND (last_id, gen) IN
		(SELECT s.last_id, s.gen FROM (`+coveringSegments+`) s WHERE s.from_id <= $2)`, segmentBroken, segmentChecked,
		segmentBuilding, segmentDead, segmentNew), db.ID(teamID), db.ID(emailID), db.ID(coveringEnd(emailID)), []byte{})
	return nil
}

// brokenSegments returns the broken and dead segments that cover an email.
func brokenSegments(ctx context.Context, r db.Reader, teamID, emailID string) ([]segment, error) {
	rows, err := r.Query(ctx, fmt.Sprintf(`SELECT s.last_id, s.from_id, s.gen, s.emails, s.state FROM (`+
		coveringSegments+`) s WHERE s.from_id <= $2 AND s.state IN (%d, %d)`, segmentBroken, segmentDead), db.ID(teamID),
		db.ID(emailID), db.ID(coveringEnd(emailID)))
	return db.Collect(rows, err, scanSegment)
}

// deleteTerms deletes a batch of the rows of a segment in the order of their terms, except for the header, and returns
// their number.
func deleteTerms(ctx context.Context, tx *db.Tx, teamID string, g segment) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM email_terms WHERE team_id = $1 AND last_id = $2 AND gen = $3 AND term > $5
		AND term <= (SELECT x.term FROM (SELECT term FROM email_terms WHERE team_id = $1 AND last_id = $2 AND gen = $3
			AND term > $5 ORDER BY term LIMIT $4) x ORDER BY x.term DESC LIMIT 1)`, db.ID(teamID), db.ID(g.last), g.gen,
		termRows, []byte{})
}

// deleteSegment deletes the header of a segment.
func deleteSegment(ctx context.Context, tx *db.Tx, teamID string, g segment) {
	tx.Queue(ctx, `DELETE FROM email_terms WHERE team_id = $1 AND last_id = $2 AND gen = $3 AND term = $4`,
		db.ID(teamID), db.ID(g.last), g.gen, []byte{})
}

// deleteOldTerms deletes a batch of the segments that end before an id, oldest first, and returns the number of rows.
func deleteOldTerms(ctx context.Context, tx *db.Tx, teamID, before string) (int64, error) {
	return tx.Exec(ctx, `DELETE FROM email_terms WHERE team_id = $1 AND (last_id, gen, term) IN (SELECT last_id, gen, term
		FROM email_terms WHERE team_id = $1 AND last_id < $2 ORDER BY last_id, gen, term LIMIT $3)`, db.ID(teamID),
		db.ID(before), termRows)
}

// allTerms returns all rows of a segment, except for the header.
func allTerms(ctx context.Context, r db.Reader, teamID string, g segment) ([]termindex.Row, error) {
	rows, err := r.Query(ctx, `SELECT term, data FROM email_terms WHERE team_id = $1 AND last_id = $2 AND gen = $3
		AND term > $4 ORDER BY term`, db.ID(teamID), db.ID(g.last), g.gen, []byte{})
	return db.Collect(rows, err, func(r db.Row) (t termindex.Row, err error) { return t, r.Scan(&t.Key, &t.Data) })
}

// termRow is a row of a segment, which is named by its index in a list of segments.
type termRow struct {
	at int
	termindex.Row
}

// termsIn returns the rows of several segments that may have terms in a range, which includes from but not to. For each
// segment, these are the last row whose key is not greater than from, and all rows up to the end of the range.
func termsIn(ctx context.Context, d *db.DB, teamID string, some []segment, from, to string) (all []termRow, err error) {
	const range1 = `b.term >= COALESCE((SELECT c.term FROM email_terms c WHERE c.team_id = $1 AND c.last_id = %[1]s
		AND c.gen = %[2]s AND c.term <= %[3]s%[5]s ORDER BY c.term DESC LIMIT 1), %[3]s) AND b.term < %[4]s`
	if !d.Alone() {
		lo, hi, ids, gens := segmentKeys(some)
		const within = ` AND %[1]s.last_id >= $6 AND %[1]s.last_id <= $7`
		rows, err := d.Query(ctx, `SELECT s.n, t.term, t.data FROM UNNEST(CAST($2 AS UUID[]), CAST($3 AS SMALLINT[]))
			WITH ORDINALITY AS s (last_id, gen, n), LATERAL (SELECT b.term, b.data FROM email_terms b WHERE b.team_id = $1
			AND b.last_id = s.last_id AND b.gen = s.gen`+fmt.Sprintf(within, "b")+` AND `+fmt.Sprintf(range1, "s.last_id",
			"s.gen", "$4", "$5", fmt.Sprintf(within, "c"))+` ORDER BY b.term) t`, db.ID(teamID), ids, gens, []byte(from),
			[]byte(to), lo, hi)
		return db.Collect(rows, err, scanTermRow)
	}
	text := `SELECT CAST($6 AS BIGINT), b.term, b.data FROM email_terms b WHERE b.team_id = $1 AND b.last_id = $2
		AND b.gen = $3 AND ` + fmt.Sprintf(range1, "$2", "$3", "$4", "$5", "") + ` ORDER BY b.term`
	for i, g := range some {
		rows, err := d.Query(ctx, text, db.ID(teamID), db.ID(g.last), g.gen, []byte(from), []byte(to), i+1)
		found, err := db.Collect(rows, err, scanTermRow)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

func segmentKeys(some []segment) (lo, hi db.ID, ids []db.ID, gens []int16) {
	for _, g := range some {
		id := db.ID(g.last)
		if lo == "" || id < lo {
			lo = id
		}
		hi = max(hi, id)
		ids, gens = append(ids, id), append(gens, g.gen)
	}
	return lo, hi, ids, gens
}

func scanTermRow(r db.Row) (t termRow, err error) {
	err = r.Scan(&t.at, &t.Key, &t.Data)
	t.at--
	return t, err
}

// idRows returns rows with the ids of emails: for each of the segments, the row with the key in the same place.
func idRows(ctx context.Context, d *db.DB, teamID string, some []segment, keys [][]byte) (all []termRow, err error) {
	if !d.Alone() {
		lo, hi, ids, gens := segmentKeys(some)
		rows, err := d.Query(ctx, `SELECT s.n, t.term, t.data FROM UNNEST(CAST($2 AS UUID[]), CAST($3 AS SMALLINT[]),
			CAST($4 AS BYTEA[])) WITH ORDINALITY AS s (last_id, gen, term, n), LATERAL (SELECT b.term, b.data
			FROM email_terms b WHERE b.team_id = $1 AND b.last_id = s.last_id AND b.gen = s.gen AND b.term = s.term
			AND b.last_id >= $5 AND b.last_id <= $6 LIMIT 1) t`, db.ID(teamID), ids, gens, keys, lo, hi)
		return db.Collect(rows, err, scanTermRow)
	}
	for i, g := range some {
		rows, err := d.Query(ctx, `SELECT CAST($5 AS BIGINT), b.term, b.data FROM email_terms b WHERE b.team_id = $1
			AND b.last_id = $2 AND b.gen = $3 AND b.term = $4`, db.ID(teamID), db.ID(g.last), g.gen, keys[i], i+1)
		found, err := db.Collect(rows, err, scanTermRow)
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// idsBetween returns the ids of up to limit of a team's emails that are greater than after and less than before, in
// order.
func idsBetween(ctx context.Context, r db.Reader, teamID, after, before string, limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT e.id FROM emails e WHERE e.team_id = $1 AND e.id > $2 AND e.id < $3
		ORDER BY e.id LIMIT $4`, db.ID(teamID), db.OrNoID(after), db.ID(before), limit)
	return db.Collect(rows, err, func(r db.Row) (emailID string, err error) {
		return emailID, r.Scan((*db.ID)(&emailID))
	})
}

// countBetween counts a team's emails with ids from one to another, which it includes, up to a limit.
func countBetween(ctx context.Context, r db.Reader, teamID, from, last string, limit int) (n int, err error) {
	err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM emails e WHERE e.team_id = $1 AND e.id >= $2
		AND e.id <= $3 LIMIT $4) x`, db.ID(teamID), db.ID(from), db.ID(last), limit).Scan(&n)
	return n, err
}

// indexedTeam is a team whose search index may need work.
type indexedTeam struct {
	id    string
	short int64
	work  bool
}

// teamsToIndex returns up to limit teams whose short ids are greater than after and at most last, in the order of these
// ids. A team has work if a segment is open, or if an email before the given id is not in the index.
func teamsToIndex(ctx context.Context, r db.Reader, after, last int64, before string, limit int) ([]indexedTeam,
	error) {
	rows, err := r.Query(ctx, `SELECT t.id, t.short_id,
		EXISTS (SELECT 1 FROM email_terms o WHERE o.team_id = t.id AND o.state <> 1)
		OR EXISTS (SELECT 1 FROM emails e WHERE e.team_id = t.id AND e.id < $3 AND e.id > COALESCE((SELECT s.last_id
			FROM email_terms s WHERE s.team_id = t.id AND s.from_id IS NOT NULL ORDER BY s.last_id DESC LIMIT 1), $5))
		FROM (SELECT id, short_id FROM teams WHERE short_id > $1 AND short_id <= $2 AND deleted_at = 0
			ORDER BY short_id LIMIT $4) t ORDER BY t.short_id`, after, last, db.ID(before), limit, db.NoID)
	return db.Collect(rows, err, func(r db.Row) (t indexedTeam, err error) {
		return t, r.Scan((*db.ID)(&t.id), &t.short, &t.work)
	})
}

// hasTerms reports whether a team has a segment that ends before an id.
func hasTerms(ctx context.Context, r db.Reader, teamID, before string) (some bool, err error) {
	err = r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM email_terms WHERE team_id = $1 AND last_id < $2)`, db.ID(teamID),
		db.ID(before)).Scan(&some)
	return some, err
}
