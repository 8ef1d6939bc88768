package db

import (
	"context"
	"time"
)

const (
	hintPoll  = 100 * time.Millisecond // interval at which hints are read, because SQLite has no notifications
	hintBatch = 1000
)

// notify stores a hint in the database file for the node that uses the file.
func (s *sqliteDB) notify(ctx context.Context, topic, payload string) error {
	return s.update(ctx, func(t *Tx) error {
		t.Queue(ctx, `INSERT INTO hints (topic, payload) VALUES ($1, $2)`, topic, payload)
		return nil
	})
}

// At intervals of hintPoll, listen calls the got function with each hint that other processes have stored. Hints from
// before the node started are not needed, but are harmless.
func (s *sqliteDB) listen(ctx context.Context, _ []string, _ func(), got func(topic, payload string)) error {
	tick := time.NewTicker(hintPoll)
	defer tick.Stop()
	for {
		if err := s.takeHints(ctx, got); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *sqliteDB) takeHints(ctx context.Context, got func(topic, payload string)) error {
	if s.frozen.Load() { // hints that were taken could not be deleted
		return nil
	}
	type hint struct {
		id             int64
		topic, payload string
	}
	rows, err := s.query(ctx, `SELECT id, topic, payload FROM hints ORDER BY id LIMIT $1`, []any{hintBatch})
	all, err := Collect(rows, err, func(r Row) (h hint, err error) {
		err = r.Scan(&h.id, &h.topic, &h.payload)
		return h, err
	})
	if err != nil || len(all) == 0 {
		return err
	}
	for _, h := range all {
		got(h.topic, h.payload)
	}
	return s.update(ctx, func(t *Tx) error {
		t.Queue(ctx, `DELETE FROM hints WHERE id <= $1`, all[len(all)-1].id)
		return nil
	})
}
