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
	bufferMax  = 64 << 20 // bytes of hits that wait
	hitCost    = 512      // estimated bytes of a hit, in addition to its strings
	batchMax   = 500      // hits in one transaction
	gather     = 200 * time.Millisecond
	writeTime  = 30 * time.Second // limit for one transaction
	drainTime  = 10 * time.Second // limit for recording the waiting hits at a stop
	retryAfter = time.Second
	logEvery   = time.Minute // between log lines about dropped hits
	agentMax   = 512         // stored bytes of a user agent
	linkMax    = 8192        // stored bytes of a link; a token cannot hold more

	// recordedMax is how many opens, or clicks, are recorded for one recipient of an email. Hits of bots have a limit
	// of their own. Without the limit, following one link repeatedly would create any number of rows and webhooks.
	recordedMax = 1000
)

// Service records hits.
type Service struct {
	d          *db.DB
	recorder   *events.Recorder
	emails     *emails.Service
	log        *slog.Logger
	wake       chan struct{} // signals that hits wait
	full       chan struct{} // signals that a full batch waits
	failureLog lograte.Limiter

	mu           sync.Mutex
	pending      []*pendingHit
	pendingBytes int
	visits       generations[visitor, *visit]
	dropped      int64
	logged       int64 // of dropped
	logAt        time.Time

	writing   sync.Mutex // held while hits are recorded
	delivered generations[recipient, time.Time]
}

// recipient identifies a recipient of an email by position.
type recipient struct {
	emailID  string
	position int
}

// pendingHit is a hit that waits to be recorded.
type pendingHit struct {
	Hit
	at      time.Time
	reason  Reason
	visit   *visit
	bytes   int
	eventID string // id of the event, set by the last attempt to record it
	unsure  bool   // the last attempt may have been committed
	done    bool
}

// New returns the service. Nothing is recorded until Run or Flush is called.
func New(d *db.DB, recorder *events.Recorder, e *emails.Service, log *slog.Logger) *Service {
	return &Service{d: d, recorder: recorder, emails: e, log: log, wake: make(chan struct{}, 1),
		full: make(chan struct{}, 1)}
}

// Add queues a hit that has just arrived. It never blocks; it drops the hit if too many wait.
func (s *Service) Add(h Hit) {
	w := &pendingHit{Hit: h, at: s.d.Now()}
	// The strings share memory with the whole request; the copies do not.
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

// addToVisit adds a hit to the visit of its visitor and returns the visit. The caller holds s.mu.
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

// drop counts hits that are lost, and logs their number at most once a minute. The caller holds s.mu.
func (s *Service) drop(n int64) {
	s.dropped += n
	if now := time.Now(); !now.Before(s.logAt) {
		s.log.Error("opens and clicks are lost: the database is too slow or unavailable", "dropped", s.dropped-s.logged)
		s.logged, s.logAt = s.dropped, now.Add(logEvery)
	}
}

// Dropped returns how many hits were dropped since the start because too many hits waited.
func (s *Service) Dropped() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Run records hits until ctx ends. Then it records the hits that still wait, and returns. Call Add only before ctx
// ends.
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

// pause waits for a time, or until ctx ends or early is ready.
func pause(ctx context.Context, early <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-early:
	case <-ctx.Done():
	}
}

// drain records the waiting hits at a stop. It retries after errors until drainTime is over.
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

// Flush records all waiting hits. After an error, the hits that were not recorded keep waiting.
func (s *Service) Flush(ctx context.Context) error {
	for {
		left, err := s.step(ctx)
		if err != nil || left == 0 {
			return err
		}
	}
}

// step records a batch of the oldest hits and returns how many hits wait afterwards.
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

// next returns the oldest waiting hits, at most batchMax. The hits stay in the queue until they are done. A hit without
// a reason gets one if later hits showed that its visitor is a bot.
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

// removeDone removes the hits that are done among the first n of the queue. The caller holds s.mu.
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

// write records a batch in one transaction. If one hit makes the transaction fail, write halves the batch until that
// hit is alone, and drops it. A returned error may be temporary: the caller tries the remaining hits again.
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
