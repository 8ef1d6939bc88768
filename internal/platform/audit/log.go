package audit

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	sweepRows = 500  // number of rows that one transaction deletes
	partRows  = 2000 // number of rows that one call to Part reads
)

// Log writes, reads and deletes entries.
type Log struct {
	d         *db.DB
	retention atomic.Int64 // a duration
}

// New returns the log. Sweep deletes entries that are older than the retention period; a period of 0 keeps all entries.
func New(d *db.DB, retention time.Duration) *Log {
	l := &Log{d: d}
	l.SetRetention(retention)
	return l
}

// SetRetention replaces the retention period.
func (l *Log) SetRetention(retention time.Duration) { l.retention.Store(int64(retention)) }

// Record queues an entry in the same transaction as the change that the entry describes. If e has no actor or address,
// Record copies it from the entry in ctx. The entry in ctx is then not written (see [With]). If neither entry names an
// actor, the actor is the system.
func (l *Log) Record(ctx context.Context, tx *db.Tx, e Entry) {
	if r := carried(ctx); r != nil {
		e.fill(r.replace(tx))
	}
	add(ctx, tx, e)
}

// Also records a consequence of a request in an additional entry; the request's own entry is still written.
func (l *Log) Also(ctx context.Context, tx *db.Tx, e Entry) {
	if r := carried(ctx); r != nil {
		r.mu.Lock()
		e.fill(r.entry)
		r.mu.Unlock()
	}
	add(ctx, tx, e)
}

func add(ctx context.Context, tx *db.Tx, e Entry) {
	if e.ActorKind == "" {
		e.ActorKind = "system"
	}
	e.ID, e.At = id.At(tx.Now()), tx.Now()
	insert(ctx, tx, &e)
}

// Write records an action that changes nothing, such as a failed sign-in or the display of a secret, in a separate
// transaction.
func (l *Log) Write(ctx context.Context, e Entry) error {
	err := l.d.Update(ctx, func(tx *db.Tx) error {
		l.Record(ctx, tx, e)
		return nil
	})
	if err != nil {
		return fmt.Errorf("record %s: %w", e.Action, err)
	}
	return nil
}

// Filter selects entries. Empty fields do not restrict the selection.
type Filter struct {
	ActorID string
	Action  string
	Target  string
	From    time.Time // inclusive
	To      time.Time // exclusive
}

// List returns a page of a team's entries, newest first. If no index supports the filter, List reads a limited number
// of entries and may return less than a full page. The returned cursor is for the next call.
func (l *Log) List(ctx context.Context, teamID string, f Filter, p page.Page) (all []Entry, more bool, next string,
	err error) {
	return list(ctx, l.d.Reader, teamID, f, p)
}

// Part reads a team's next 2,000 entries after a cursor and returns those that match the filter. The returned cursor is
// for the next call; it is "" after the last entry.
func (l *Log) Part(ctx context.Context, teamID string, f Filter, after string) (some []Entry, next string, err error) {
	return part(ctx, l.d.Reader, teamID, f, after)
}

// Sweep deletes, in batches, entries that are older than the retention period.
func (l *Log) Sweep(ctx context.Context) error {
	retention := time.Duration(l.retention.Load())
	if retention <= 0 {
		return nil
	}
	before := id.First(l.d.Now().Add(-retention))
	err := l.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteBefore(ctx, tx, before, sweepRows) })
	if err != nil {
		return fmt.Errorf("delete old entries of the audit log: %w", err)
	}
	return nil
}

// EraseTeam deletes a team's entries.
func (l *Log) EraseTeam(ctx context.Context, teamID string) error {
	err := l.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteTeam(ctx, tx, teamID, sweepRows) })
	if err != nil {
		return fmt.Errorf("erase the audit log of team %s: %w", teamID, err)
	}
	return nil
}
