package db

import (
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
)

// Part is a partition of a table by ranges of ids, on PostgreSQL.
type Part struct {
	Table, Name string
	From, To    ID // the ids that the partition holds, without To
}

// partMap holds the known partitions of each table, in the order of their ids.
type partMap map[string][]Part

// parts are the partitions that a node knows. A statement that names a partition instead of its table is planned once,
// because it concerns no other partition; a statement on the table is planned each time, or locks all partitions. The
// zero value knows none, so all statements name the table.
type parts struct {
	known atomic.Pointer[partMap]
	stale chan struct{} // has an element if the partitions must be read again; its capacity is 1
}

func newParts() parts { return parts{stale: make(chan struct{}, 1)} }

// KnowPartitions replaces the partitions that [DB.PartitionOf] returns.
func (d *DB) KnowPartitions(all []Part) {
	if d.parts != nil {
		d.parts.set(all)
	}
}

// PartitionsStale returns a channel that receives a value when the known partitions must be read again: after they were
// forgotten, or after a statement concerned a row that is newer than all of them.
func (d *DB) PartitionsStale() <-chan struct{} {
	if d.parts == nil {
		return nil
	}
	return d.parts.stale
}

// PartitionOf returns the name of the known partition for an id, or of the table if no such partition is known. Another
// node may drop the partition at any time; see ForgetPartitions.
func (d *DB) PartitionOf(table string, id ID) string { return d.parts.of(table, id) }

// ForgetPartitions reports whether a statement that names a partition failed because the partition was dropped after it
// became known. If so, ForgetPartitions forgets all partitions, and the caller runs the statement again. Several
// callers may do so at the same time. Update does both itself.
func (d *DB) ForgetPartitions(err error) bool { return d.parts.forget(err) }

func (p *parts) set(all []Part) {
	m := partMap{}
	for _, one := range all {
		m[one.Table] = append(m[one.Table], one)
	}
	for _, list := range m {
		slices.SortFunc(list, func(a, b Part) int { return strings.Compare(string(a.From), string(b.From)) })
	}
	p.known.Store(&m)
}

func (p *parts) of(table string, id ID) string {
	if p == nil {
		return table
	}
	m := p.known.Load()
	if m == nil {
		return table
	}
	list := (*m)[table]
	i, found := slices.BinarySearchFunc(list, id, func(one Part, id ID) int {
		return strings.Compare(string(one.From), string(id))
	})
	if !found {
		i-- // the last partition that begins before the id
	}
	if i >= 0 && id < list[i].To {
		return list[i].Name
	}
	if i == len(list)-1 {
		p.askAgain()
	}
	return table
}

// askAgain makes PartitionsStale receive a value.
func (p *parts) askAgain() {
	select {
	case p.stale <- struct{}{}:
	default: // it was asked already
	}
}

// forget does the work of ForgetPartitions. A second caller also gets true, because its statement may have been sent
// before the first caller forgot the partitions.
func (p *parts) forget(err error) bool {
	const undefinedTable = "42P01"
	e, ok := errors.AsType[*pgconn.PgError](err)
	if p == nil || !ok || e.Code != undefinedTable {
		return false
	}
	p.known.Store(nil)
	p.askAgain()
	return true
}

// inPart returns the statement for a partition of the table that it updates.
func (s *RowStatement) inPart(table, name string) *RowStatement {
	if known, ok := s.inParts.Load(name); ok {
		return known.(*RowStatement)
	}
	named := func(text string) string {
		return strings.Replace(text, "UPDATE "+table+" ", "UPDATE "+name+" AS "+table+" ", 1)
	}
	known, _ := s.inParts.LoadOrStore(name, &RowStatement{one: named(s.one), list: named(s.list), table: s.table})
	return known.(*RowStatement)
}
