package promote

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

const (
	changesMost = 100_000 // maximum number of changes that a part of a round reads
	replaceMost = 1000    // maximum number of rows that one transaction replaces

	sayEvery = 10 * time.Second // time between lines of progress
)

// copyAll copies the tables that are not copied yet, page by page.
func (m *move) copyAll(ctx context.Context) error {
	said := time.Now()
	for _, t := range m.tables {
		after, done, err := m.to.reached(ctx, t)
		if err != nil {
			return fmt.Errorf("read how far %s is copied: %w", t.name, err)
		}
		for n := 0; !done; {
			page, err := readPage(ctx, m.file, t, after)
			if err != nil {
				return fmt.Errorf("read %s: %w", t.name, err)
			}
			if err := m.to.addPage(ctx, t, page); err != nil {
				return err
			}
			if done = len(page) == 0; !done {
				after = t.keyOf(page[len(page)-1])
			}
			if n += len(page); time.Since(said) > sayEvery {
				m.Say("copying %s: %d rows so far", t.name, n)
				said = time.Now()
			}
		}
	}
	return nil
}

// round brings the target to the state of one snapshot of the file, and returns the number of rows that it replaced.
// Within the snapshot, it then calls look, unless look is nil.
func (m *move) round(ctx context.Context, look func(queryer) error) (n int, err error) {
	tx, err := m.file.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, fmt.Errorf("begin a snapshot: %w", err)
	}
	defer tx.Rollback()
	n, until, err := m.applyChanges(ctx, tx, nil)
	if err != nil {
		return n, err
	}
	if look != nil {
		if err := look(tx); err != nil {
			return n, err
		}
	}
	if err := tx.Rollback(); err != nil {
		return n, err
	}
	return n, dropChanges(ctx, m.Source, until)
}

// lastRound is the round while no other process can write to the file. It reads back the rows that it replaced.
func (m *move) lastRound(ctx context.Context, c *sql.Conn) (int, error) {
	n, _, err := m.applyChanges(ctx, c, func(r replacement) error {
		var want checksum
		for _, row := range r.rows {
			if err := want.add(row); err != nil {
				return err
			}
		}
		got, err := m.to.readBack(ctx, r)
		if err == nil && !got.equals(&want) {
			err = fmt.Errorf("%d changed rows of %s differ in the new database", want.rows, r.of.name)
		}
		return err
	})
	return n, err
}

// applyChanges replaces all rows whose keys are in the table of changes, and returns their number and the last entry
// that it has read. It calls check, unless check is nil, after rows were replaced.
//
// All these rows are deleted before the first one is inserted: a changed row may have a unique value that another row
// had before its change, and the two keys may be in different parts of the changes.
func (m *move) applyChanges(ctx context.Context, q queryer, check func(replacement) error) (n int, until int64,
	err error) {
	if n, until, err = m.eachChange(ctx, q, func(r replacement) error { return m.to.remove(ctx, r) }); err != nil {
		return n, until, err
	}
	return m.eachChange(ctx, q, func(r replacement) (err error) {
		if r.rows, err = readKeys(ctx, q, r.of, r.keys); err != nil {
			return fmt.Errorf("read changed rows of %s: %w", r.of.name, err)
		}
		if err := m.to.add(ctx, r); err != nil || check == nil {
			return err
		}
		return check(r)
	})
}

// eachChange calls fn with the keys in the table of changes, at most replaceMost at a time, and returns their number
// and the last entry that it has read. It reads changesMost entries at a time, so that its memory is bounded. A key that
// changed often may come more than once.
func (m *move) eachChange(ctx context.Context, q queryer, fn func(replacement) error) (n int, until int64, err error) {
	for {
		changes, err := readChanges(ctx, q, until, changesMost)
		if err != nil {
			return n, until, fmt.Errorf("read the changes: %w", err)
		}
		if len(changes) == 0 {
			return n, until, nil
		}
		until = changes[len(changes)-1].seq
		keys, err := m.changedKeys(changes)
		if err != nil {
			return n, until, err
		}
		for _, t := range m.tables {
			for rest := keys[t.name]; len(rest) > 0; {
				r := replacement{of: t, keys: rest[:min(len(rest), replaceMost)]}
				rest = rest[len(r.keys):]
				if err := fn(r); err != nil {
					return n, until, err
				}
				n += len(r.keys)
			}
		}
	}
}

// changedKeys returns the keys of changes by table, each once.
func (m *move) changedKeys(changes []change) (map[string][][]any, error) {
	tables := map[string]*table{}
	for _, t := range m.tables {
		tables[t.name] = t
	}
	keys, seen := map[string][][]any{}, map[string]bool{}
	for _, c := range changes {
		t := tables[c.table]
		if t == nil {
			return nil, fmt.Errorf("a change of the unknown table %s was recorded by another release: run `postrider promote "+
				"--cancel`, and begin again", c.table)
		}
		key := make([]any, len(t.key))
		for i, at := range t.key {
			v, err := fromSQLite(t.columns[at].kind, c.key[i])
			if err != nil {
				return nil, fmt.Errorf("a changed key of %s: %w", c.table, err)
			}
			key[i] = v
		}
		text, err := encodeKey(key)
		if err != nil {
			return nil, err
		}
		if text = c.table + " " + text; !seen[text] {
			seen[text] = true
			keys[c.table] = append(keys[c.table], key)
		}
	}
	return keys, nil
}

// verify compares the rows of each table in both databases. A table that differs is copied again by the next Run.
func (m *move) verify(ctx context.Context) error {
	said := time.Now()
	for _, t := range m.tables {
		_, err := m.round(ctx, func(q queryer) error {
			var want checksum
			if err := readAll(ctx, q, t, want.add); err != nil {
				return err
			}
			got, err := m.to.sum(ctx, t)
			if err != nil {
				return err
			}
			m.report.Rows += want.rows
			if !got.equals(&want) {
				return &differs{t, want.rows, got.rows}
			}
			return nil
		})
		if d, ok := errors.AsType[*differs](err); ok {
			if err := m.to.again(ctx, d.table); err != nil {
				return err
			}
			return fmt.Errorf("%w: run the command again, which copies this table again", d)
		}
		if err != nil {
			return fmt.Errorf("compare %s: %w", t.name, err)
		}
		m.report.Tables++
		if time.Since(said) > sayEvery {
			m.Say("compared %d of %d tables, %d rows", m.report.Tables, len(m.tables), m.report.Rows)
			said = time.Now()
		}
	}
	m.Say("all %d rows of %d tables are the same in both databases", m.report.Rows, m.report.Tables)
	return nil
}

// differs is the error for a table whose rows differ.
type differs struct {
	table     *table
	want, got int64
}

func (d *differs) Error() string {
	return fmt.Sprintf("the table %s has %d rows here, and %d rows or other values in the new database", d.table.name, d.want,
		d.got)
}
