package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	rowsTogether       = 32 // maximum number of reads that share a statement
	rowsTogetherAtOnce = 2  // maximum number of shared statements that run at a time for each RowQuery
)

// pendingRow is a call of ReadRow that waits.
type pendingRow struct {
	dest, args []any
	found      bool
	done       chan error
}

// errApart means that a shared statement failed, so that each of its reads runs its own statement.
var errApart = errors.New("read apart")

func (p *postgresDB) readRow(ctx context.Context, q *RowQuery, dest, args []any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if q.list == "" {
		return p.queryRow(ctx, q.one, args).Scan(dest...)
	}
	known, ok := p.rowReads.Load(q)
	if !ok {
		known, _ = p.rowReads.LoadOrStore(q, &gather[pendingRow]{most: rowsTogether, atOnce: rowsTogetherAtOnce})
	}
	g, r := known.(*gather[pendingRow]), &pendingRow{dest: dest, args: args, done: make(chan error, 1)}
	all := context.WithoutCancel(ctx)
	g.add(r, func(group []*pendingRow) { p.readRows(all, q, group) })
	turn := time.NewTimer(p.patience)
	defer turn.Stop()
	var err, late error
	select {
	case err = <-r.done:
	case <-ctx.Done():
		late = ctx.Err()
	case <-turn.C:
		late = unavailable("wait for a statement", errors.New("those before took too long"))
	}
	if late != nil {
		if g.leave(r) {
			return late
		}
		err = <-r.done // the statement has begun, and writes to dest
	}
	if err == errApart {
		return p.queryRow(ctx, q.one, args).Scan(dest...)
	}
	return err
}

// readRows reads the rows of a group, and tells each read its error.
func (p *postgresDB) readRows(ctx context.Context, q *RowQuery, group []*pendingRow) {
	if len(group) == 1 {
		group[0].done <- p.readOne(ctx, q, group[0])
		return
	}
	err := p.readGroup(ctx, q, group)
	for _, r := range group {
		switch {
		case err != nil && !errors.Is(err, ErrUnavailable):
			r.done <- errApart
		case err != nil:
			r.done <- err
		case !r.found:
			r.done <- ErrNoRows
		default:
			r.done <- nil
		}
	}
}

// apartAfterPanic sets an error because of which a read runs again in its caller's goroutine, where it panics again.
func apartAfterPanic(err *error) {
	if recover() != nil {
		*err = errApart
	}
}

func (p *postgresDB) readOne(ctx context.Context, q *RowQuery, r *pendingRow) (err error) {
	defer apartAfterPanic(&err)
	return p.queryRow(ctx, q.one, r.args).Scan(r.dest...)
}

// readGroup runs the statement with lists.
func (p *postgresDB) readGroup(ctx context.Context, q *RowQuery, group []*pendingRow) (err error) {
	defer apartAfterPanic(&err)
	c, err := p.acquire(ctx, p.pool)
	if err != nil {
		return err
	}
	defer p.release(c)
	all := make([][]any, len(group))
	for i, r := range group {
		all[i] = r.args
	}
	rows, err := c.Query(ctx, q.list, columns(all)...)
	if err == nil {
		err = scanGroup(rows, c.Conn(), group)
	}
	return pgError(ctx, c.Conn(), "query", err)
}

// scanGroup scans each row into the destinations of its read, whose number is the row's first column.
func scanGroup(rows pgx.Rows, c *pgx.Conn, group []*pendingRow) error {
	defer rows.Close()
	var nth int64
	var dest []any
	for rows.Next() {
		first := rows.FieldDescriptions()[0]
		if err := c.TypeMap().Scan(first.DataTypeOID, first.Format, rows.RawValues()[0], &nth); err != nil {
			return err
		}
		r := group[nth-1]
		dest = append(append(dest[:0], &nth), r.dest...)
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		r.found = true
	}
	rows.Close()
	return rows.Err()
}
