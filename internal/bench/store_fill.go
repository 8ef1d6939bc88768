package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// modelTable is a table whose rows are copied from the rows of the model emails. The models are first copied into a
// small table of their own, because they would otherwise be looked for among all rows.
type modelTable struct {
	name, key string            // key is the column by which the model row is found
	changed   map[string]string // expressions for the columns that differ; x is the new row and m the model row
}

// modelTables are the tables that have rows of a delivered email with one recipient.
var modelTables = []modelTable{
	{"emails", "id", map[string]string{"id": "x.id", "created_at": "x.at",
		"updated_at": "x.at + m.updated_at - m.created_at",
		"subject":    "'Receipt no. ' || CAST(x.at % 9999991 AS TEXT)",
		"recipient":  "'user' || CAST(x.at % 1000003 AS TEXT) || '@example.net'"}},
	{"email_bodies", "email_id", map[string]string{"email_id": "x.id"}},
	{"email_events", "id", map[string]string{"id": "x.id", "email_id": "x.email_id", "created_at": "x.at",
		"started_at": "x.at + m.started_at - m.created_at"}},
	{"request_logs", "id", map[string]string{"id": "x.id", "created_at": "x.at", "email_ids": "x.email",
		"response_body": "REPLACE(m.response_body, m.email_ids, x.email)"}},
}

func (m *modelTable) models() string { return "bench_models_" + m.name }

// copies are new rows of a table, one in each place of the lists.
type copies struct {
	ids, models, emailIDs []db.ID
	at                    []int64
	emails                []string // the ids of the emails as texts
}

func (c *copies) add(rowID, model, emailID string, at time.Time) {
	c.ids, c.models = append(c.ids, db.ID(rowID)), append(c.models, db.ID(model))
	c.emailIDs, c.emails = append(c.emailIDs, db.ID(emailID)), append(c.emails, emailID)
	c.at = append(c.at, at.UnixMicro())
}

// copier inserts copies into one table.
type copier struct{ text string }

// newCopier copies the model rows of a table into a table of their own.
func newCopier(ctx context.Context, d *db.DB, m *modelTable, keys []string) (c copier, err error) {
	columns, err := columnsOf(ctx, d, m.name)
	if err != nil {
		return c, fmt.Errorf("read the columns of %s: %w", m.name, err)
	}
	values := slices.Clone(columns)
	for i, column := range columns {
		values[i] = "m." + column
		if changed, ok := m.changed[column]; ok {
			values[i] = changed
		}
	}
	rows, order := `SELECT UNHEX(value ->> 0) AS id, UNHEX(value ->> 1) AS model, UNHEX(value ->> 2) AS email_id,
		value ->> 3 AS at, value ->> 4 AS email FROM json_each($1)`, ``
	if !d.Alone() {
		order = ` ORDER BY x.id`
		rows = `SELECT UNNEST(CAST($1 AS UUID[])) AS id, UNNEST(CAST($2 AS UUID[])) AS model,
			UNNEST(CAST($3 AS UUID[])) AS email_id, UNNEST(CAST($4 AS BIGINT[])) AS at, UNNEST(CAST($5 AS TEXT[])) AS email`
	}
	c.text = fmt.Sprintf(`INSERT INTO %s (%s) SELECT %s FROM (%s) x CROSS JOIN %s m WHERE m.%s = x.model%s`, m.name,
		strings.Join(columns, ", "), strings.Join(values, ", "), rows, m.models(), m.key, order)
	return c, d.Update(ctx, func(tx *db.Tx) error {
		for _, text := range []string{`DROP TABLE IF EXISTS ` + m.models(), // a fill that was killed may have left it
			`CREATE TABLE ` + m.models() + ` AS SELECT * FROM ` + m.name + ` WHERE FALSE`,
			`CREATE UNIQUE INDEX ` + m.models() + `_key ON ` + m.models() + ` (` + m.key + `)`} {
			if _, err := tx.Exec(ctx, text); err != nil {
				return err
			}
		}
		tx.Queue(ctx, `INSERT INTO `+m.models()+` SELECT * FROM `+m.name+` WHERE `+m.key+` = ANY($1)`, db.IDs(keys))
		return nil
	})
}

func dropModels(ctx context.Context, tx *db.Tx, m *modelTable) {
	tx.Queue(ctx, `DROP TABLE IF EXISTS `+m.models())
}

func columnsOf(ctx context.Context, d *db.DB, table string) ([]string, error) {
	text := `SELECT name FROM pragma_table_info($1)`
	if !d.Alone() {
		text = `SELECT CAST(column_name AS TEXT) FROM information_schema.columns WHERE table_schema = current_schema()
			AND table_name = $1 ORDER BY ordinal_position`
	}
	rows, err := d.Query(ctx, text, table)
	return db.Collect(rows, err, func(r db.Row) (name string, err error) { err = r.Scan(&name); return name, err })
}

