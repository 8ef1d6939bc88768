package promote

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) {
	lockWait = time.Second
	dbtest.Main(m)
}

// parents are the tables to which rows of others refer. Their rows are inserted first.
var parents = []string{"teams", "users", "domains"}

// fixture is a move of a database that has rows in every table.
type fixture struct {
	*testing.T
	Options
	tables []*table
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{T: t}
	f.Path, f.URL = dbtest.SQLiteFile(t), dbtest.EmptyPostgresURL(t)
	// The helper of dbtest refuses bytes as ids, which this fixture inserts.
	var err error
	if f.Source, err = db.Open(t.Context(), db.Options{URL: f.Path}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Source.Close)
	f.Target = dbtest.Open(t, f.URL)
	f.Place = "the new database"
	f.Partitions = func(context.Context, time.Time) error { return nil }
	f.Pause = func(context.Context) (func(), error) { return func() {}, nil }
	f.Say = func(format string, args ...any) { t.Logf(format, args...) }
	if _, err := f.Target.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	to, err := openTarget(t.Context(), f.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	file := f.file()
	defer file.Close()
	if f.tables, err = findTables(t.Context(), file, to); err != nil {
		t.Fatal(err)
	}
	if len(f.tables) < 80 {
		t.Errorf("only %d tables are moved", len(f.tables))
	}
	for i := range 3 {
		f.insert(i + 1)
	}
	if err := f.Source.SetFact(t.Context(), "colour", "red"); err != nil {
		t.Fatal(err)
	}
	return f
}

func (f *fixture) file() *sql.DB {
	f.Helper()
	file, err := db.OpenFile(f.Path, false)
	if err != nil {
		f.Fatal(err)
	}
	return file
}

// value returns the value of a column in row i, as SQLite stores it. SQLite has only the part 0 of counters.
func value(c column, i int) any {
	if c.name == "part" {
		return int64(0)
	}
	switch c.kind {
	case "uuid":
		return append(make([]byte, 15), byte(i))
	case "boolean":
		return int64(i % 2)
	case "bytea":
		if i == 1 {
			return []byte{}
		}
		return []byte{0, 0xff, byte(i)}
	case "text":
		return fmt.Sprintf("é %d of %s", i, c.name)
	case "double precision":
		return float64(i) / 3
	}
	return int64(i)
}

// insert inserts row i into every table.
func (f *fixture) insert(i int) {
	f.Helper()
	for _, first := range []bool{true, false} {
		for _, t := range f.tables {
			if slices.Contains(parents, t.name) != first {
				continue
			}
			own, other := t.columns, []column(nil)
			if t.joined != nil {
				own = nil
				for _, c := range t.columns {
					if slices.Contains(t.joined.columns, c.name) {
						other = append(other, c)
					} else {
						own = append(own, c)
					}
				}
				for _, name := range t.joined.key {
					other = append(other, column{name, "uuid"})
				}
				f.insertInto(t.joined.name, other, i)
			}
			f.insertInto(t.name, own, i)
		}
	}
}

func (f *fixture) insertInto(table string, columns []column, i int) {
	f.Helper()
	var names, marks []string
	var args []any
	for n, c := range columns {
		names, marks, args = append(names, c.name), append(marks, fmt.Sprintf("$%d", n+1)), append(args, value(c, i))
	}
	f.exec(`INSERT INTO `+table+` (`+list("", names)+`) VALUES (`+strings.Join(marks, ", ")+`)`, args...)
}

func (f *fixture) exec(text string, args ...any) {
	f.Helper()
	err := f.Source.Update(f.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(f.Context(), text, args...)
		return err
	})
	if err != nil {
		f.Fatalf("%s: %v", text, err)
	}
}

