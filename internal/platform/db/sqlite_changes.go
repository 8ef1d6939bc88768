package db

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
)

// changes runs the statements of the writer that change rows. It gives them to the driver directly. Package database/sql
// takes several locks for each statement, and looks at each argument by reflection, which takes a tenth of the time of
// an INSERT. Only one goroutine at a time may use a changes.
type changes struct {
	conn *sql.Conn
	args []driver.NamedValue // of the last statement, to be used again
}

// bareStmt is a prepared statement of the driver.
type bareStmt interface {
	driver.Stmt
	driver.StmtExecContext
}

func (c *changes) prepare(ctx context.Context, text string) (st bareStmt, err error) {
	err = c.conn.Raw(func(conn any) error {
		prepared, err := conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
		if err == nil {
			st = prepared.(bareStmt)
		}
		return err
	})
	return st, err
}

func (c *changes) run(ctx context.Context, st bareStmt, args []any) (res driver.Result, err error) {
	if err := c.bind(args); err != nil {
		return nil, err
	}
	err = c.conn.Raw(func(any) error {
		res, err = st.ExecContext(ctx, c.args)
		return err
	})
	return res, err
}

// bind sets c.args to the arguments, as the types that drivers know.
func (c *changes) bind(args []any) error {
	clear(c.args)
	c.args = c.args[:0]
	for i, a := range args {
		v, err := driverValue(a)
		if err != nil {
			return fmt.Errorf("parameter $%d: %w", i+1, err)
		}
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return nil
}

func driverValue(a any) (driver.Value, error) {
	switch a := a.(type) {
	case nil, string, int64, bool, []byte, float64:
		return a, nil
	case int:
		return int64(a), nil
	case ID:
		return a.Value()
	}
	return driver.DefaultParameterConverter.ConvertValue(a)
}
