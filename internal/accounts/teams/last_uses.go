package teams

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	flushEvery = 10 * time.Second // how often times of last use are written
	flushTime  = 5 * time.Second  // time limit for writing times of last use
	flushMax   = 500              // rows written per transaction
	usesMax    = 100_000          // times that wait to be written
)

// LastUses collects the times at which credentials were last used, so that no request waits until its time is written.
// [LastUses.Run] writes the times. Times that have not been written are lost if the program crashes.
type LastUses struct {
	db   *db.DB
	log  *slog.Logger
	what string
	set  func(ctx context.Context, tx *db.Tx, teamID, id string, at time.Time)

	mu   sync.Mutex
	uses map[string]use // by the id of the credential
}

type use struct {
	teamID string
	at     time.Time
}

// NewLastUses returns a LastUses. The parameter what names the credentials in log lines, and set writes one time.
func NewLastUses(d *db.DB, log *slog.Logger, what string,
	set func(ctx context.Context, tx *db.Tx, teamID, id string, at time.Time)) *LastUses {
	return &LastUses{db: d, log: log, what: what, set: set, uses: map[string]use{}}
}

// Mark records that a credential was used. If too many times wait to be written, Mark records nothing, and the next use
// is recorded instead.
func (l *LastUses) Mark(teamID, id string, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.uses[id]; ok || len(l.uses) < usesMax {
		l.uses[id] = use{teamID, at}
	}
}

// Run writes the times periodically, and once more when ctx is done.
func (l *LastUses) Run(ctx context.Context) error {
	tick := time.NewTicker(flushEvery)
	defer tick.Stop()
	for ended := false; !ended; {
		select {
		case <-ctx.Done():
			ended = true
		case <-tick.C:
		}
		if err := l.flush(context.WithoutCancel(ctx)); err != nil {
			l.log.Warn("could not write when "+l.what+" were last used; will retry", "error", err)
		}
	}
	return nil
}

// flush writes the times, sorted by id, so that two nodes cannot deadlock.
func (l *LastUses) flush(ctx context.Context) error {
	l.mu.Lock()
	uses := l.uses
	l.uses = map[string]use{}
	l.mu.Unlock()
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(uses)), flushMax) {
		limited, cancel := context.WithTimeout(ctx, flushTime)
		err := l.db.Update(limited, func(tx *db.Tx) error {
			for _, id := range ids {
				l.set(limited, tx, uses[id].teamID, id, uses[id].at)
			}
			return nil
		})
		cancel()
		if err != nil {
			l.restore(uses)
			return err
		}
	}
	return nil
}

// restore puts back the times that could not be written, except for credentials that have been used again since.
func (l *LastUses) restore(uses map[string]use) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, u := range uses {
		if l.uses[id].at.Before(u.at) {
			l.uses[id] = u
		}
	}
}