// change changes, deletes and inserts a row in every table.
func (f *fixture) change() {
	f.Helper()
	for _, t := range f.tables {
		var third, second []any
		for _, at := range t.key {
			third, second = append(third, value(t.columns[at], 3)), append(second, value(t.columns[at], 2))
		}
		for n, c := range t.columns {
			switch {
			case c.kind != "text" || slices.Contains(t.key, n):
			case t.joined != nil && slices.Contains(t.joined.columns, c.name):
				f.exec(`UPDATE `+t.joined.name+` SET `+c.name+` = 'changed' WHERE `+t.joined.key[0]+` = $1 AND `+
					t.joined.key[1]+` = $2`, third...)
			default:
				f.exec(`UPDATE `+t.name+` SET `+quoted(c.name)+` = 'changed '||`+quoted(c.name)+` WHERE `+t.whereKey(""),
					third...)
			}
		}
		f.exec(`DELETE FROM `+t.name+` WHERE `+t.whereKey(""), second...)
	}
	f.insert(4)
}

// same checks that both databases have the same rows, three in each table.
func (f *fixture) same() {
	f.Helper()
	to, err := openTarget(f.Context(), f.URL)
	if err != nil {
		f.Fatal(err)
	}
	defer to.close()
	file := f.file()
	defer file.Close()
	for _, t := range f.tables {
		var want checksum
		if err := readAll(f.Context(), file, t, want.add); err != nil {
			f.Fatal(err)
		}
		got, err := to.sum(f.Context(), t)
		rows := int64(3)
		switch t.name {
		case "oauth_clients":
			rows = 4 // one is of the first migration
		case "broadcast_counts", "team_volumes":
			// PostgreSQL has 16 parts of each counter.
			if err != nil || got.rows != 16*rows {
				f.Errorf("%s has %d rows in the new database, %v", t.name, got.rows, err)
			}
			continue
		case "jobs": // they were released
			var held int
			if e := to.QueryRow(f.Context(), `SELECT COUNT(holder) FROM jobs`).Scan(&held); e != nil || held > 0 ||
				err != nil || got.rows != rows {
				f.Errorf("there are %d jobs in the new database, and %d are held: %v, %v", got.rows, held, e, err)
			}
			continue
		}
		if err != nil || !got.equals(&want) || got.rows != rows {
			f.Errorf("%s has %d rows, and %d rows or others in the new database, %v", t.name, want.rows, got.rows, err)
		}
	}
}

