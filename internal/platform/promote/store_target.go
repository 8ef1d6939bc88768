package promote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	stateTable       = "move_state"       // how far each table is copied
	constraintsTable = "move_constraints" // foreign keys that are dropped during the move

	pageRows = 2000
	pageSize = 8 << 20 // bytes
)

// addShards inserts the counters that PostgreSQL has in 16 parts, one for each group of connections, and SQLite in one.
// Parts of quotas without an allowance get one when they are first used. dropShards deletes these parts again.
var (
	addShards = []string{`INSERT INTO broadcast_counts (broadcast_id, variant, part, team_id, sent, delivered, bounced, hard,
		failed, suppressed, canceled, opened, clicked, complained, unsubscribed)
		SELECT broadcast_id, variant, g, team_id, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0
		FROM broadcast_counts, generate_series(1, 15) g WHERE part = 0 ON CONFLICT DO NOTHING`,
		`INSERT INTO team_volumes (team_id, part, day, day_used, day_room, day_told, month, month_used, month_room, month_told)
		SELECT team_id, g, day, 0, 0, day_told, month, 0, 0, month_told FROM team_volumes, generate_series(1, 15) g
		WHERE part = 0 ON CONFLICT DO NOTHING`}
	dropShards = []string{`DELETE FROM broadcast_counts WHERE part > 0`, `DELETE FROM team_volumes WHERE part > 0`}
)

// lockKey is the advisory lock of a move to a database.
const lockKey = 0x706f737472696465

// target is a connection to PostgreSQL. It holds the lock of the move.
type target struct{ *pgx.Conn }

func openTarget(ctx context.Context, url string) (*target, error) {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil, fmt.Errorf("connect to the new database: %w", err)
	}
	// A lost connection must not be noticed only by the next move, which would wait for the lock.
	_, err = c.Exec(ctx, `SET jit = off; SET synchronous_commit = on; SET tcp_keepalives_idle = 10;
		SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3`)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to the new database: %w", err), c.Close(ctx))
	}
	return &target{c}, nil
}

func (t *target) close() { t.Conn.Close(context.Background()) }

// lockWait is the maximum wait for the lock. PostgreSQL may take some seconds to notice that a move was killed. Tests
// set it to less.
var lockWait = 15 * time.Second

