package delivery

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
)

const (
	pauseMin = 30 * time.Second
	pauseMax = 15 * time.Minute
	// troubled is how many messages in a row a host must put off before its lane is paused: one greylisted message is
	// no sign of anything.
	troubled   = 3
	shapesKept = 50_000
)

// shaper says how many connections a destination gets, and how fast. A host that asks for patience gets half as many
// and a pause that grows; every message that it takes gives one back.
type shaper struct {
	connections int
	rate        float64 // messages a second; 0 is no limit

	mu     sync.Mutex
	shapes map[string]*shape
}

type shape struct {
	allowed  int
	busy     int
	waiting  []chan struct{}
	refusals int // in a row
	pause    time.Duration
	until    time.Time // of the pause
	nextAt   time.Time // of the rate
}

func newShaper(connections int, rate float64) *shaper {
	return &shaper{connections: connections, rate: rate, shapes: map[string]*shape{}}
}

func (s *shaper) of(dest string) *shape {
	h := s.shapes[dest]
	if h == nil {
		if len(s.shapes) >= shapesKept {
			for d, old := range s.shapes {
				if old.busy == 0 && len(old.waiting) == 0 && old.pause == 0 {
					delete(s.shapes, d)
				}
			}
		}
		h = &shape{allowed: s.connections}
		s.shapes[dest] = h
	}
	return h
}

// limit says how many jobs of a destination may be in hand: ahead times its connections, none during a pause.
func (s *shaper) limit(dest string, ahead int) (int, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.of(dest)
	if now := time.Now(); now.Before(h.until) {
		return 0, h.until
	}
	return h.allowed * ahead, time.Time{}
}

// enter waits for a connection's place and for the rate. The function that it returns gives the place back.
func (s *shaper) enter(ctx context.Context, dest string) (leave func(), err error) {
	s.mu.Lock()
	h := s.of(dest)
	if h.busy < h.allowed {
		h.busy++
		s.mu.Unlock()
	} else {
		turn := make(chan struct{})
		h.waiting = append(h.waiting, turn)
		s.mu.Unlock()
		select {
		case <-turn:
		case <-ctx.Done():
			s.abandon(h, turn)
			return nil, context.Cause(ctx)
		}
	}
	leave = func() { s.leave(h) }
	if err := s.pace(ctx, h); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

// abandon takes a waiting turn back, or passes it on when it was just given.
func (s *shaper) abandon(h *shape, turn chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, w := range h.waiting {
		if w == turn {
			h.waiting = append(h.waiting[:i], h.waiting[i+1:]...)
			return
		}
	}
	h.pass()
}

func (s *shaper) leave(h *shape) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.pass()
}

// pass gives a place to who waits, as far as the destination is allowed that many.
func (h *shape) pass() {
	h.busy--
	for h.busy < h.allowed && len(h.waiting) > 0 {
		h.busy++
		close(h.waiting[0])
		h.waiting = h.waiting[1:]
	}
}

// pace waits until the rate allows another message.
func (s *shaper) pace(ctx context.Context, h *shape) error {
	if s.rate <= 0 {
		return nil
	}
	s.mu.Lock()
	now := time.Now()
	if h.nextAt.Before(now) {
		h.nextAt = now
	}
	wait := h.nextAt.Sub(now)
	h.nextAt = h.nextAt.Add(time.Duration(float64(time.Second) / s.rate))
	s.mu.Unlock()
	if wait <= 0 {
		return nil
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// heard takes in how a destination answered.
func (s *shaper) heard(dest string, a answer, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.of(dest)
	putOff, hint := wantsPatience(a)
	if !putOff {
		h.refusals = 0
		h.pause = 0
		if h.allowed < s.connections {
			h.allowed++
		}
		return
	}
	if h.refusals++; h.refusals < troubled && hint == 0 {
		return
	}
	if now.Before(h.until) {
		return // answers to what was under way when the pause began
	}
	h.allowed = max(1, h.allowed/2)
	h.pause = min(max(2*h.pause, pauseMin, hint), pauseMax)
	h.until = now.Add(h.pause)
}

// wantsPatience reports whether an answer is about the host or about us rather than about a recipient, and for how long the
// host asks to wait, when it says so.
func wantsPatience(a answer) (bool, time.Duration) {
	var r smtpclient.Reply
	switch e, ok := a.err.(*smtpclient.Error); {
	case a.final != nil && a.final.Mail.Temporary():
		r = a.final.Mail
	case a.final != nil && a.final.Final.Code == 421:
		r = a.final.Final
	case a.final != nil:
		for _, x := range a.final.Rcpt {
			if x.Code == 421 || x.Temporary() && strings.HasPrefix(x.Enhanced, "4.7.") && tooMuch.MatchString(x.Text) {
				r = x
			}
		}
		if r.Code == 0 {
			return false, 0
		}
	case ok && e.Reply != nil:
		r = *e.Reply
	case ok && !e.Sent && a.err != nil:
		return true, 0 // it cannot be reached
	default:
		return false, 0
	}
	return !r.Permanent(), waitHint(r.Text)
}

var (
	tooMuch = regexp.MustCompile(`(?i)too many|too fast|rate|throttl|exceed|try again later|defer`)
	hinted  = regexp.MustCompile(`(?i)(?:in|after|wait|retry)\D{0,20}?(\d{1,5}) ?(s|sec|seconds?|m|min|minutes?|h|hours?)\b`)
)

// waitHint is the wait that a host's text asks for, within bounds; 0 when it names none.
func waitHint(text string) time.Duration {
	m := hinted.FindStringSubmatch(text)
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	unit := time.Second
	switch strings.ToLower(m[2])[0] {
	case 'm':
		unit = time.Minute
	case 'h':
		unit = time.Hour
	}
	return min(time.Duration(n)*unit, 4*time.Hour)
}
