package db

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	rowsTogether       = 32 // maximum number of reads that share a statement
	rowsTogetherAtOnce = 2  // maximum number of shared statements that run at a time for each RowQuery
)

// rowReads collects the reads of one RowQuery that wait at the same time. No timer is used: reads that begin while
// statements run are part of the next one.
type rowReads struct {
	mu      sync.Mutex
	waiting []*pendingRow
	running int // calls of readAll
}

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
		known, _ = p.rowReads.LoadOrStore(q, &rowReads{})
	}
	g, r := known.(*rowReads), &pendingRow{dest: dest, args: args, done: make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, r)
	start := g.running < rowsTogetherAtOnce
	if start {
		g.running++
	}
	g.mu.Unlock()
	if start {
		go g.readAll(context.WithoutCancel(ctx), p, q)
	}
	turn := time.NewTimer(p.patience)
	defer turn.Stop()
	var err error
	select {
	case err = <-r.done:
	case <-ctx.Done():
		err = g.leave(r, ctx.Err())
	case <-turn.C:
		err = g.leave(r, unavailable("wait for a statement", errors.New("those before took too long")))
	}
	if err == errApart {
		return p.queryRow(ctx, q.one, args).Scan(dest...)
	}
	return err
}

// leave removes a waiting read and returns the given error. If the read's statement has begun, leave waits for its end,
// because the statement writes to the destinations.
func (g *rowReads) leave(r *pendingRow, why error) error {
	g.mu.Lock()
	i := slices.Index(g.waiting, r)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.mu.Unlock()
	if i >= 0 {
		return why
	}
	return <-r.done
}

// readAll runs shared statements until no read waits.
func (g *rowReads) readAll(ctx context.Context, p *postgresDB, q *RowQuery) {
	for {
		for range togetherYields {
			runtime.Gosched() // other goroutines may add their reads
		}
		g.mu.Lock()
		n := min(len(g.waiting), rowsTogether)
		group := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		if n == 0 {
			g.running--
		}
		g.mu.Unlock()
		if n == 0 {
			return
		}
		if n == 1 {
			group[0].done <- p.readOne(ctx, q, group[0])
			continue
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