// All rows of all tables are moved, with those that change meanwhile. Afterwards, the old database takes no changes.
func TestRun(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Pause = func(context.Context) (func(), error) {
		f.change()
		return func() {}, nil
	}
	blobs := func() *blob.Store {
		s, err := blob.Open(t.Context(), t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	f.Blobs, f.NewBlobs = blobs(), blobs()
	if _, err := f.Blobs.Put(t.Context(), "raw/1", strings.NewReader("hello")); err != nil {
		t.Fatal(err)
	}
	r, err := Run(t.Context(), f.Options)
	if err != nil {
		t.Fatal(err)
	}
	if r.LastChanges < 2*len(f.tables) || r.Tables != len(f.tables) || r.Blobs != 1 {
		t.Errorf("%+v", r)
	}
	f.same()
	if found, err := f.NewBlobs.Has(t.Context(), "raw/1"); !found || err != nil {
		t.Errorf("the blob: %v, %v", found, err)
	}
	for name, want := range map[string]string{"colour": "red", db.FactMoveID: "", db.FactMovedTo: ""} {
		if got, err := f.Target.Fact(t.Context(), name); got != want || err != nil {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
	if to, err := f.Source.Fact(t.Context(), db.FactMovedTo); to != f.Place || err != nil {
		t.Errorf("moved to %q, %v", to, err)
	}
	if err := f.Source.SetFact(t.Context(), "colour", "blue"); err == nil ||
		!strings.Contains(err.Error(), "was moved to the new database") {
		t.Errorf("a change of the old database: %v", err)
	}
	f.asMigrated()
	if _, err := Run(t.Context(), f.Options); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second move: %v", err)
	}
	if err := Cancel(t.Context(), f.Source); err == nil {
		t.Error("a complete move was canceled")
	}
}

// asMigrated checks that the new database has the foreign keys and triggers of the migrations, and nothing of the move.
func (f *fixture) asMigrated() {
	f.Helper()
	const query = `SELECT COALESCE(STRING_AGG(x, '; ' ORDER BY x COLLATE "C"), '') FROM (
		SELECT conrelid::regclass || ' ' || conname || ' ' || pg_get_constraintdef(oid) x FROM pg_constraint WHERE contype = 'f'
		UNION ALL SELECT tgrelid::regclass || ' ' || tgname || ' ' || tgenabled::text FROM pg_trigger WHERE NOT tgisinternal
		UNION ALL SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 'move%') x`
	var got, want string
	if err := f.Target.QueryRow(f.Context(), query).Scan(&got); err != nil {
		f.Fatal(err)
	}
	if err := dbtest.Postgres(f.T).QueryRow(f.Context(), query).Scan(&want); err != nil {
		f.Fatal(err)
	}
	if got != want || want == "" {
		f.Errorf("the new database has\n%s\nwant\n%s", got, want)
	}
}

var errPause = errors.New("not paused")

// A move that ended with an error continues.
func TestContinue(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Pause = func(context.Context) (func(), error) { return nil, errPause }
	if _, err := Run(t.Context(), f.Options); !errors.Is(err, errPause) {
		t.Fatal(err)
	}
	if id, err := f.Target.Fact(t.Context(), db.FactMoveID); id == "" || err != nil {
		t.Errorf("the new database is not marked: %v", err)
	}
	other := f.Options
	other.Place = "another database"
	if _, err := Run(t.Context(), other); err == nil || !strings.Contains(err.Error(), "has begun") {
		t.Errorf("a move to another database: %v", err)
	}
	f.change()
	f.Pause = func(context.Context) (func(), error) { return func() {}, nil }
	if _, err := Run(t.Context(), f.Options); err != nil {
		t.Fatal(err)
	}
	f.same()
	f.asMigrated()
}

// A move that could not close the old database continues after the new one was complete.
func TestAfterComplete(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.Source.SetFact(t.Context(), "alarm.disk", "raised"); err != nil {
		t.Fatal(err)
	}
	f.exec(`CREATE TRIGGER moved_teams_insert AFTER INSERT ON teams BEGIN SELECT 1; END`) // closeSource makes this name
	if _, err := Run(t.Context(), f.Options); err == nil {
		t.Fatal("the old database was closed")
	}
	if to, err := f.Source.Fact(t.Context(), db.FactMovedTo); to != "" || err != nil {
		t.Errorf("moved to %q, %v", to, err)
	}
	f.exec(`DROP TRIGGER moved_teams_insert`)
	f.change()
	if err := f.Source.SetFact(t.Context(), "alarm.disk", ""); err != nil { // the alarm is over
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), f.Options); err != nil {
		t.Fatal(err)
	}
	f.same()
	f.asMigrated()
	for name, want := range map[string]string{"colour": "red", "alarm.disk": ""} {
		if got, err := f.Target.Fact(t.Context(), name); got != want || err != nil {
			t.Errorf("%s is %q, %v", name, got, err)
		}
	}
}

// The last step of a move that was killed before it is done by the next one.
func TestLastStep(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := Run(t.Context(), f.Options); err != nil {
		t.Fatal(err)
	}
	begun, err := f.Source.Fact(t.Context(), db.FactMoveID)
	if err != nil {
		t.Fatal(err)
	}
	id, _, _ := strings.Cut(begun, " ")
	if err := f.Target.SetFact(t.Context(), db.FactMoveID, id); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), f.Options); err != nil {
		t.Error(err)
	}
	if id, err := f.Target.Fact(t.Context(), db.FactMoveID); id != "" || err != nil {
		t.Errorf("the new database is still marked: %q, %v", id, err)
	}
}