// insert inserts the rows with one statement. SQLite has no arrays, so it takes the rows as JSON.
func (c copier) insert(ctx context.Context, tx *db.Tx, rows *copies) {
	if !tx.OneWriter() {
		tx.Queue(ctx, c.text, rows.ids, rows.models, rows.emailIDs, rows.at, rows.emails)
		return
	}
	hexOf := func(x db.ID) string { return strings.ReplaceAll(string(x), "-", "") }
	all := []byte{'['}
	for i := range rows.ids {
		if i > 0 {
			all = append(all, ',')
		}
		all = fmt.Appendf(all, `["%s","%s","%s",%d,"%s"]`, hexOf(rows.ids[i]), hexOf(rows.models[i]), hexOf(rows.emailIDs[i]),
			rows.at[i], rows.emails[i])
	}
	tx.Queue(ctx, c.text, string(append(all, ']')))
}

// modelEvent is an event of a model email.
type modelEvent struct {
	id, emailID, kind string
	after             time.Duration // since the email
}

// modelEvents returns the events of the model emails, by time.
func modelEvents(ctx context.Context, r db.Reader, emailIDs []string) ([]modelEvent, error) {
	rows, err := r.Query(ctx, `SELECT v.id, v.email_id, v.type, v.created_at - e.created_at FROM email_events v
		JOIN emails e ON e.id = v.email_id AND e.team_id = v.team_id
		WHERE v.email_id = ANY($1) ORDER BY v.created_at, v.id`, db.IDs(emailIDs))
	return db.Collect(rows, err, func(r db.Row) (v modelEvent, err error) {
		var after int64
		var number int16
		if err := r.Scan((*db.ID)(&v.id), (*db.ID)(&v.emailID), &number, &after); err != nil {
			return v, err
		}
		v.after = time.Duration(after) * time.Microsecond
		v.kind, err = events.TypeName(number)
		return v, err
	})
}

// modelLogs returns the ids of the logged requests of the model emails, by the email's id.
func modelLogs(ctx context.Context, r db.Reader, emailIDs []string) (map[string]string, error) {
	of := map[string]string{}
	rows, err := r.Query(ctx, `SELECT id, email_ids FROM request_logs WHERE email_ids = ANY($1)`, emailIDs)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var logID, emailID string
		err = r.Scan((*db.ID)(&logID), &emailID)
		of[emailID] = logID
		return none, err
	})
	return of, err
}

// counter is a counter of metrics.
type counter struct {
	teamID, domainID, kind string
	slot                   int64
}

// slotTime is the time that a counter of metrics covers.
const slotTime = 15 * time.Minute

// count adds to the counters of metrics, because a node would otherwise begin to count all events at its start.
func count(ctx context.Context, tx *db.Tx, counts map[counter]int64) {
	order := make([]counter, 0, len(counts))
	for c := range counts {
		order = append(order, c)
	}
	slices.SortFunc(order, func(a, b counter) int { // a fixed order of rows prevents deadlocks
		return strings.Compare(a.key(), b.key())
	})
	teamIDs, domainIDs := make([]string, len(order)), make([]db.ID, len(order))
	kinds, slots, n := make([]int64, len(order)), make([]int64, len(order)), make([]int64, len(order))
	for i, c := range order {
		teamIDs[i], domainIDs[i], kinds[i], slots[i], n[i] = c.teamID, db.ID(c.domainID),
			int64(events.Types.Number(events.Type("email."+c.kind))), c.slot, counts[c]
	}
	tx.QueueRows(ctx, `email_counts (team_id, slot, domain_id, broadcast_id, type, detail, events, recipients)`,
		`ON CONFLICT (team_id, slot, domain_id, broadcast_id, type, detail) DO UPDATE SET
		events = email_counts.events + excluded.events, recipients = email_counts.recipients + excluded.recipients`,
		db.IDs(teamIDs), slots, domainIDs, db.NoID, kinds, "", n, n)
}

func (c counter) key() string { return strconv.FormatInt(c.slot, 10) + c.teamID + c.domainID + c.kind }

// countedUntil records that all events of a team before a time are in its counters.
func countedUntil(ctx context.Context, tx *db.Tx, teamID string, until time.Time) {
	tx.Queue(ctx, `INSERT INTO email_counts_until (team_id, until, version) VALUES ($1, $2, 1)
		ON CONFLICT (team_id) DO UPDATE SET version = email_counts_until.version + 1,
		until = CASE WHEN email_counts_until.until < excluded.until THEN excluded.until ELSE email_counts_until.until END`,
		db.ID(teamID), until.UnixMicro())
}

// notDurable makes the commit of a transaction on PostgreSQL not wait for the disk.
func notDurable(ctx context.Context, tx *db.Tx) {
	if !tx.OneWriter() {
		tx.Queue(ctx, `SET LOCAL synchronous_commit = off`)
	}
}

// analyze gathers PostgreSQL's statistics of filled tables, without which it would choose other plans.
func analyze(ctx context.Context, d *db.DB, tables ...string) error {
	if d.Alone() {
		return nil
	}
	return d.Update(ctx, func(tx *db.Tx) error {
		for _, table := range tables {
			tx.Queue(ctx, `ANALYZE `+table)
		}
		return nil
	})
}