// lock locks the database against other moves, until the connection ends.
func (t *target) lock(ctx context.Context) error {
	for start := time.Now(); ; {
		var locked bool
		if err := t.QueryRow(ctx, `SELECT pg_try_advisory_lock($1)`, int64(lockKey)).Scan(&locked); err != nil {
			return fmt.Errorf("lock the new database: %w", err)
		}
		if locked {
			return nil
		}
		if time.Since(start) > lockWait {
			return errors.New("another `postrider promote` is moving an installation to this database: wait until it has ended")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// inUseSigns are tables and conditions. A database has an installation if one of these tables has a row for which its
// condition is true.
var inUseSigns = [][2]string{{"teams", "TRUE"}, {"nodes", "TRUE"}, {"domains", "TRUE"},
	{"installation", "name = '" + db.FactKeyCheck + "'"}}

// inUse reports whether the database has an installation, which may be of an earlier release without some tables.
func (t *target) inUse(ctx context.Context) (used bool, err error) {
	for _, sign := range inUseSigns {
		var exists bool
		if err := t.QueryRow(ctx, `SELECT to_regclass($1::text) IS NOT NULL`, sign[0]).Scan(&exists); err != nil {
			return false, err
		}
		if !exists {
			continue
		}
		err := t.QueryRow(ctx, `SELECT EXISTS (SELECT FROM `+sign[0]+` WHERE `+sign[1]+`)`).Scan(&used)
		if err != nil || used {
			return used, err
		}
	}
	return false, nil
}

// tables returns the tables that are copied, with their columns and keys. Generated columns are left out.
func (t *target) tables(ctx context.Context) ([]*table, error) {
	rows, err := t.Query(ctx, `SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
		COALESCE(array_position(i.indkey::int[], a.attnum::int), -1)
		FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
		JOIN pg_index i ON i.indrelid = c.oid AND i.indisprimary
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
			AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
		ORDER BY c.relname COLLATE "C", a.attname COLLATE "C"`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []*table
	order := map[string]int{} // position in the key by column
	for rows.Next() {
		var name string
		var c column
		var at int
		if err := rows.Scan(&name, &c.name, &c.kind, &at); err != nil {
			return nil, err
		}
		if slices.Contains(left, name) {
			continue
		}
		if len(all) == 0 || all[len(all)-1].name != name {
			all = append(all, &table{name: name})
		}
		of := all[len(all)-1]
		if at >= 0 {
			of.key = append(of.key, len(of.columns))
			order[name+"."+c.name] = at
		}
		of.columns = append(of.columns, c)
	}
	for _, of := range all {
		slices.SortFunc(of.key, func(a, b int) int {
			return order[of.name+"."+of.columns[a].name] - order[of.name+"."+of.columns[b].name]
		})
	}
	return all, rows.Err()
}

// inTx runs fn in a transaction.
func (t *target) inTx(ctx context.Context, fn func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, t.Conn, fn)
}

// exec runs statements without arguments.
func exec(ctx context.Context, tx pgx.Tx, statements ...string) error {
	for _, text := range statements {
		if _, err := tx.Exec(ctx, text); err != nil {
			return fmt.Errorf("%.80s: %w", text, err)
		}
	}
	return nil
}

// errInUse means that the database has an installation.
var errInUse = errors.New("the database has an installation already: name an empty database")

// begin empties the tables, and marks the database as the target of a move, so that no node starts on it. A node that
// starts at the same time stores the check value of its key first, and then looks for the mark. It finds the mark, or
// begin finds the check value.
func (t *target) begin(ctx context.Context, id string, tables []*table) error {
	return t.inTx(ctx, func(tx pgx.Tx) error {
		if err := exec(ctx, tx, `LOCK TABLE installation IN EXCLUSIVE MODE`); err != nil {
			return err
		}
		if used, err := t.inUse(ctx); err != nil || used {
			return cmp.Or(err, errInUse)
		}
		var names []string
		for _, of := range tables {
			names = append(names, of.name)
		}
		return exec(ctx, tx, `TRUNCATE `+strings.Join(names, ", "),
			`CREATE TABLE `+stateTable+` (tab TEXT PRIMARY KEY, reached TEXT NOT NULL, done BOOLEAN NOT NULL)`,
			`CREATE TABLE `+constraintsTable+` (tab TEXT NOT NULL, name TEXT NOT NULL, definition TEXT NOT NULL,
				PRIMARY KEY (tab, name))`,
			`INSERT INTO installation (name, value) VALUES ('`+db.FactMoveID+`', '`+id+`')`)
	})
}

// prepare drops the foreign keys and disables the triggers of the tables, because rows come in any order, and with the
// values that the triggers have computed already.
func (t *target) prepare(ctx context.Context, tables []*table) error {
	return t.inTx(ctx, func(tx pgx.Tx) error {
		// An earlier move may have been interrupted after complete.
		if err := exec(ctx, tx, dropShards...); err != nil {
			return err
		}
		for _, of := range tables {
			if _, err := tx.Exec(ctx, `INSERT INTO `+constraintsTable+` SELECT $1::text, conname, pg_get_constraintdef(oid)
				FROM pg_constraint WHERE conrelid = to_regclass($1::text) AND contype = 'f' ON CONFLICT DO NOTHING`,
				of.name); err != nil {
				return err
			}
			if err := exec(ctx, tx, `ALTER TABLE `+of.name+` DISABLE TRIGGER USER`); err != nil {
				return err
			}
		}
		kept, err := constraints(ctx, tx)
		if err != nil {
			return err
		}
		for _, c := range kept {
			if err := exec(ctx, tx, `ALTER TABLE `+c.tab+` DROP CONSTRAINT IF EXISTS `+c.name); err != nil {
				return err
			}
		}
		return nil
	})
}

type constraint struct{ tab, name, definition string }

func constraints(ctx context.Context, tx pgx.Tx) ([]constraint, error) {
	rows, err := tx.Query(ctx, `SELECT tab, name, definition FROM `+constraintsTable+` ORDER BY tab, name`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (c constraint, err error) {
		err = r.Scan(&c.tab, &c.name, &c.definition)
		return c, err
	})
}

// disabled returns the tables with disabled triggers.
func disabled(ctx context.Context, tx pgx.Tx) ([]string, error) {
	rows, err := tx.Query(ctx, `SELECT DISTINCT c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
		WHERE NOT t.tgisinternal AND t.tgenabled = 'D' AND c.relnamespace = current_schema()::regnamespace`)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// complete makes the foreign keys again, enables the triggers, and copies the facts about the installation. It may run
// more than once.
func (t *target) complete(ctx context.Context, source queryer) error {
	all, err := facts(ctx, source)
	if err != nil {
		return err
	}
	return t.inTx(ctx, func(tx pgx.Tx) error {
		if err := exec(ctx, tx, addShards...); err != nil {
			return err
		}
		kept, err := constraints(ctx, tx)
		if err != nil {
			return err
		}
		for _, c := range kept {
			if err := exec(ctx, tx, `ALTER TABLE `+c.tab+` DROP CONSTRAINT IF EXISTS `+c.name,
				`ALTER TABLE `+c.tab+` ADD CONSTRAINT `+c.name+` `+c.definition); err != nil {
				return err
			}
		}
		tables, err := disabled(ctx, tx)
		if err != nil {
			return err
		}
		for _, name := range tables {
			if err := exec(ctx, tx, `ALTER TABLE `+name+` ENABLE TRIGGER USER`); err != nil {
				return err
			}
		}
		var names []string
		for _, f := range all {
			names = append(names, f[0])
			if _, err := tx.Exec(ctx, `INSERT INTO installation (name, value) VALUES ($1, $2)
				ON CONFLICT (name) DO UPDATE SET value = excluded.value`, f[0], f[1]); err != nil {
				return err
			}
		}
		// An earlier move that was interrupted after complete may have copied facts that are gone now.
		_, err = tx.Exec(ctx, `DELETE FROM installation WHERE name <> $1 AND name <> ALL($2)`, db.FactMoveID, names)
		return err
	})
}

// end removes what the move has added, so that nodes start on the database. The jobs that the old node held become due,
// as they do when that node starts again.
func (t *target) end(ctx context.Context) error {
	return t.inTx(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `UPDATE jobs SET run_at = $1, set_at = $1, holder = NULL WHERE holder IS NOT NULL`,
			time.Now().UnixMicro()); err != nil {
			return fmt.Errorf("release the jobs: %w", err)
		}
		return exec(ctx, tx, `DROP TABLE IF EXISTS `+stateTable+`, `+constraintsTable,
			`DELETE FROM installation WHERE name = '`+db.FactMoveID+`'`)
	})
}

func (t *target) analyze(ctx context.Context) error {
	if _, err := t.Exec(ctx, `ANALYZE`); err != nil {
		return fmt.Errorf("collect statistics of the new database: %w", err)
	}
	return nil
}

// reached returns the key up to which a table is copied, or nil, and whether all of it is copied.
func (t *target) reached(ctx context.Context, of *table) (key []any, done bool, err error) {
	var text string
	err = t.QueryRow(ctx, `SELECT reached, done FROM `+stateTable+` WHERE tab = $1`, of.name).Scan(&text, &done)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil || done {
		return nil, done, err
	}
	key, err = decodeKey(text, len(of.key))
	return key, false, err
}

// addPage inserts the next rows of a table, and stores the place that it reached. An empty page ends the table.
func (t *target) addPage(ctx context.Context, of *table, page [][]any) error {
	return t.inTx(ctx, func(tx pgx.Tx) (err error) {
		text := ""
		if len(page) > 0 {
			if text, err = encodeKey(of.keyOf(page[len(page)-1])); err != nil {
				return err
			}
		}
		if err := insert(ctx, tx, of, page); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `INSERT INTO `+stateTable+` (tab, reached, done) VALUES ($1, $2, $3)
			ON CONFLICT (tab) DO UPDATE SET reached = excluded.reached, done = excluded.done`, of.name, text, len(page) == 0)
		return err
	})
}

// uniqueViolation is the SQLSTATE of a row that has a unique value of another row.
const uniqueViolation = "23505"

// insert inserts rows, except for those that have a unique value of a row in the table. While a table is copied, the
// two rows were read at different times, so both are among the recorded changes, and the next round replaces them. In a
// round, a key that is in two parts of the changes comes twice, with the same row.
func insert(ctx context.Context, tx pgx.Tx, of *table, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	// COPY is fast, but cannot leave out rows. A savepoint keeps its error from ending the transaction.
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{of.name}, of.names(), pgx.CopyFromRows(rows))
		return err
	})
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && e.Code == uniqueViolation {
		err = insertSome(ctx, tx, of, rows)
	}
	if err != nil {
		return fmt.Errorf("copy rows of %s: %w", of.name, err)
	}
	return nil
}

