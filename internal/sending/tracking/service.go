package tracking

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	bufferMax  = 64 << 20 // maximum total size, in bytes, of the hits waiting in memory
	hitCost    = 512      // estimated size, in bytes, of a hit without its strings
	batchMax   = 500      // maximum number of hits per transaction
	gather     = 200 * time.Millisecond
	writeTime  = 30 * time.Second // time limit for one transaction
	drainTime  = 10 * time.Second // time limit for recording the waiting hits at shutdown
	retryAfter = time.Second
	logEvery   = time.Minute // minimum interval between log lines about dropped hits
	agentMax   = 512         // maximum stored length, in bytes, of a user agent
	linkMax    = 8192        // maximum stored length, in bytes, of a link, which is also the maximum in a token

	// recordedMax is the maximum number of opens, and of clicks, that are recorded for one recipient of an email. Hits
	// by bots have a separate limit of the same size. Without recordedMax, following one link repeatedly could create
	// an unlimited number of rows and webhooks.
	recordedMax = 1000
)

// Service records hits.
type Service struct {
	d          *db.DB
	recorder   *events.Recorder
	emails     *emails.Service
	log        *slog.Logger
	wake       chan struct{} // signals that hits are waiting to be recorded
	full       chan struct{} // signals that enough hits for a full batch are waiting
	failureLog lograte.Limiter

	mu           sync.Mutex
	pending      []*pendingHit
	pendingBytes int
	visits       generations[visitor, *visit]
	dropped      int64
	logged       int64 // of dropped
	logAt        time.Time

	writing   sync.Mutex // held while a batch of hits is recorded
	delivered generations[recipient, time.Time]
}

// recipient identifies an email's recipient by position.
type recipient struct {
	emailID  string
	position int
}

// pendingHit is a hit that is waiting to be recorded.
type pendingHit struct {
	Hit
	at      time.Time
	reason  Reason
	visit   *visit
	bytes   int
	eventID string // id of the event, set by the last attempt to record the hit
	unsure  bool   // whether the last attempt may have been committed
	done    bool
}

// New returns the tracking service. The service records no hits until Run or Flush is called.
func New(d *db.DB, recorder *events.Recorder, e *emails.Service, log *slog.Logger) *Service {
	return &Service{d: d, recorder: recorder, emails: e, log: log, wake: make(chan struct{}, 1),
		full: make(chan struct{}, 1)}
}

// Add queues a new hit. Add never blocks; if too many hits are waiting, Add drops the new hit.
func (s *Service) Add(h Hit) {
	w := &pendingHit{Hit: h, at: s.d.Now()}
	// The hit's strings are copied, because the original strings would keep the whole request in memory.
	w.UserAgent, w.URL = strings.Clone(db.Text(h.UserAgent, agentMax)), strings.Clone(db.Text(h.URL, linkMax))
	w.reason = recognise(&w.Hit)
	w.bytes = hitCost + len(w.UserAgent) + len(w.URL)

	s.mu.Lock()
	w.visit = s.addToVisit(w)
	switch {
	case h.Head:
		s.mu.Unlock()
		return
	case s.pendingBytes+w.bytes > bufferMax:
		s.drop(1)
		s.mu.Unlock()
		return
	}
	s.pending = append(s.pending, w)
	s.pendingBytes += w.bytes
	enough := len(s.pending) >= batchMax
	s.mu.Unlock()
	signal(s.wake)
	if enough {
		signal(s.full)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// addToVisit adds a hit to its visitor's visit and returns the visit. The caller of addToVisit must hold s.mu.
func (s *Service) addToVisit(w *pendingHit) *visit {
	who := visitorOf(&w.Hit)
	v, ok := s.visits.get(who)
	if !ok {
		v = &visit{}
		s.visits.set(who, v, w.at)
	}
	v.add(&w.Hit, w.at)
	return v
}

// drop counts lost hits and logs their number at most once a minute. The caller of drop must hold s.mu.
func (s *Service) drop(n int64) {
	s.dropped += n
	if now := time.Now(); !now.Before(s.logAt) {
		s.log.Error("opens and clicks are lost: the database is too slow or unavailable", "dropped", s.dropped-s.logged)
		s.logged, s.logAt = s.dropped, now.Add(logEvery)
	}
}

// Dropped returns the number of hits dropped since the process started, because too many hits were waiting.
func (s *Service) Dropped() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Run records hits until ctx ends. When ctx has ended, Run records the remaining hits and returns. Callers must not
// call Add after ctx has ended.
func (s *Service) Run(ctx context.Context) error {
	for {
		select {
		case <-s.wake:
		case <-ctx.Done():
			s.drain(context.WithoutCancel(ctx))
			return nil
		}
		for more := true; more && ctx.Err() == nil; {
			pause(ctx, s.full, gather)
			left, err := s.step(ctx)
			if err != nil && ctx.Err() == nil {
				s.logFailure(err)
				pause(ctx, nil, retryAfter)
			}
			more = left > 0
		}
	}
}

// pause waits for the given duration, but returns earlier if ctx ends or the channel early is ready.
func pause(ctx context.Context, early <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
	case <-ctx.Done():
	}
}

// drain records the waiting hits at shutdown. After an error, drain retries until drainTime has passed.
func (s *Service) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, drainTime)
	defer cancel()
	for ctx.Err() == nil {
		err := s.Flush(ctx)
		if err == nil {
			break
		}
		s.logFailure(err)
		pause(ctx, nil, retryAfter)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.pending) + int(s.dropped-s.logged); n > 0 {
		s.log.Error("opens and clicks are lost: they could not be recorded before the stop", "dropped", n)
	}
}

