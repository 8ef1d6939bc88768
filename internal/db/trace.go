package db

import "context"

// Statement is what the database was asked.
type Statement struct {
	SQL  string
	Args []any
}

// traced tells of each statement that is given to an engine, but for those of migrations.
type traced struct {
	engine
	tell func(Statement)
}

func (t traced) query(ctx context.Context, sql string, args []any) (Rows, error) {
	t.tell(Statement{sql, args})
	return t.engine.query(ctx, sql, args)
}

func (t traced) queryRow(ctx context.Context, sql string, args []any) Row {
	t.tell(Statement{sql, args})
	return t.engine.queryRow(ctx, sql, args)
}

func (t traced) update(ctx context.Context, fn func(*Tx) error) error {
	return t.engine.update(ctx, t.telling(fn))
}

func (t traced) updateApart(ctx context.Context, fn func(*Tx) error) error {
	return t.engine.updateApart(ctx, t.telling(fn))
}

func (t traced) telling(fn func(*Tx) error) func(*Tx) error {
	return func(tx *Tx) error {
		w := tracedWriter{tx.w, t.tell}
		tx.Reader, tx.w = Reader{w}, w
		return fn(tx)
	}
}

type tracedWriter struct {
	writer
	tell func(Statement)
}

func (t tracedWriter) query(ctx context.Context, sql string, args []any) (Rows, error) {
	t.tell(Statement{sql, args})
	return t.writer.query(ctx, sql, args)
}

func (t tracedWriter) queryRow(ctx context.Context, sql string, args []any) Row {
	t.tell(Statement{sql, args})
	return t.writer.queryRow(ctx, sql, args)
}

func (t tracedWriter) exec(ctx context.Context, sql string, args []any) (int64, error) {
	t.tell(Statement{sql, args})
	return t.writer.exec(ctx, sql, args)
}

func (t tracedWriter) queue(ctx context.Context, sql string, args []any) {
	t.tell(Statement{sql, args})
	t.writer.queue(ctx, sql, args)
}

func (t tracedWriter) queueOne(ctx context.Context, missing error, sql string, args []any) {
	t.tell(Statement{sql, args})
	t.writer.queueOne(ctx, missing, sql, args)
}

func (t tracedWriter) queueHold(ctx context.Context, missing error, table, id string) {
	t.tell(Statement{`SELECT 1 FROM ` + table + ` WHERE id = $1`, []any{id}})
	t.writer.queueHold(ctx, missing, table, id)
}
