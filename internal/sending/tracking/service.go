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
	bufferMax  = 64 << 20 // octets of hits that wait
	hitCost    = 512      // octets of a hit in addition to its texts
	batchMax   = 500      // hits in one transaction
	gather     = 200 * time.Millisecond
	writeTime  = 30 * time.Second // limit for one transaction
	drainTime  = 10 * time.Second // limit for what waits at a stop
	retryAfter = time.Second
	logEvery   = time.Minute // between log lines about dropped hits
	agentMax   = 512         // octets of a user agent that are kept
	linkMax    = 8192        // octets of a link, more than a token can hold

	// recordedMax is how many opens, or clicks, of one recipient of an email are recorded, those by machines apart: who
	// has a link can follow it without end, and each event is a row and webhooks.
	recordedMax = 1000
)

// Service records hits.
type Service struct {
	d          *db.DB
	recorder   *events.Recorder
	emails     *emails.Service
	log        *slog.Logger
	wake       chan struct{} // there are hits
	full       chan struct{} // there are enough for a transaction
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

// recipient is one of an email, by position.
type recipient struct {
	emailID  string
	position int
}

// pendingHit is a hit that is to be recorded.
type pendingHit struct {
	Hit
	at      time.Time
	reason  Reason
	visit   *visit
	bytes   int
	eventID string // of the last attempt to record it
	unsure  bool   // whether that may have been committed
	done    bool
}

// New returns the service. Nothing is recorded until Run or Flush is called.
func New(d *db.DB, recorder *events.Recorder, e *emails.Service, log *slog.Logger) *Service {
	return &Service{d: d, recorder: recorder, emails: e, log: log, wake: make(chan struct{}, 1),
		full: make(chan struct{}, 1)}
}

// Add takes in a hit that came now. It never waits; if too much waits, the hit is dropped.
func (s *Service) Add(h Hit) {
	w := &pendingHit{Hit: h, at: s.d.Now()}
	// The texts are parts of the request, which they would keep in memory.
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

// addToVisit adds a hit to the visit that it belongs to. The caller holds s.mu.
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

// drop counts hits that are not recorded, and logs their number at most once a minute. The caller holds s.mu.
func (s *Service) drop(n int64) {
	s.dropped += n
	if now := time.Now(); !now.Before(s.logAt) {
		s.log.Error("opens and clicks are lost: the database does not keep up, or is away", "dropped", s.dropped-s.logged)
		s.logged, s.logAt = s.dropped, now.Add(logEvery)
	}
}

// Dropped returns how many hits were dropped since the start because too many waited.
func (s *Service) Dropped() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dropped
}

// Run records hits until ctx ends, and then those that still wait. End ctx after the last call of Hit.
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

// drain records what waits at a stop. It tries again after failures, until drainTime is over.
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
		s.log.Warn("could not record opens and clicks; they are kept and tried again", "error", err,
			"more_like_it", leftOut)
	}
}

// Flush records everything that waits. After an error, what was not recorded goes on waiting.
func (s *Service) Flush(ctx context.Context) error {
	for {
		left, err := s.step(ctx)
		if err != nil || left == 0 {
			return err
		}
	}
}

// step records a batch of the oldest hits, and returns how many wait after that.
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

// next returns the next batch. Its hits go on waiting until they are done. What other hits have shown of their visitors
// since they came is taken in, if it was not before.
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

// removeDone removes what is done from the first n hits that wait. The caller holds s.mu.
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

// write records a batch in one transaction. If that fails because of one of the hits, the batch is divided until that
// hit is alone, which is then dropped. A returned error may pass, and what is not done is to be tried again.
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
	s.log.Error("an open or a click cannot be recorded and is left out", "email", w.EmailID, "error", err)
	return nil
}
