package metrics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// state records the time up to which a team's events are counted, and the first of its slots that is not final. The
// field knownFinal is the first slot that is not final for teams whose events are all counted. Version 0 means that no
// events have been counted yet.
type state struct{ until, version, final, knownFinal int64 }

func getState(ctx context.Context, r db.Reader, teamID string) (s state, err error) {
	err = r.QueryRow(ctx, `SELECT COALESCE(u.until, 0), COALESCE(u.version, 0), f.slot
		FROM (SELECT COALESCE(MAX(slot), 0) AS slot FROM email_counts_final) f
		LEFT JOIN email_counts_until u ON u.team_id = $1`, db.ID(teamID)).Scan(&s.until, &s.version,
		&s.knownFinal)
	s.final = min(s.knownFinal, down(s.until)) // an event that is not counted yet is not in final counters either
	return s, err
}

// setState replaces a team's state and increments its version. If the state has changed since it was read, or if slots
// have become final, setState returns false.
func setState(ctx context.Context, tx *db.Tx, teamID string, old state, until int64) (bool, error) {
	var n int64
	var err error
	if old.version == 0 {
		n, err = tx.Exec(ctx, `INSERT INTO email_counts_until (team_id, until, version) VALUES ($1, $2, 1)
			ON CONFLICT (team_id) DO NOTHING`, db.ID(teamID), until)
	} else {
		n, err = tx.Exec(ctx, `UPDATE email_counts_until SET until = $2, version = version + 1 WHERE team_id = $1
			AND version = $3 AND NOT EXISTS (SELECT 1 FROM email_counts_final WHERE slot > $4)`,
			db.ID(teamID), until, old.version, old.knownFinal)
	}
	return n == 1, err
}

// late is an entry for an event that was recorded long after it happened. The field emailID is set only for opens and
// clicks.
type late struct {
	id, emailID string
	at          int64
}

func insertLate(ctx context.Context, tx *db.Tx, teamID string, l late) {
	tx.Queue(ctx, `INSERT INTO email_counts_late (team_id, id, email_id, at) VALUES ($1, $2, $3, $4)`, db.ID(teamID),
		db.ID(l.id), db.ID(l.emailID), l.at)
}

