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
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	queueBytes    = 32 << 20               // of queued entries
	entryOverhead = 512                    // estimated size, in bytes, of an entry without its bodies
	addWait       = time.Second            // maximum time that a request waits for space in the queue
	batchWait     = 100 * time.Millisecond // time during which entries are collected for a batch
	batchRows     = 64
	batchBytes    = 512 << 10 // maximum batch size in bytes, which limits how long a batch blocks SQLite's only writer
	retryWait     = time.Second
	writeTimeout  = 30 * time.Second // for one batch
	drainTimeout  = 10 * time.Second // time limit for writing the whole queue at shutdown
	removeRows    = 500              // maximum number of entries deleted in one transaction
	readRows      = 2000             // number of entries that one call to Batch examines
)

// Service writes, reads and deletes the entries of the request log.
type Service struct {
	d      *db.DB
	log    *slog.Logger
	memory *fairshare.Pool // queue memory in bytes, which teams share
	wake   chan struct{}

	mu      sync.Mutex
	queue   []*queuedEntry
	dropped int // number of entries discarded since this number was last logged

	writing sync.Mutex // held while a batch is written, so that batches are written in order
}

// queuedEntry is a log entry in the queue.
type queuedEntry struct {
	storedEntry
	weight int64
}

// New returns the request log service.
func New(d *db.DB, log *slog.Logger) *Service {
	return &Service{d: d, log: log, memory: fairshare.New(queueBytes, fairshare.Greed), wake: make(chan struct{}, 1)}
}

// Add appends a request to the queue of the request log. If the request's team has used up its share of the queue, Add
// waits for up to a second and then discards the entry. Add redacts the bodies immediately instead of copying them,
// because redaction makes most bodies much smaller.
func (s *Service) Add(ctx context.Context, r Request) {
	e := storedEntry{Entry: Entry{TeamID: r.TeamID, Actor: r.Actor, RequestID: text(r.RequestID, agentMax),
		Method: r.Method, Endpoint: text(MaskSecrets(r.Path), pathMax), Status: r.Status,
		UserAgent: text(MaskSecrets(r.UserAgent), agentMax), Duration: r.Duration}}
	longest := stringMax
	if r.Status < http.StatusBadRequest {
		longest = successMax
	}
	if storesBodies(r.Path) {
		hide := hasCredentials(r.Path)
		if len(r.Emails) > 0 && r.Status < http.StatusBadRequest {
			e.RequestBody, e.emailIDs = redactEmails(r.Body, r.Emails)
		} else {
			e.RequestBody = redact(r.Body, longest, hide)
		}
		e.ResponseBody = redact(r.Answer, longest, hide)
		if r.LongAnswer > 0 {
			e.ResponseBody = omitted(r.LongAnswer)
		}
	}
	w := &queuedEntry{e, int64(entryOverhead + len(e.RequestBody) + len(e.ResponseBody) + len(e.emailIDs))}
	if !s.memory.TryAcquire(w.TeamID, w.weight) {
		limited, cancel := context.WithTimeout(ctx, addWait)
		err := s.memory.Acquire(limited, w.TeamID, w.weight)
		cancel()
		if err != nil {
			s.mu.Lock()
			s.dropped++
			s.mu.Unlock()
			return
		}
	}
	s.mu.Lock()
	w.stamp() // called under the lock, so that entries are written in the order of their ids
	s.queue = append(s.queue, w)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// storesBodies reports whether the log stores the bodies of requests to a path. The bodies of requests about approvals
// contain emails that are deleted after the decision, so the log does not store a copy.
func storesBodies(path string) bool { return !under(path, "/approvals") }

// hasCredentials reports whether bodies of requests to a path contain credentials for other services, in the URLs of
// webhooks and forwarding rules and in the header fields of webhook steps.
func hasCredentials(path string) bool {
	return under(path, "/webhooks") || under(path, "/automations") ||
		under(path, "/domains") && strings.Contains(path+"/", "/forwards/")
}

// under reports whether a path is the given prefix or continues it with a slash.
func under(path, prefix string) bool {
	rest, ok := strings.CutPrefix(path, prefix)
	return ok && (rest == "" || rest[0] == '/')
}

// stamp sets the id and the time of an entry to the same millisecond. The query from [selected] finds the entries of a
// time span by their ids, so the id and the time must agree.
func (e *Entry) stamp() {
	e.ID, e.CreatedAt = id.New(), db.Now()
	if at, _ := id.Time(e.ID); !at.Equal(e.CreatedAt.Truncate(time.Millisecond)) {
		e.CreatedAt = at // the clock advanced between the two calls or was set back; ids never go back
	}
}

// text cuts a string to at most limit bytes and removes invalid UTF-8 and NUL characters, which databases reject.
func text(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "")
}