// insertSome inserts rows one by one, except for those that have a unique value of a row in the table.
func insertSome(ctx context.Context, tx pgx.Tx, of *table, rows [][]any) error {
	marks := make([]string, len(of.columns))
	for i := range marks {
		marks[i] = fmt.Sprintf("$%d", i+1)
	}
	text := `INSERT INTO ` + of.name + ` (` + list("", of.names()) + `) VALUES (` + strings.Join(marks, ", ") +
		`) ON CONFLICT DO NOTHING`
	b := &pgx.Batch{}
	for _, row := range rows {
		b.Queue(text, row...)
	}
	return tx.SendBatch(ctx, b).Close()
}

// again empties a table, so that it is copied again.
func (t *target) again(ctx context.Context, of *table) error {
	return t.inTx(ctx, func(tx pgx.Tx) error {
		if err := exec(ctx, tx, `TRUNCATE `+of.name); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `DELETE FROM `+stateTable+` WHERE tab = $1`, of.name)
		return err
	})
}

// replacement has the keys of changed rows of a table, and those of the rows that exist.
type replacement struct {
	of   *table
	keys [][]any
	rows [][]any
}

// remove deletes changed rows.
func (t *target) remove(ctx context.Context, r replacement) error {
	return t.inTx(ctx, func(tx pgx.Tx) error {
		b := &pgx.Batch{}
		text := `DELETE FROM ` + r.of.name + ` WHERE ` + r.of.whereKey("")
		for _, key := range r.keys {
			b.Queue(text, key...)
		}
		if err := tx.SendBatch(ctx, b).Close(); err != nil {
			return fmt.Errorf("delete changed rows of %s: %w", r.of.name, err)
		}
		return nil
	})
}

