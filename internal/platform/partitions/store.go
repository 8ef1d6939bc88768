package partitions

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Emails are the emails with all their rows.
var Emails = Family{"emails", []Table{
	// See the first migration for the storage parameters.
	{"emails", "id", " WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)", "team_id"},
	{"email_recipients", "email_id", " WITH (autovacuum_vacuum_scale_factor = 0.02)", ""},
	{"email_attachments", "email_id", "", ""}, {"email_messages", "email_id", "", ""},
	{"email_events", "email_id", "", ""},
	{"email_terms", "last_id", "", "team_id"}}}

// RequestLogs are the entries of the request log.
var RequestLogs = Family{"request logs", []Table{{"request_logs", "id", "", "team_id"}}}

// Webhooks are the messages to webhooks with their deliveries and attempts.
var Webhooks = Family{"webhook messages", []Table{{"webhook_messages", "id", "", ""},
	{"webhook_deliveries", "message_id", "", "webhook_id"}, {"webhook_attempts", "message_id", "", "webhook_id"}}}

// Families are all partitioned tables.
var Families = []Family{Emails, RequestLogs, Webhooks}

// lockName is the name of the lock under which partitions are changed.
const lockName = "partitions"

// alone begins a transaction that changes partitions, one at a time on all nodes.
func alone(ctx context.Context, tx *db.Tx) error {
	if err := tx.Serialize(ctx, lockName); err != nil {
		return err
	}
	tx.Queue(ctx, fmt.Sprintf(`SET LOCAL lock_timeout = %d`, lockTime.Milliseconds()))
	return nil
}

// bounds matches the bounds of a partition by range.
var bounds = regexp.MustCompile(`^FOR VALUES FROM \('([^']*)'\) TO \('([^']*)'\)$`)

// list reads the partitions of all tables from the catalog. The number of rows is that of the last ANALYZE or VACUUM.
// The sizes are read only on request, because this opens each partition and waits for a drop. A partition that is
// dropped meanwhile is left out, because its bounds are NULL.
func list(ctx context.Context, r db.Reader, sizes bool) ([]Partition, error) {
	size := "CAST(0 AS BIGINT)"
	if sizes {
		size = "COALESCE(PG_TOTAL_RELATION_SIZE(oid), 0)"
	}
	rows, err := r.Query(ctx, `SELECT parent, name, bounds, amount, `+size+`,
		COALESCE(HAS_TABLE_PRIVILEGE(oid, 'SELECT') AND HAS_TABLE_PRIVILEGE(oid, 'UPDATE'), FALSE)
		FROM (SELECT c.oid, CAST(p.relname AS TEXT) AS parent, CAST(c.relname AS TEXT) AS name,
			PG_GET_EXPR(c.relpartbound, c.oid) AS bounds, CAST(GREATEST(c.reltuples, 0) AS BIGINT) AS amount
			FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent JOIN pg_class c ON c.oid = i.inhrelid
			WHERE p.relkind = 'p' AND p.relnamespace = current_schema()::regnamespace) x
		WHERE bounds IS NOT NULL ORDER BY parent, bounds COLLATE "C"`)
	return db.Collect(rows, err, func(r db.Row) (p Partition, err error) {
		var text string
		if err := r.Scan(&p.Table, &p.Name, &text, &p.Rows, &p.Bytes, &p.Usable); err != nil {
			return p, err
		}
		if text == "DEFAULT" {
			p.Default = true
			return p, nil
		}
		m := bounds.FindStringSubmatch(text)
		if m == nil {
			return p, fmt.Errorf("partition %s has the bounds %s, which Postrider did not set: detach it", p.Name, text)
		}
		var ok1, ok2 bool
		p.From, ok1 = timeOf(m[1])
		if p.To, ok2 = timeOf(m[2]); !ok1 || !ok2 {
			return p, fmt.Errorf("partition %s has the bounds %s, which are not ids: detach it", p.Name, text)
		}
		return p, nil
	})
}