// Run writes queued entries until ctx ends, and then writes the remaining queued entries. Callers must end ctx only
// after the last call to Add.
func (s *Service) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
			defer cancel()
			if err := s.Flush(last); err != nil {
				s.mu.Lock()
				s.dropped += len(s.queue)
				s.mu.Unlock()
				s.log.Warn("could not write the request log before stopping", "error", err)
			}
			s.logDropped()
			return nil
		case <-s.wake:
		}
		wait := batchWait
		if err := s.Flush(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("could not write the request log, will retry", "error", err)
			wait = retryWait
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

// logDropped logs the number of entries that were discarded.
func (s *Service) logDropped() {
	s.mu.Lock()
	n := s.dropped
	s.dropped = 0
	s.mu.Unlock()
	if n > 0 {
		s.log.Warn("the request log is incomplete: the database did not keep up", "dropped", n)
	}
}

// Flush writes all queued entries. After an error, entries that were not written stay in the queue.
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
			s.memory.Release(w.TeamID, w.weight)
		}
		s.mu.Lock()
		clear(s.queue[:len(batch)])
		if s.queue = s.queue[len(batch):]; len(s.queue) == 0 {
			s.queue = nil
		}
		s.mu.Unlock()
	}
}

// next returns the next batch of entries, which stay in the queue until they are written.
func (s *Service) next() []*queuedEntry {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(s.queue) && n < batchRows && size < batchBytes {
		size += s.queue[n].weight
		n++
	}
	return s.queue[:n:n]
}

func (s *Service) write(ctx context.Context, batch []*queuedEntry) error {
	entries := make([]storedEntry, len(batch))
	for i, w := range batch {
		entries[i] = w.storedEntry
	}
	limited, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := s.d.Update(limited, func(tx *db.Tx) error { insert(limited, tx, entries); return nil })
	if err != nil {
		return fmt.Errorf("write %d log entries: %w", len(entries), err)
	}
	return nil
}

// List returns a page of a team's entries without bodies, newest first, and whether there may be more. List examines at
// most about 100,000 entries. If the page is not full when List stops, List also returns the cursor at which the caller
// can continue; otherwise that cursor is "". The page p must have a limit.
func (s *Service) List(ctx context.Context, teamID string, f Filter, p page.Page) (some []Entry, more bool, next string,
	err error) {
	if err := f.check(); err != nil {
		return nil, false, "", err
	}
	return list(ctx, s.d, teamID, f, p)
}

// Batch examines up to 2,000 of a team's entries after a cursor, newest first. Batch returns the entries that the
// filter selects, without bodies. Batch also returns the cursor for the next batch, or "" after the last batch.
func (s *Service) Batch(ctx context.Context, teamID string, f Filter, after string) (some []Entry, next string,
	err error) {
	if err := f.check(); err != nil {
		return nil, "", err
	}
	return readBatch(ctx, s.d, teamID, f, after)
}

// Get returns one entry with its bodies, or a NotFound fault if it does not exist. One query reads all bodies of emails
// to which the entry refers.
func (s *Service) Get(ctx context.Context, teamID, entryID string) (Entry, error) {
	stored, err := get(ctx, s.d.Reader, teamID, entryID)
	e := stored.Entry
	if err == nil && stored.emailIDs != "" {
		ids := strings.Split(stored.emailIDs, ",")
		bodies, err := emails.BodyStarts(ctx, s.d.Reader, teamID, ids, successMax)
		if err != nil {
			return Entry{}, fmt.Errorf("read the bodies of log entry %s: %w", entryID, err)
		}
		e.RequestBody = fill(e.RequestBody, ids, bodies, nil)
	}
	switch { // entries that earlier releases wrote may contain more
	case err != nil:
	case !storesBodies(e.Endpoint):
		e.RequestBody, e.ResponseBody = "", ""
	case hasCredentials(e.Endpoint):
		e.RequestBody = redact([]byte(e.RequestBody), bodyMax, true)
		e.ResponseBody = redact([]byte(e.ResponseBody), bodyMax, true)
	}
	return e, err
}

// RemoveBefore deletes, oldest first, a batch of a team's entries that are older than the given time and have ids above
// the given id. RemoveBefore returns the id at which the next call must continue, or "" if no entry remains to be
// deleted.
func (s *Service) RemoveBefore(ctx context.Context, teamID string, before time.Time, after string) (next string,
	err error) {
	if next, err = s.removeBelow(ctx, teamID, id.First(before), after); err != nil {
		return "", fmt.Errorf("delete old log entries of team %s: %w", teamID, err)
	}
	return next, nil
}

func (s *Service) removeBelow(ctx context.Context, teamID, below, after string) (next string, err error) {
	some, err := between(ctx, s.d.Reader, teamID, after, below, removeRows)
	if err != nil || len(some) == 0 {
		return "", err
	}
	if len(some) == removeRows {
		next = string(some[len(some)-1])
	}
	return next, s.d.Update(ctx, func(tx *db.Tx) error { deleteEntries(ctx, tx, teamID, some); return nil })
}
