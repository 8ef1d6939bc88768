package nodelimits

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// errNotANode means that this node has no row in the nodes table. The node then writes no limit rows, because they
// would never be deleted.
var errNotANode = errors.New("this node is not among the nodes")

// row contains the values of a node's row for one key.
type row struct{ want, used, held float64 }

const (
	writeRow = `INSERT INTO quotas (key, node, want, used, held) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (key, node) DO UPDATE SET want = excluded.want, used = excluded.used, held = excluded.held`
	removeRows = `DELETE FROM quotas WHERE node = $1 AND key = ANY($2)`
	removeAll  = `DELETE FROM quotas WHERE node = $1`
	readRows   = `SELECT key, node, want, used, held FROM quotas WHERE key = ANY($1)`
)

// write stores the given rows for this node and deletes its rows for the keys in gone, in one transaction.
func (s *Shares) write(ctx context.Context, rows map[Key]row, gone []Key) error {
	removed := make([]string, len(gone))
	for i, k := range gone {
		removed[i] = k.String()
	}
	err := s.d.Update(ctx, func(tx *db.Tx) error {
		tx.QueueHold(ctx, errNotANode, "nodes", db.ID(s.node))
		for key, r := range rows {
			tx.Queue(ctx, writeRow, key.String(), db.ID(s.node), r.want, r.used, r.held)
		}
		if len(gone) > 0 {
			tx.Queue(ctx, removeRows, db.ID(s.node), removed)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write this node's part of limits: %w", err)
	}
	return nil
}

// leave deletes all of this node's rows.
func (s *Shares) leave(ctx context.Context) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, removeAll, db.ID(s.node))
		return nil
	})
}

// read returns the demands of all nodes for the given keys.
func (s *Shares) read(ctx context.Context, keys []string) (map[string][]demand, error) {
	all := make(map[string][]demand, len(keys))
	rows, err := s.d.Query(ctx, readRows, keys)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var key string
		var d demand
		err = r.Scan(&key, (*db.ID)(&d.node), &d.want, &d.used, &d.held)
		all[key] = append(all[key], d)
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the nodes' parts of limits: %w", err)
	}
	return all, nil
}