func (s *Service) logFailure(err error) {
	if ok, leftOut := s.failureLog.Allow(); ok {
		s.log.Warn("could not record opens and clicks; trying again", "error", err,
			"more_like_it", leftOut)
	}
}

// Flush records all waiting hits. After an error, hits that were not recorded remain in the queue.
func (s *Service) Flush(ctx context.Context) error {
	for {
		left, err := s.step(ctx)
		if err != nil || left == 0 {
			return err
		}
	}
}

// step records a batch of the oldest hits and returns the number of hits that still wait.
func (s *Service) step(ctx context.Context) (left int, err error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	batch := s.next()
	if len(batch) > 0 {
		err = s.write(ctx, batch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeDone(len(batch))
	return len(s.pending), err
}

// next returns the oldest waiting hits, up to batchMax. The hits remain in the queue until they are recorded or
// dropped. If later hits have shown that the visitor of a waiting hit is a bot, next sets that hit's reason.
func (s *Service) next() []*pendingHit {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := slices.Clone(s.pending[:min(batchMax, len(s.pending))])
	for _, w := range batch {
		if w.reason == "" && w.visit != nil {
			w.reason = w.visit.judge(w.at)
		}
	}
	return batch
}

// removeDone removes the recorded and dropped hits from the first n hits of the queue. The caller of removeDone must
// hold s.mu.
func (s *Service) removeDone(n int) {
	head := s.pending[:n]
	left := 0
	for _, w := range head {
		if w.done {
			s.pendingBytes -= w.bytes
			continue
		}
		head[left] = w
		left++
	}
	clear(head[left:])
	if left == 0 {
		s.pending = s.pending[n:]
	} else {
		s.pending = slices.Delete(s.pending, left, n)
	}
	if len(s.pending) == 0 {
		s.pending = nil
	}
}

// write records a batch of hits in one transaction. If one hit makes the transaction fail, write halves the batch
// repeatedly until it has isolated that hit, and drops it. Errors that write returns may be temporary, so the caller
// retries the remaining hits.
func (s *Service) write(ctx context.Context, batch []*pendingHit) error {
	limited, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	for _, w := range batch {
		if !w.unsure {
			w.eventID = ""
		}
	}
	err := s.d.Update(limited, func(tx *db.Tx) error { return s.record(limited, tx, batch) })
	switch {
	case err == nil:
		for _, w := range batch {
			w.done = true
		}
		return nil
	case errors.Is(err, db.ErrUnknown):
		for _, w := range batch {
			w.unsure = w.eventID != ""
		}
		return err
	case errors.Is(err, db.ErrUnavailable), limited.Err() != nil:
		return err
	case len(batch) > 1:
		half := len(batch) / 2
		return errors.Join(s.write(ctx, batch[:half]), s.write(ctx, batch[half:]))
	}
	w := batch[0]
	w.done = true
	s.log.Error("an open or a click cannot be recorded and is dropped", "email", w.EmailID, "error", err)
	return nil
}
