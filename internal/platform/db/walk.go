package db

import (
	"context"
	"errors"
	"slices"
	"strconv"
)

const walkRows = 2000 // number of rows that one step of Walk reads

// Walk iterates over the rows of a query in steps, in order of an id column. Each call to step receives a range of ids,
// which excludes after and includes upTo. The type of step's parameters is the type of the column. The from parameter
// is a table name with a condition, such as "request_logs WHERE team_id = $1"; args are the condition's arguments. If
// no condition is needed, the table name must be followed by WHERE TRUE. Walk is for queries that no index supports. If
// step returns an error, Walk stops and returns it.
func Walk[T string | ID](ctx context.Context, r Reader, from, column string, args []any,
	step func(after, upTo T) error) error {
	n := len(args)
	text := `SELECT ` + column + ` FROM (SELECT ` + column + ` FROM ` + from +
		` AND ` + column + ` > $` + strconv.Itoa(n+1) + ` ORDER BY ` + column + ` LIMIT $` + strconv.Itoa(n+2) + `) x
		ORDER BY ` + column + ` DESC LIMIT 1`
	var after T
	if first, ok := any(&after).(*ID); ok {
		*first = NoID
	}
	for {
		var upTo T
		err := r.QueryRow(ctx, text, append(slices.Clone(args), after, walkRows)...).Scan(&upTo)
		if errors.Is(err, ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := step(after, upTo); err != nil {
			return err
		}
		after = upTo
	}
}

// WalkIDs iterates over a whole table in order of its id column, with one transaction per step.
func (d *DB) WalkIDs(ctx context.Context, table string, step func(tx *Tx, after, upTo ID) error) error {
	return Walk(ctx, d.Reader, table+" WHERE TRUE", "id", nil, func(after, upTo ID) error {
		return d.Update(ctx, func(tx *Tx) error { return step(tx, after, upTo) })
	})
}