// lateIDs returns a batch of the ids of a team's late entries, oldest first.
func lateIDs(ctx context.Context, r db.Reader, teamID string, limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM email_counts_late WHERE team_id = $1 ORDER BY id LIMIT $2`, db.ID(teamID),
		limit)
	return db.Collect(rows, err, scanID)
}

func deleteLate(ctx context.Context, tx *db.Tx, teamID string, ids []string) {
	tx.Queue(ctx, `DELETE FROM email_counts_late WHERE team_id = $1 AND id = ANY($2)`, db.ID(teamID), db.IDs(ids))
}

// dirtySlots returns the slots whose counters are wrong, in order, up to a given time. Counters are wrong in the slots
// of late events. They are also wrong in the slots of later opens and clicks in the same email, because these may no
// longer be the first. The events of each email are read once, however many late events the email has.
func dirtySlots(ctx context.Context, r db.Reader, teamID string, until int64) ([]int64, error) {
	rows, err := r.Query(ctx, `SELECT l.at / $3 FROM email_counts_late l WHERE l.team_id = $1 AND l.at < $2
		UNION SELECT e.created_at / $3 FROM (SELECT l.email_id, MIN(l.at) AS since FROM email_counts_late l
		WHERE l.team_id = $1 GROUP BY l.email_id) late JOIN email_events e ON e.email_id = late.email_id
		WHERE e.type IN `+hits+` AND e.created_at > late.since AND e.created_at < $2 ORDER BY 1`,
		db.ID(teamID), until, slot.Microseconds())
	return db.Collect(rows, err, func(r db.Row) (x int64, err error) {
		err = r.Scan(&x)
		return x, err
	})
}

// row is one result row of a count. If a row counts a cell, slot is the first slot of the cell.
type row struct {
	slot                     int64
	domain, email, broadcast string
	typ, detail              string
	events, recipients       int64
	people                   int64
}

func scanRow(r db.Row) (x row, err error) {
	var number int16
	err = r.Scan(&x.slot, (*db.ID)(&x.domain), (*db.ID)(&x.email), (*db.ID)(&x.broadcast), &number, &x.detail, &x.events,
		&x.recipients, &x.people)
	if err == nil {
		x.typ = events.ReadType(number)
	}
	return x, err
}

// groups specifies the columns by which rows are grouped. Cells of length 0 mean no groups by time.
type groups struct {
	cells                    cells
	domain, email, broadcast bool
}

// slotOf returns the SQL expression by which the rows with the given slot are grouped.
func (g groups) slotOf(slot string) string {
	if g.cells.length == 0 {
		return "CAST(0 AS BIGINT)"
	}
	return g.cells.start(slot)
}

// filters holds conditions on ids and types.
type filters struct {
	domains, emails, broadcasts []string
	types                       []events.Type
}

// wantsReceived reports whether a received email can meet the conditions. It belongs to no broadcast.
func (f filters) wantsReceived() bool {
	return len(f.broadcasts) == 0 && (len(f.types) == 0 || slices.Contains(f.types, events.EmailReceived))
}

// where returns the conditions as an SQL string, and appends their arguments to args.
func (f filters) where(prefix string, args []any) (string, []any) {
	text := ""
	for _, c := range []struct {
		column string
		ids    []string
	}{{"domain_id", f.domains}, {"email_id", f.emails}, {"broadcast_id", f.broadcasts}} {
		if len(c.ids) > 0 {
			args = append(args, db.IDs(c.ids))
			text += fmt.Sprintf(" AND %s%s = ANY($%d)", prefix, c.column, len(args))
		}
	}
	if len(f.types) > 0 {
		text += " AND " + prefix + "type IN " + events.AnyOf(f.types...)
	}
	return text, args
}

// noID is an SQL expression for no id.
const noID = `CAST(NULL AS UUID)`

func scanID(r db.Row) (id string, err error) {
	err = r.Scan((*db.ID)(&id))
	return id, err
}

func column(wanted bool, expression, none string) string {
	if wanted {
		return expression
	}
	return none
}

// These are numbers of types in SQL. A state has the number of the type of its event.
var (
	hits       = events.AnyOf(events.EmailOpened, events.EmailClicked)
	suppressed = events.Types.SQL(events.EmailSuppressed)
)

// recipientsOf is an SQL expression for the number of recipients that the event e contributes (see the package
// comment). The only recipient of an email has no row in email_recipients. The subqueries by email do not filter by
// team, because SQLite would then read all of the team's events instead of using the email's key.
var recipientsOf = `CASE
			WHEN e.type = ` + events.Types.SQL(events.EmailSent) + ` THEN (SELECT COUNT(*) FROM email_recipients p
			WHERE p.email_id = e.email_id AND p.state <> ` + suppressed + `) + (SELECT COUNT(*) FROM emails m
			WHERE m.id = e.email_id AND m.team_id = e.team_id
				AND m.recipient <> '' AND m.last_event <> ` + suppressed + `)
			WHEN e.type IN ` + hits + ` AND (` + earlier("") + ` OR ` + earlier(events.DetailMachine) + `) THEN 0
			ELSE 1 END`

// peopleOf is an SQL expression. It is 1 if the event e is a recipient's first open or click that was not made by a
// bot, and 0 otherwise.
var peopleOf = `CASE
			WHEN e.type NOT IN ` + hits + ` OR e.detail <> '' THEN 0
			WHEN ` + earlier("") + ` THEN 0
			ELSE 1 END`

// earlier is the SQL condition that another event for the same email, type and recipient, with the given detail,
// occurred before the event e. The condition is evaluated for each open and click, and a recipient can follow a link
// any number of times. The SQL condition earlier must read only one row: each of its parts uses the index
// email_events_hits and repeats the condition of that partial index.
func earlier(detail string) string {
	return `EXISTS (SELECT 1 FROM email_events f WHERE f.type IN ` + hits + ` AND f.email_id = e.email_id
				AND f.type = e.type AND f.recipient = e.recipient AND f.detail = '` + detail + `'
				AND (f.created_at, f.id) < (e.created_at, e.id))`
}

// counted is the SQL condition for events that are counted.
var counted = `e.type NOT IN ` + events.AnyOf(events.EmailQueued, events.EmailScheduled, events.EmailCanceled)

// countEvents counts the events and the received emails in a span and returns at most limit rows. The results of
// countEvents also determine the values of the counters. The SQL statement of countEvents also adds the counts from
// [RetainCounts] and [RetainReceived], so that a concurrent deletion neither duplicates nor loses events. Deleted
// events count at the start of their slot.
func countEvents(ctx context.Context, r db.Reader, teamID string, s span, g groups, f filters,
	limit int) ([]row, error) {
	where, args := f.where("e.", []any{db.ID(teamID), s.from, s.to})
	when := "e.team_id = $1 AND e.created_at >= $2 AND e.created_at < $3"
	if len(f.emails) > 0 {
		// These expressions prevent the database from using the index on times.
		when = "COALESCE(e.team_id, e.team_id) = $1 AND e.created_at + 0 >= $2 AND e.created_at + 0 < $3"
	}
	text := fmt.Sprintf(`SELECT %s, %s, %s, %s, e.type, e.detail, COUNT(*), CAST(SUM(%s) AS BIGINT),
		CAST(SUM(%s) AS BIGINT) FROM email_events e WHERE %s AND %s%s GROUP BY 1, 2, 3, 4, 5, 6`,
		g.slotOf(fmt.Sprintf("e.created_at / %d", slot.Microseconds())),
		column(g.domain, "e.domain_id", noID),
		column(g.email, "e.email_id", noID), column(g.broadcast, "e.broadcast_id", noID), recipientsOf, peopleOf,
		when, counted, where)
	if f.wantsReceived() {
		var received string
		received, args = countReceived(g, f, args)
		text += ` UNION ALL ` + received
	}
	if !g.email && len(f.emails) == 0 { // deleted events cannot be assigned to an email
		args = append(args, up(s.from), up(s.to))
		low, high := len(args)-1, len(args)
		where, args = f.where("k.", args)
		text += fmt.Sprintf(` UNION ALL SELECT %s, %s, `+noID+`, %s, k.type, k.detail, CAST(SUM(k.events) AS BIGINT),
			CAST(SUM(k.recipients) AS BIGINT), CAST(SUM(k.people) AS BIGINT)
			FROM email_counts_kept k WHERE k.team_id = $1 AND k.slot >= $%d AND k.slot < $%d%s GROUP BY 1, 2, 3, 4, 5, 6`,
			g.slotOf("k.slot"), column(g.domain, "k.domain_id", noID),
			column(g.broadcast, "k.broadcast_id", noID), low, high, where)
	}
	args = append(args, limit)
	rows, err := r.Query(ctx, fmt.Sprintf(`%s LIMIT $%d`, text, len(args)), args...)
	return db.Collect(rows, err, scanRow)
}

// uncounted returns the emails that have an event at or after the given time, or a late event that is not yet in the
// counters.
func uncounted(ctx context.Context, r db.Reader, teamID string, emailIDs []string, until int64) ([]string, error) {
	rows, err := r.Query(ctx,
		`SELECT e.email_id FROM email_events e WHERE e.email_id = ANY($2) AND COALESCE(e.team_id, e.team_id) = $1
		AND e.created_at + 0 >= $3
		UNION SELECT l.email_id FROM email_counts_late l WHERE l.team_id = $1 AND l.email_id = ANY($2)`, db.ID(teamID),
		db.IDs(emailIDs), until)
	return db.Collect(rows, err, scanID)
}

// retainCounts adds the counts of the given emails' events to the counts of deleted events.
func retainCounts(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string) {
	// A fixed order of rows prevents deadlocks between two transactions.
	tx.Queue(ctx, fmt.Sprintf(`INSERT INTO email_counts_kept (team_id, slot, domain_id, broadcast_id, type, detail,
		events, recipients, people)
		SELECT e.team_id, e.created_at / %d, COALESCE(e.domain_id, $3), COALESCE(e.broadcast_id, $3), e.type, e.detail,
		COUNT(*),
		CAST(SUM(%s) AS BIGINT), CAST(SUM(%s) AS BIGINT) FROM email_events e
		WHERE e.email_id = ANY($2) AND COALESCE(e.team_id, e.team_id) = $1 AND %s
		GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
		ON CONFLICT (team_id, slot, domain_id, broadcast_id, type, detail) DO UPDATE SET
		events = email_counts_kept.events + excluded.events,
		recipients = email_counts_kept.recipients + excluded.recipients,
		people = email_counts_kept.people + excluded.people`,
		slot.Microseconds(), recipientsOf, peopleOf, counted), db.ID(teamID), db.IDs(emailIDs), db.NoID)
}

// sumCounters adds up the counters of the slots from low to high-1, except the slots in without. It returns at most
// limit rows.
func sumCounters(ctx context.Context, r db.Reader, teamID string, low, high int64, without []int64, g groups,
	f filters, limit int) ([]row, error) {
	args := []any{db.ID(teamID), low, high}
	not := ""
	if len(without) > 0 {
		args, not = append(args, without), " AND c.slot <> ALL($4)"
	}
	where, args := f.where("c.", args)
	args = append(args, limit)
	rows, err := r.Query(ctx, fmt.Sprintf(`SELECT %s, %s, `+noID+`, %s, c.type, c.detail, CAST(SUM(c.events) AS BIGINT),
		CAST(SUM(c.recipients) AS BIGINT), CAST(SUM(c.people) AS BIGINT)
		FROM email_counts c WHERE c.team_id = $1 AND c.slot >= $2 AND c.slot < $3%s%s
		GROUP BY 1, 2, 3, 4, 5, 6 LIMIT $%d`, g.slotOf("c.slot"), column(g.domain, "c.domain_id", noID),
		column(g.broadcast, "c.broadcast_id", noID), not, where, len(args)), args...)
	return db.Collect(rows, err, scanRow)
}

func deleteCounters(ctx context.Context, tx *db.Tx, teamID string, slot int64) {
	tx.Queue(ctx, `DELETE FROM email_counts WHERE team_id = $1 AND slot = $2`, db.ID(teamID), slot)
}

// deleteCountersSince deletes a team's counters of a slot and of all later ones.
func deleteCountersSince(ctx context.Context, tx *db.Tx, teamID string, slot int64) {
	tx.Queue(ctx, `DELETE FROM email_counts WHERE team_id = $1 AND slot >= $2`, db.ID(teamID), slot)
}

func addCounters(ctx context.Context, tx *db.Tx, teamID string, all []row) {
	for _, x := range all {
		tx.Queue(ctx, `INSERT INTO email_counts (team_id, slot, domain_id, broadcast_id, type, detail, events, recipients,
			people) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
			ON CONFLICT (team_id, slot, domain_id, broadcast_id, type, detail) DO UPDATE SET
			events = email_counts.events + excluded.events,
			recipients = email_counts.recipients + excluded.recipients,
			people = email_counts.people + excluded.people`,
			db.ID(teamID), x.slot, db.OrNoID(x.domain), db.OrNoID(x.broadcast),
			events.Types.Number(events.Type("email."+x.typ)), x.detail, x.events, x.recipients,
			x.people)
	}
}

// team is a team whose events are counted.
type team struct {
	id    string
	short int64
	work  bool // whether events or late entries of the team wait to be counted, or counters reach too far
}

// teamsAfter returns up to limit teams whose short ids are greater than after and at most last, in the order of these
// ids. Deleted teams have a row until their events are deleted. The target is the time up to which events are counted
// now. Counters that reach beyond the time far are wrong; see [Service.rewind].
func teamsAfter(ctx context.Context, r db.Reader, after, last, target, far int64, limit int) ([]team, error) {
	rows, err := r.Query(ctx, `SELECT t.id, t.short_id,
		EXISTS (SELECT 1 FROM email_events e WHERE e.team_id = t.id AND e.created_at >= COALESCE(u.until, 0)
			AND e.created_at < $3)
		OR EXISTS (SELECT 1 FROM received_emails r WHERE r.team_id = t.id AND r.created_at >= COALESCE(u.until, 0)
			AND r.created_at < $3)
		OR EXISTS (SELECT 1 FROM email_counts_late l WHERE l.team_id = t.id) OR COALESCE(u.until, 0) > $5
		FROM (SELECT id, short_id FROM teams WHERE short_id > $1 AND short_id <= $2 ORDER BY short_id LIMIT $4) t
		LEFT JOIN email_counts_until u ON u.team_id = t.id ORDER BY t.short_id`, after, last, target, limit, far)
	return db.Collect(rows, err, func(r db.Row) (t team, err error) {
		return t, r.Scan((*db.ID)(&t.id), &t.short, &t.work)
	})
}

// nextEvent returns the time of a team's first event or received email at or after the given time, or false if there is
// none.
func nextEvent(ctx context.Context, r db.Reader, teamID string, from int64) (at int64, ok bool, err error) {
	err = r.QueryRow(ctx, `SELECT x.created_at FROM (SELECT e.created_at FROM (SELECT created_at FROM email_events
			WHERE team_id = $1 AND created_at >= $2 ORDER BY created_at LIMIT 1) e
		UNION ALL SELECT m.created_at FROM (SELECT created_at FROM received_emails
			WHERE team_id = $1 AND created_at >= $2 ORDER BY created_at LIMIT 1) m) x ORDER BY x.created_at LIMIT 1`,
		db.ID(teamID), from).Scan(&at)
	if errors.Is(err, db.ErrNoRows) {
		return 0, false, nil
	}
	return at, err == nil, err
}

// namesOf returns the names of a team's domains or broadcasts by id; table is "domains" or "broadcasts". Deleted ones
// are not in the map.
func namesOf(ctx context.Context, r db.Reader, table, teamID string, ids []string) (map[string]string, error) {
	names := map[string]string{}
	for some := range slices.Chunk(ids, 500) {
		var id, name string
		rows, err := r.Query(ctx, `SELECT id, name FROM `+table+` WHERE team_id = $1 AND id = ANY($2)`, db.ID(teamID),
			db.IDs(some))
		if _, err := db.Collect(rows, err, func(r db.Row) (x struct{}, err error) {
			err = r.Scan((*db.ID)(&id), &name)
			names[id] = strings.Clone(name)
			return x, err
		}); err != nil {
			return nil, err
		}
	}
	return names, nil
}
