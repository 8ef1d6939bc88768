package emails

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

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

// breakSegments marks the segment that covers an email, so that searches read its emails until it is built again.
func breakSegments(ctx context.Context, tx *db.Tx, teamID, emailID string) {
	tx.Queue(ctx, fmt.Sprintf(`UPDATE email_terms SET state = %d WHERE team_id = $1 AND term = $3 AND state <= %d
		AND (last_id, gen) IN (SELECT s.last_id, s.gen FROM (SELECT last_id, gen, from_id FROM email_terms
			WHERE team_id = $1 AND from_id IS NOT NULL AND last_id >= $2 ORDER BY last_id, gen LIMIT 8) s
			WHERE s.from_id <= $2)`, segmentBroken, segmentChecked), db.ID(teamID), db.ID(emailID), []byte{})
}

// deleteTerms deletes a batch of the rows of a segment in the order of their terms, and returns their number. Unless
// the header is included, it stays.
func deleteTerms(ctx context.Context, tx *db.Tx, teamID string, g segment, header bool) (int64, error) {
	first := "AND term > $5"
	if header {
		first = "AND term >= $5"
	}
	return tx.Exec(ctx, `DELETE FROM email_terms WHERE team_id = $1 AND last_id = $2 AND gen = $3 `+first+` AND term <=
		(SELECT x.term FROM (SELECT term FROM email_terms WHERE team_id = $1 AND last_id = $2 AND gen = $3 `+first+`
			ORDER BY term LIMIT $4) x ORDER BY x.term DESC LIMIT 1)`, db.ID(teamID), db.ID(g.last), g.gen, termRows,
		[]byte{})
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

// termBatch is a number of adjoining emails of a team, in the form in which the search index has them.
type termBatch struct {
	first, last string // ids
	emails      int
	more        bool // further emails follow
	terms       termindex.Builder
}

// batchBetween returns a batch of a team's emails with ids greater than after and less than before, oldest first. It ends
// after the given number of emails. With oneDay, it also ends before an email whose id has another day.
func batchBetween(ctx context.Context, r db.Reader, teamID, after, before string, most int, oneDay bool) (b termBatch,
	err error) {
	rows, err := r.Query(ctx, `SELECT e.id, e.actor_id, e.domain_id, e.sender, e.subject, e.recipients, e.recipient, e.tags,
		e.template_id, e.broadcast_id FROM emails e WHERE e.team_id = $1 AND e.id > $2 AND e.id < $3 ORDER BY e.id LIMIT $4`,
		db.ID(teamID), db.OrNoID(after), db.ID(before), most)
	if err != nil {
		return b, err
	}
	defer rows.Close()
	for rows.Next() {
		var x emailRow
		if err := rows.Scan((*db.ID)(&x.ID), (*db.ID)(&x.Actor.ID), (*db.ID)(&x.DomainID), &x.From, &x.Subject, &x.to, &x.only,
			&x.tags, (*db.ID)(&x.TemplateID), (*db.ID)(&x.BroadcastID)); err != nil {
			return b, fmt.Errorf("scan row: %w", err)
		}
		if err := x.decodeLists(); err != nil {
			return b, err
		}
		if b.emails == 0 {
			b.first = x.ID
		} else if oneDay && dayOf(x.ID) != dayOf(b.first) {
			b.more = true
			return b, nil
		}
		u, err := uuid.Parse(x.ID)
		if err != nil {
			return b, fmt.Errorf("read the id of email %s: %w", x.ID, err)
		}
		b.terms.Add(u, termsOf(&x.Email))
		b.last = x.ID
		b.emails++
	}
	b.more = b.emails == most
	return b, rows.Err()
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
func teamsToIndex(ctx context.Context, r db.Reader, after, last int64, before string, limit int) ([]indexedTeam, error) {
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

// selectByID returns those of the given emails that meet the conditions of a search on columns. The ids are between lo
// and hi.
func selectByID(ctx context.Context, r db.Reader, c *criteria, teamID string, ids []string, lo, hi string) (
	map[string]Email, error) {
	args := []any{db.ID(teamID), db.IDs(ids), db.ID(lo), db.ID(hi)}
	where, args := c.where(args, func(text string) any { return db.ID(text) })
	rows, err := r.Query(ctx, `SELECT `+emailColumns+` FROM emails e WHERE e.team_id = $1 AND e.id = ANY($2)
		AND e.id >= $3 AND e.id <= $4`+where, args...)
	all, err := db.Collect(rows, err, scanEmail)
	if err != nil {
		return nil, err
	}
	found := make(map[string]Email, len(all))
	for _, e := range all {
		found[e.ID] = e
	}
	return found, nil
}

// hasTerms reports whether a team has a segment that ends before an id.
func hasTerms(ctx context.Context, r db.Reader, teamID, before string) (some bool, err error) {
	err = r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM email_terms WHERE team_id = $1 AND last_id < $2)`, db.ID(teamID),
		db.ID(before)).Scan(&some)
	return some, err
}
