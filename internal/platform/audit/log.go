package audit

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	sweepRows = 500  // deleted in one transaction
	partRows  = 2000 // that one call of Part looks at
)

// Log writes, reads and deletes entries.
type Log struct {
	d         *db.DB
	retention time.Duration
}

// New returns the log. Sweep deletes entries older than the retention; 0 keeps them.
func New(d *db.DB, retention time.Duration) *Log { return &Log{d, retention} }

// Record queues an entry into the transaction of the change that it tells of. Where e does not say who acted and from
// where, the entry that ctx carries does; that one is not written then (see [With]). Without either, it was the system.
func (l *Log) Record(ctx context.Context, tx *db.Tx, e Entry) {
	if r := carried(ctx); r != nil {
		e.fill(r.replace(tx))
	}
	add(ctx, tx, e)
}

// Also is Record for what follows from what a request asked for, and does not stand in place of it: the entry that ctx
// carries is written, too.
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

// Write records what changes nothing, such as a failed sign-in or the look at a secret, in a transaction of its own.
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

// Filter selects entries. Empty fields select all.
type Filter struct {
	ActorID string
	Action  string
	Target  string
	From    time.Time // inclusive
	To      time.Time // exclusive
}

// List returns a page of a team's entries, newest first. Where no index serves the filter, it looks through a bounded
// number of entries; next is then the cursor from which to go on.
func (l *Log) List(ctx context.Context, teamID string, f Filter, p page.Page) (all []Entry, more bool, next string,
	err error) {
	return list(ctx, l.d.Reader, teamID, f, p)
}

// Part reads a part of a team's entries after a cursor: of the next 2,000 those that the filter selects. next is the
// cursor of the part that follows, "" after the last.
func (l *Log) Part(ctx context.Context, teamID string, f Filter, after string) (some []Entry, next string, err error) {
	return part(ctx, l.d.Reader, teamID, f, after)
}

// Sweep deletes entries that are older than the retention, in batches.
func (l *Log) Sweep(ctx context.Context) error {
	if l.retention <= 0 {
		return nil
	}
	before := id.First(l.d.Now().Add(-l.retention))
	err := l.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteBefore(ctx, tx, before, sweepRows) })
	if err != nil {
		return fmt.Errorf("delete old entries of the audit log: %w", err)
	}
	return nil
}

// EraseTeam deletes the entries of a team.
func (l *Log) EraseTeam(ctx context.Context, teamID string) error {
	err := l.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteTeam(ctx, tx, teamID, sweepRows) })
	if err != nil {
		return fmt.Errorf("erase the audit log of team %s: %w", teamID, err)
	}
	return nil
}