// add inserts changed rows, which remove has deleted.
func (t *target) add(ctx context.Context, r replacement) error {
	return t.inTx(ctx, func(tx pgx.Tx) error { return insert(ctx, tx, r.of, r.rows) })
}

// readBack returns the checksum of the rows with the given keys.
func (t *target) readBack(ctx context.Context, r replacement) (sum checksum, err error) {
	b := &pgx.Batch{}
	text := `SELECT ` + list("", r.of.names()) + ` FROM ` + r.of.name + ` WHERE ` + r.of.whereKey("")
	for _, key := range r.keys {
		b.Queue(text, key...)
	}
	answers := t.SendBatch(ctx, b)
	defer answers.Close()
	for range r.keys {
		rows, err := answers.Query()
		if err := addRows(&sum, rows, err); err != nil {
			return sum, err
		}
	}
	return sum, answers.Close()
}

// sum returns the checksum of all rows of a table.
func (t *target) sum(ctx context.Context, of *table) (sum checksum, err error) {
	rows, err := t.Query(ctx, `SELECT `+list("", of.names())+` FROM `+of.name)
	err = addRows(&sum, rows, err)
	return sum, err
}

func addRows(sum *checksum, rows pgx.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		row, err := rows.Values()
		if err != nil {
			return err
		}
		for i := range row {
			row[i] = fromPostgres(row[i])
		}
		if err := sum.add(row); err != nil {
			return err
		}
	}
	return rows.Err()
}
