package requestlog

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/platform/page"
)

const (
	queueBytes = 32 << 20               // of queued entries
	overhead   = 512                    // octets of an entry in addition to its bodies
	patience   = time.Second            // the longest wait of a request for room in the queue
	gather     = 100 * time.Millisecond // how long entries are collected for a batch
	batchRows  = 64
	batchBytes = 512 << 10 // of bodies in a batch, so that it does not occupy SQLite's one writer for long
	retryAfter = time.Second
	writeTime  = 30 * time.Second // limit for one batch
	drainTime  = 10 * time.Second // limit for the whole queue at a stop
	sweepRows  = 500
	partRows   = 2000 // that one call of Part looks at
)

// Service writes, reads and deletes the log.
type Service struct {
	d         *db.DB
	log       *slog.Logger
	retention time.Duration
	room      *fairshare.Pool // octets in the queue, which teams share
	wake      chan struct{}

	mu      sync.Mutex
	waiting []*waiting
	dropped int // entries since this was last logged

	writing sync.Mutex // held while batches are taken and written, so that entries keep their order
}

// waiting is a queued entry.
type waiting struct {
	Entry
	weight int64
}

// New returns the service. Sweep deletes entries older than the retention.
func New(d *db.DB, log *slog.Logger, retention time.Duration) *Service {
	return &Service{d: d, log: log, retention: retention, room: fairshare.New(queueBytes, fairshare.Greed),
		wake: make(chan struct{}, 1)}
}

// Add queues a request for the log. It is quick, except that it waits for up to a second when its team has its share
// of the queue; then it drops the entry. It redacts bodies at once instead of copying them, because most of them
// become much smaller.
func (s *Service) Add(ctx context.Context, r Request) {
	e := Entry{TeamID: r.TeamID, Actor: r.Actor, RequestID: text(r.RequestID, agentMax), Method: r.Method,
		Endpoint: text(Veil(r.Path), pathMax), Status: r.Status, UserAgent: text(Veil(r.UserAgent), agentMax),
		Duration: r.Duration}
	longest := stringMax
	if r.Status < http.StatusBadRequest {
		longest = briefMax
	}
	e.RequestBody, e.ResponseBody = Redact(r.Body, longest), Redact(r.Answer, longest)
	if r.LongAnswer > 0 {
		e.ResponseBody = omitted(r.LongAnswer)
	}
	w := &waiting{e, int64(overhead + len(e.RequestBody) + len(e.ResponseBody))}
	if !s.room.TryAcquire(w.TeamID, w.weight) {
		limited, cancel := context.WithTimeout(ctx, patience)
		err := s.room.Acquire(limited, w.TeamID, w.weight)
		cancel()
		if err != nil {
			s.mu.Lock()
			s.dropped++
			s.mu.Unlock()
			return
		}
	}
	s.mu.Lock()
	w.stamp() // here, so that entries are written in the order of their ids
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// stamp gives an entry its id and its time. The id has the same millisecond: [selected] looks for entries of a span of
// time among the ids of that span.
func (e *Entry) stamp() {
	e.ID, e.CreatedAt = id.New(), db.Now()
	if at, _ := id.Time(e.ID); !at.Equal(e.CreatedAt.Truncate(time.Millisecond)) {
		e.CreatedAt = at // The clock went on in between, or stepped back, where ids do not follow.
	}
}

// text limits a text to so many octets and makes it UTF-8 without NUL, as databases require.
func text(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
}

// Run writes entries until ctx ends, and then those that are still queued. End ctx after the last Add.
func (s *Service) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
			defer cancel()
			if err := s.Flush(last); err != nil {
				s.mu.Lock()
				s.dropped += len(s.waiting)
				s.mu.Unlock()
				s.log.Warn("could not write the request log before stopping", "error", err)
			}
			s.logDropped()
			return nil
		case <-s.wake:
		}
		wait := gather
		if err := s.Flush(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("could not write the request log; it is tried again", "error", err)
			wait = retryAfter
			select {
			case s.wake <- struct{}{}:
			default:
			}
		}
		s.logDropped()
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// logDropped logs how many entries were dropped.
func (s *Service) logDropped() {
	s.mu.Lock()
	n := s.dropped
	s.dropped = 0
	s.mu.Unlock()
	if n > 0 {
		s.log.Warn("the request log is incomplete: the database did not keep up", "dropped", n)
	}
}

// Flush writes everything that is queued. After an error, what was not written stays queued.
func (s *Service) Flush(ctx context.Context) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	for {
		batch := s.next()
		if len(batch) == 0 {
			return nil
		}
		if err := s.write(ctx, batch); err != nil {
			return err
		}
		for _, w := range batch {
			s.room.Release(w.TeamID, w.weight)
		}
		s.mu.Lock()
		clear(s.waiting[:len(batch)])
		if s.waiting = s.waiting[len(batch):]; len(s.waiting) == 0 {
			s.waiting = nil
		}
		s.mu.Unlock()
	}
}

// next returns the next batch, which stays in the queue until it is written.
func (s *Service) next() []*waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(s.waiting) && n < batchRows && size < batchBytes {
		size += s.waiting[n].weight
		n++
	}
	return s.waiting[:n:n]
}

func (s *Service) write(ctx context.Context, batch []*waiting) error {
	entries := make([]Entry, len(batch))
	for i, w := range batch {
		entries[i] = w.Entry
	}
	limited, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	err := s.d.Update(limited, func(tx *db.Tx) error { insert(limited, tx, entries); return nil })
	if err != nil {
		return fmt.Errorf("write %d log entries: %w", len(entries), err)
	}
	return nil
}

// List returns a page of a team's entries, without bodies, newest first, and whether there may be more beyond it. With
// a filter that selects few it looks at some 100,000 entries at most: if the page is not full then, next is the cursor
// from which to look on, otherwise "". p must have a limit.
func (s *Service) List(ctx context.Context, teamID string, f Filter, p page.Page) (some []Entry, more bool, next string,
	err error) {
	if err := f.check(); err != nil {
		return nil, false, "", err
	}
	return list(ctx, s.d.Reader, teamID, f, p)
}

// Part reads a part of a team's log after a cursor: those of its next entries that the filter selects, newest first and
// without bodies. next is the cursor of the part that follows, "" after the last. It looks at no more than 2,000
// entries.
func (s *Service) Part(ctx context.Context, teamID string, f Filter, after string) (some []Entry, next string,
	err error) {
	if err := f.check(); err != nil {
		return nil, "", err
	}
	return part(ctx, s.d.Reader, teamID, f, after)
}

// Get returns one entry with its bodies. The error is a NotFound fault when there is none.
func (s *Service) Get(ctx context.Context, teamID, entryID string) (Entry, error) {
	return get(ctx, s.d.Reader, teamID, entryID)
}

// Sweep deletes entries that are older than the retention, in batches.
func (s *Service) Sweep(ctx context.Context) error {
	before := id.First(db.Now().Add(-s.retention))
	for team := ""; ; {
		var err error
		if team, err = nextTeam(ctx, s.d.Reader, team); err != nil || team == "" {
			return err
		}
		for more := true; more; {
			err := s.d.Update(ctx, func(tx *db.Tx) error {
				n, err := deleteBefore(ctx, tx, team, before, sweepRows)
				more = n == sweepRows
				return err
			})
			if err != nil {
				return fmt.Errorf("delete old log entries: %w", err)
			}
		}
	}
}