// Rows that differ are noticed, and the next move copies their table again.
func TestDifferentRows(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.Pause = func(context.Context) (func(), error) { return nil, errPause }
	if _, err := Run(t.Context(), f.Options); !errors.Is(err, errPause) {
		t.Fatal(err)
	}
	for _, text := range []string{`DELETE FROM suppressions`, `UPDATE contents SET subject = 'other'`} {
		err := f.Target.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), f.Options); err == nil || !strings.Contains(err.Error(), "copies this table again") {
			t.Errorf("%s: %v", text, err)
		}
	}
	f.Pause = func(context.Context) (func(), error) { return func() {}, nil }
	f.change()
	if _, err := Run(t.Context(), f.Options); err != nil {
		t.Error(err)
	}
	f.same()
}

// A canceled move leaves the old database as it was. Databases that are in use are refused.
func TestCancel(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	schema := func() (n int) {
		if err := f.Source.QueryRow(t.Context(), `SELECT COUNT(*) FROM sqlite_schema`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := schema()
	if err := Cancel(t.Context(), f.Source); err == nil {
		t.Error("a move that has not begun was canceled")
	}
	f.Pause = func(context.Context) (func(), error) { return nil, errPause }
	if _, err := Run(t.Context(), f.Options); !errors.Is(err, errPause) {
		t.Fatal(err)
	}
	if err := Cancel(t.Context(), f.Source); err != nil {
		t.Error(err)
	}
	if after := schema(); after != before {
		t.Errorf("the schema has %d entries, and had %d", after, before)
	}
	f.change()
	if _, err := Run(t.Context(), f.Options); err == nil || !strings.Contains(err.Error(), "name an empty database") {
		t.Errorf("a database of a canceled move: %v", err)
	}
	f.URL = dbtest.EmptyPostgresURL(t)
	f.Target = dbtest.Open(t, f.URL)
	if _, err := f.Target.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Target.SetFact(t.Context(), db.FactKeyCheck, "check"); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), f.Options); err == nil || !strings.Contains(err.Error(), "has an installation already") {
		t.Errorf("a database in use: %v", err)
	}
}

// Only one move at a time uses a database.
func TestTwoMoves(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	to, err := openTarget(t.Context(), f.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	if err := to.lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), f.Options); err == nil || !strings.Contains(err.Error(), "another `postrider promote`") {
		t.Errorf("a second move: %v", err)
	}
}

