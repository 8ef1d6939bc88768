package db

import "context"

// Statement is an SQL statement that the database received.
type Statement struct {
	SQL  string
	Args []any
	List *Statement // the statement for several rows, with one row, if SQL is the text of a RowStatement or RowQuery
}

// broken replaces a statement that a test wants to fail. Both engines reject the text of broken as invalid SQL.
const broken = `THIS STATEMENT IS BROKEN BY A TEST`

// traced reports each statement that callers run on an engine. Internal statements are not reported: migrations, hints,
// readiness checks and readings of the clock.
type traced struct {
	engine
	tracer
}

// tracer passes each statement to the trace function, and makes a statement fail if the breaks function returns true
// for it. The trace and breaks functions may be nil.
type tracer struct {
	trace  func(Statement)
	breaks func(Statement) bool
}

// report passes a statement to the trace function and returns the statement to run. If the statement must fail, report
// returns the invalid statement broken.
func (t tracer) report(sql string, args []any) (string, []any) {
	if t.breaksAt(Statement{SQL: sql, Args: args}) {
		return broken, nil
	}
	return sql, args
}

// breaksAt passes a statement to the trace function, and reports whether the statement must fail.
func (t tracer) breaksAt(s Statement) bool {
	if t.trace != nil {
		t.trace(s)
	}
	return t.breaks != nil && t.breaks(s)
}

func (t traced) query(ctx context.Context, sql string, args []any) (Rows, error) {
	sql, args = t.report(sql, args)
	return t.engine.query(ctx, sql, args)
}

func (t traced) queryRow(ctx context.Context, sql string, args []any) Row {
	sql, args = t.report(sql, args)
	return t.engine.queryRow(ctx, sql, args)
}

func (t traced) readLong(ctx context.Context, fn func(querier) error) error {
	return t.engine.readLong(ctx, func(q querier) error { return fn(tracedReads{q, t.tracer}) })
}

// readRow runs the statement apart, because the trace function may read too, for which it would wait in a shared
// transaction or statement.
func (t traced) readRow(ctx context.Context, q *RowQuery, dest, args []any) error {
	text := q.one
	s := Statement{SQL: text, Args: args}
	if q.list != "" {
		s.List = &Statement{SQL: q.list, Args: columns([][]any{args})}
	}
	if t.breaksAt(s) {
		text, args = broken, nil
	}
	return t.engine.queryRow(ctx, text, args).Scan(dest...)
}

type tracedReads struct {
	querier
	tracer
}

func (t tracedReads) query(ctx context.Context, sql string, args []any) (Rows, error) {
	sql, args = t.report(sql, args)
	return t.querier.query(ctx, sql, args)
}

func (t tracedReads) queryRow(ctx context.Context, sql string, args []any) Row {
	sql, args = t.report(sql, args)
	return t.querier.queryRow(ctx, sql, args)
}

func (t traced) update(ctx context.Context, fn func(*Tx) error) error {
	return t.engine.update(ctx, t.telling(fn))
}

func (t traced) updateApart(ctx context.Context, fn func(*Tx) error) error {
	return t.engine.updateApart(ctx, t.telling(fn))
}

func (t traced) telling(fn func(*Tx) error) func(*Tx) error {
	return func(tx *Tx) error {
		w := tracedWriter{tx.w, t.tracer}
		tx.Reader, tx.w = Reader{w}, w
		return fn(tx)
	}
}

type tracedWriter struct {
	writer
	tracer
}

func (t tracedWriter) query(ctx context.Context, sql string, args []any) (Rows, error) {
	sql, args = t.report(sql, args)
	return t.writer.query(ctx, sql, args)
}

func (t tracedWriter) queryRow(ctx context.Context, sql string, args []any) Row {
	sql, args = t.report(sql, args)
	return t.writer.queryRow(ctx, sql, args)
}

func (t tracedWriter) exec(ctx context.Context, sql string, args []any) (int64, error) {
	sql, args = t.report(sql, args)
	return t.writer.exec(ctx, sql, args)
}

func (t tracedWriter) queue(ctx context.Context, sql string, args []any) {
	sql, args = t.report(sql, args)
	t.writer.queue(ctx, sql, args)
}

func (t tracedWriter) queueOne(ctx context.Context, missing error, sql string, args []any) {
	sql, args = t.report(sql, args)
	t.writer.queueOne(ctx, missing, sql, args)
}

func (t tracedWriter) queueHold(ctx context.Context, missing error, table string, id any) {
	if sql, _ := t.report(`SELECT 1 FROM `+table+` WHERE id = $1`, []any{id}); sql == broken {
		t.writer.queue(ctx, broken, nil)
		return
	}
	t.writer.queueHold(ctx, missing, table, id)
}

func (t tracedWriter) queueRow(ctx context.Context, missing error, s *RowStatement, args []any) {
	if t.breaksAt(Statement{SQL: s.one, Args: args, List: &Statement{SQL: s.list, Args: columns([][]any{args})}}) {
		t.writer.queue(ctx, broken, nil)
		return
	}
	t.writer.queueRow(ctx, missing, s, args)
}