// spansOf returns the spans of all partitions of a family's tables.
func spansOf(ctx context.Context, r db.Reader, f Family) (spans []Span, err error) {
	all, err := list(ctx, r, false)
	for i := range all {
		for _, t := range f.Tables {
			if t.Name == all[i].Table && !all[i].Default {
				spans = append(spans, all[i].Span)
			}
		}
	}
	return spans, err
}

// countUpTo counts the rows of a table, at most the given number.
func countUpTo(ctx context.Context, r db.Reader, table string, most int) (n int64, err error) {
	err = r.QueryRow(ctx, fmt.Sprintf(`SELECT COUNT(*) FROM (SELECT 1 FROM %s LIMIT %d) x`, table, most)).Scan(&n)
	return n, err
}

// createdAt returns the time at which the first migration created the tables.
func createdAt(ctx context.Context, r db.Reader) (time.Time, error) {
	var at int64
	err := r.QueryRow(ctx, `SELECT MIN(applied_at) FROM migrations`).Scan(&at)
	return db.Time(at), err
}

// partitionName returns the name of the partition of a table that begins at the given time.
func partitionName(table string, from time.Time) string {
	if from.Equal(from.Truncate(24 * time.Hour)) {
		return table + from.UTC().Format("_20060102")
	}
	return table + strings.ReplaceAll(from.UTC().Format("_20060102_150405.000"), ".", "")
}

func defaultOf(table string) string { return table + "_default" }

// between is an SQL condition on ids of a span.
func (s Span) between(key string) string {
	return fmt.Sprintf(`%[1]s >= '%[2]s' AND %[1]s < '%[3]s'`, key, id.First(s.From), id.First(s.To))
}

// lockDefaults locks the default partitions of a family, so that nothing reads or writes them until the commit.
func lockDefaults(ctx context.Context, tx *db.Tx, f Family) error {
	for _, t := range f.Tables {
		if _, err := tx.Exec(ctx, `LOCK TABLE `+defaultOf(t.Name)+` IN ACCESS EXCLUSIVE MODE`); err != nil {
			return err
		}
	}
	return nil
}

// inDefault reports whether a default partition of the family has rows of the span.
func inDefault(ctx context.Context, r db.Reader, f Family, span Span) (bool, error) {
	first, err := firstInDefault(ctx, r, f, span)
	return first != "", err
}

// firstInDefault returns the lowest id of a span that a default partition of the family has, or "".
func firstInDefault(ctx context.Context, r db.Reader, f Family, span Span) (first string, err error) {
	for _, t := range f.Tables {
		var key string
		err := r.QueryRow(ctx, fmt.Sprintf(`SELECT CAST(%[1]s AS TEXT) FROM %[2]s WHERE %[3]s ORDER BY %[1]s LIMIT 1`,
			t.Key, defaultOf(t.Name), span.between(t.Key))).Scan(&key)
		if err != nil && !errors.Is(err, db.ErrNoRows) {
			return "", err
		}
		if key != "" && (first == "" || key < first) {
			first = key
		}
	}
	return first, nil
}

// fewRows returns the end of a span, or an earlier time before which no default partition of the family has more than
// the given number of rows of the span. Rows of one millisecond are not separated.
func fewRows(ctx context.Context, r db.Reader, f Family, span Span, most int) (time.Time, error) {
	for _, t := range f.Tables {
		var key string
		err := r.QueryRow(ctx, fmt.Sprintf(`SELECT CAST(%[1]s AS TEXT) FROM %[2]s WHERE %[3]s ORDER BY %[1]s LIMIT 1
			OFFSET %[4]d`, t.Key, defaultOf(t.Name), span.between(t.Key), most)).Scan(&key)
		if errors.Is(err, db.ErrNoRows) {
			continue
		}
		if err != nil {
			return span.To, err
		}
		if at, ok := timeOf(key); ok && at.After(span.From) {
			span.To = at
		} else {
			span.To = span.From.Add(time.Millisecond)
		}
	}
	return span.To, nil
}

