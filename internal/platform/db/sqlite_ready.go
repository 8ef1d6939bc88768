package db

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	probeEvery = 3 * time.Second // a commit within this time shows that the writer works
	probeAgain = time.Second     // a failed probe is not repeated within this time
)

// writeCheck finds out whether the writer can store something. Usually, the commits of the node show that. If there was
// none lately, or the last one failed, a probe is committed.
type writeCheck struct {
	began  time.Time
	stored atomic.Int64 // time of the last commit that stored something, since began; 0 after a failed one

	mu   sync.Mutex
	last *writeProbe // may be in progress
}

// writeProbe is a commit that only shows whether commits work.
type writeProbe struct {
	done  chan struct{}
	err   error // of the commit, after done is closed
	ended time.Time
}

func (c *writeCheck) succeeded() { c.stored.Store(int64(time.Since(c.began)) + 1) }
func (c *writeCheck) failed()    { c.stored.Store(0) }

// works reports whether something was stored within the last probeEvery, and nothing has failed since.
func (c *writeCheck) works() bool {
	at := c.stored.Load()
	return at > 0 && time.Since(c.began)-time.Duration(at) < probeEvery
}

// probe returns the probe in progress, one that has just failed, or a new one.
func (s *sqliteDB) probe() *writeProbe {
	c := &s.writes
	c.mu.Lock()
	defer c.mu.Unlock()
	if p := c.last; p != nil {
		select {
		case <-p.done:
			// The probe may have succeeded since the caller looked.
			if p.err == nil && c.works() || p.err != nil && time.Since(p.ended) < probeAgain {
				return p
			}
		default:
			return p
		}
	}
	p := &writeProbe{done: make(chan struct{})}
	c.last = p
	go func() {
		p.err = s.enqueue(context.Background(), s.storeProbe)
		p.ended = time.Now()
		close(p.done)
	}()
	return p
}

// storeProbe changes a number in the head of the file, which SQLite leaves to its users and Postrider does not read. It
// needs no table, so it works during migrations, too.
func (s *sqliteDB) storeProbe(tx *Tx) error {
	tx.w.(*sqliteTx).stores = true
	number := time.Now().UnixMilli() & 0x7fffffff
	_, err := s.conn.ExecContext(context.Background(), fmt.Sprintf("PRAGMA user_version = %d", number))
	return sqliteError("store a probe", err)
}

// ready returns an error if a reader cannot read, or the writer cannot store anything. It returns at the latest when
// ctx ends, unless the disk blocks a reader.
func (s *sqliteDB) ready(ctx context.Context) error {
	var one int
	if err := s.queryRow(ctx, `SELECT 1`, nil).Scan(&one); err != nil {
		return err
	}
	if s.frozen.Load() {
		return unavailable("update", errFrozen)
	}
	if s.writes.works() {
		return nil
	}
	p := s.probe()
	select {
	case <-p.done:
		return p.err
	case <-ctx.Done():
		return unavailable("store a probe", ctx.Err())
	}
}