// A unique value that moves to another row while a table is copied does not end the move.
func TestUniqueBetweenPages(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.copied()
	// The move was killed after a page that ended with row 3.
	to, err := openTarget(t.Context(), f.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer to.close()
	reached, err := encodeKey([]any{[16]byte{15: 3}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := to.Exec(t.Context(), `UPDATE move_state SET reached = $1, done = false WHERE tab = 'suppressions'`,
		reached); err != nil {
		t.Fatal(err)
	}
	to.close()
	f.exec(`UPDATE suppressions SET id = $1 WHERE id = $2`, id16(9), id16(2))
	f.finish()
}

// A round replaces rows that have taken unique values from rows that changed long after them.
func TestUniqueBetweenChanges(t *testing.T) {
	t.Parallel()
	for name, between := range map[string][]string{
		"transactions": {fmt.Sprintf(`WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d)
			INSERT INTO suppressions (id, team_id, address, origin, created_at)
			SELECT randomblob(16), randomblob(16), '', 'many', 1 FROM s`, replaceMost),
			`DELETE FROM suppressions WHERE origin = 'many'`},
		"parts": {fmt.Sprintf(`WITH RECURSIVE s (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < %d)
			INSERT INTO move_changes (tab, k1) SELECT 'suppressions', id
			FROM s, suppressions WHERE origin = 'early'`, changesMost)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			f.copied()
			f.exec(`UPDATE suppressions SET origin = 'early' WHERE id = $1`, id16(1))
			for _, text := range between {
				f.exec(text)
			}
			f.exec(`UPDATE suppressions SET address = 'another' WHERE id = $1`, id16(3))
			f.exec(`UPDATE suppressions SET (team_id, address) = (SELECT team_id, $1 FROM suppressions WHERE id = $2)
				WHERE id = $3`, value(column{"address", "text"}, 3), id16(3), id16(1))
			f.finish()
		})
	}
}

func id16(i int) any { return value(column{"id", "uuid"}, i) }

// copied runs a move until the node would be paused.
func (f *fixture) copied() {
	f.Helper()
	f.Pause = func(context.Context) (func(), error) { return nil, errPause }
	if _, err := Run(f.Context(), f.Options); !errors.Is(err, errPause) {
		f.Fatal(err)
	}
}

// finish continues a move until its end.
func (f *fixture) finish() {
	f.Helper()
	f.Pause = func(context.Context) (func(), error) { return func() {}, nil }
	if _, err := Run(f.Context(), f.Options); err != nil {
		f.Fatal(err)
	}
	f.same()
	f.asMigrated()
}

// An installation of an earlier release is refused before its tables change.
func TestForeignInstallation(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.asReleased()
	f.execTarget(`INSERT INTO nodes (id, beat, started_at) VALUES (gen_random_uuid(), 1, 1)`)
	if _, err := Run(t.Context(), f.Options); err == nil || !strings.Contains(err.Error(), "has an installation already") {
		t.Errorf("a foreign installation: %v", err)
	}
	var last string
	if err := f.Target.QueryRow(t.Context(), `SELECT MAX(name) FROM migrations`).Scan(&last); err != nil ||
		!strings.HasPrefix(last, "0007") {
		t.Errorf("the foreign installation has the migration %s: %v", last, err)
	}
	f.execTarget(`DELETE FROM nodes`)
	f.finish()
}

// asReleased makes the target as a release did that had no facts.
func (f *fixture) asReleased() {
	f.Helper()
	for _, text := range []string{`DROP TABLE installation, certificate_values, certificate_locks, certificate_failures,
		mta_sts_policies, tls_reports, tls_report_policies, tls_report_sessions, domain_connect_keys, domain_keys,
		served_policies, report_addresses, report_days, report_reporters, received_reports, received_dmarc_rows,
		received_tls_rows, dmarc_reports, dmarc_report_rows, dmarc_report_days, dmarc_report_bounces, forwards,
		forward_targets, forward_asks, forwarded_copies`,
		`ALTER TABLE domains DROP COLUMN setup, DROP COLUMN former_setup, DROP COLUMN setup_token, DROP COLUMN advised,
			DROP COLUMN zone_checksum, DROP COLUMN zone_serial, DROP COLUMN rsa_selector, DROP COLUMN ed25519_selector,
			DROP COLUMN keys_since, DROP COLUMN rotate_at, DROP COLUMN dmarc_record, DROP COLUMN bimi_record`,
		`DELETE FROM migrations WHERE name > '0008'`} {
		f.execTarget(text)
	}
}

func (f *fixture) execTarget(text string) {
	f.Helper()
	err := f.Target.Update(f.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(f.Context(), text)
		return err
	})
	if err != nil {
		f.Fatalf("%s: %v", text, err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	key := []any{[16]byte{1, 2, 15: 9}, int64(-5), "é \x00 text", []byte{0, 1}, true, ""}
	text, err := encodeKey(key)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeKey(text, len(key))
	if err != nil || fmt.Sprintf("%#v", got) != fmt.Sprintf("%#v", key) {
		t.Errorf("%#v, %v; want %#v", got, err, key)
	}
	for n := range len(text) {
		if _, err := decodeKey(text[:n], len(key)); err == nil {
			t.Errorf("%q was decoded", text[:n])
		}
	}
	if _, err := fromSQLite("text", "a\x00b"); err == nil {
		t.Error("a NUL character was taken for PostgreSQL")
	}
	if _, err := fromSQLite("uuid", []byte{1}); err == nil {
		t.Error("a short id was taken")
	}
}