// attach makes the partitions of a family for a span, with the rows of the span that are in the default partitions.
// Rows that are written while the others are moved are moved when the default partition is locked.
func attach(ctx context.Context, tx *db.Tx, f Family, span Span) error {
	move := func(t Table, name string) {
		tx.Queue(ctx, fmt.Sprintf(`WITH moved AS (DELETE FROM %s WHERE %s RETURNING *) INSERT INTO %s SELECT * FROM moved`,
			defaultOf(t.Name), span.between(t.Key), name))
	}
	for _, t := range f.Tables {
		name := partitionName(t.Name, span.From)
		if _, err := tx.Exec(ctx, `CREATE TABLE `+name+` (LIKE `+t.Name+` INCLUDING ALL)`+t.with); err != nil {
			return err
		}
		move(t, name)
	}
	if err := lockDefaults(ctx, tx, f); err != nil {
		return err
	}
	for _, t := range f.Tables {
		name := partitionName(t.Name, span.From)
		move(t, name)
		tx.Queue(ctx, fmt.Sprintf(`ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM ('%s') TO ('%s')`, t.Name, name,
			id.First(span.From), id.First(span.To)))
	}
	return nil
}

// namesOf returns the names of the partitions of a span, one for each table of the family.
func namesOf(ctx context.Context, tx *db.Tx, f Family, span Span) ([]string, error) {
	all, err := list(ctx, tx.Reader, false)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(f.Tables))
	for i, t := range f.Tables {
		for _, p := range all {
			if p.Table == t.Name && !p.Default && p.From.Equal(span.From) && p.To.Equal(span.To) {
				names[i] = p.Name
			}
		}
		if names[i] == "" {
			return nil, fmt.Errorf("%s has no partition of %s", t.Name, span)
		}
	}
	return names, nil
}

// lock locks tables in the given mode, one after another.
func lock(ctx context.Context, tx *db.Tx, tables []string, mode string) error {
	for _, table := range tables {
		if _, err := tx.Exec(ctx, `LOCK TABLE ONLY `+table+` IN `+mode+` MODE`); err != nil {
			return err
		}
	}
	return nil
}

// drop detaches the named partitions, inserts the kept rows again, and drops the partitions. Everything
// that may take long is done before the tables are locked for all others.
func drop(ctx context.Context, tx *db.Tx, f Family, names []string, kept []Kept) error {
	parents := make([]string, len(f.Tables))
	for i, t := range f.Tables {
		parents[i] = t.Name
	}
	if err := lock(ctx, tx, parents, "ACCESS EXCLUSIVE"); err != nil {
		return err
	}
	for i, t := range f.Tables {
		if _, err := tx.Exec(ctx, `ALTER TABLE `+t.Name+` DETACH PARTITION `+names[i]); err != nil {
			return err
		}
		of := kept
		if t.owner == "" {
			of = ofEachID(kept)
		}
		for some := range slices.Chunk(of, keepRows) {
			owners, ids := make([]string, len(some)), make([]string, len(some))
			for j, k := range some {
				owners[j], ids[j] = k.Owner, k.ID
			}
			text := `INSERT INTO ` + t.Name + ` SELECT p.* FROM UNNEST(CAST('{` + strings.Join(owners, `,`) +
				`}' AS UUID[]), CAST('{` + strings.Join(ids, `,`) + `}' AS UUID[])) AS k (owner, id) JOIN ` + names[i] +
				` p ON p.` + t.Key + ` = k.id`
			if t.owner != "" {
				text += ` AND p.` + t.owner + ` = k.owner`
			}
			tx.Queue(ctx, text)
		}
		tx.Queue(ctx, `DROP TABLE `+names[i])
	}
	return nil
}

// ofEachID returns one of the kept rows with each id, because several owners may have the same id.
func ofEachID(kept []Kept) (some []Kept) {
	seen := map[string]bool{}
	for _, k := range kept {
		if !seen[k.ID] {
			seen[k.ID], some = true, append(some, k)
		}
	}
	return some
}

// keepRows is the number of kept ids whose rows one statement inserts again.
const keepRows = 1000
