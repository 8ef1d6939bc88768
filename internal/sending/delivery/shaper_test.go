package delivery

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

var (
	took      = []verdict{{state: delivered}}
	refused   = []verdict{{state: bounced}}
	throttled = []verdict{{state: delayed, throttle: true}}
	unwilling = []verdict{{state: delayed, soft: true}}
)

func TestShaperBacksOff(t *testing.T) {
	t.Parallel()
	s, now := newShaper(8, 0), time.Now()
	const slow = time.Second
	expect := func(n int, pause time.Duration) {
		t.Helper()
		got, again := s.limit("d", now)
		if got != n || pause == 0 && !again.IsZero() || pause > 0 && again.Sub(now) != pause {
			t.Fatalf("%d jobs and a pause of %v, want %d and %v", got, again.Sub(now), n, pause)
		}
	}
	expect(8, 0)
	s.recordVerdicts("d", throttled, slow, now)
	expect(8, 0) // a single refusal does not cause a pause
	s.recordVerdicts("d", throttled, slow, now)
	expect(0, pauseMin)
	for range 5 {
		s.recordVerdicts("d", throttled, slow, now) // answers to messages that were in progress
	}
	expect(0, pauseMin)
	now = now.Add(pauseMin)
	expect(4, 0)
	s.recordVerdicts("d", throttled, slow, now)
	expect(0, 2*pauseMin) // the first refusal after a pause doubles the next pause
	for range 10 {
		now = now.Add(pauseMax)
		s.recordVerdicts("d", throttled, slow, now)
	}
	expect(0, pauseMax)
	now = now.Add(pauseMax)
	expect(1, 0)
	s.recordVerdicts("d", took, slow, now)
	s.recordVerdicts("d", throttled, slow, now)
	s.recordVerdicts("d", throttled, slow, now)
	expect(0, pauseMin) // an accepted message resets the pause to its minimum
	now = now.Add(pauseMin)
	for n, given := 0, 1; given < 8; n++ {
		if n > 200 {
			t.Fatal("connections do not come back")
		}
		s.recordVerdicts("d", took, slow, now)
		got, _ := s.limit("d", now)
		if got > given+1 {
			t.Fatalf("from %d connections to %d at once", given, got)
		}
		given = got
	}
	other, _ := s.limit("e", now)
	if other != 8 {
		t.Errorf("another destination is allowed %d", other)
	}
}

func TestShaperSigns(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		heard  [][]verdict
		paused bool
	}{
		{"refusals of recipients", [][]verdict{refused, refused, refused, refused}, false},
		{"two messages put off", [][]verdict{unwilling, unwilling}, false},
		{"three messages put off", [][]verdict{unwilling, unwilling, unwilling}, true},
		{"one taken between", [][]verdict{unwilling, unwilling, took, unwilling, unwilling}, false},
		{"a wait that is asked for", [][]verdict{{{state: delayed, throttle: true, hint: time.Minute}}}, true},
		{"greylisting", [][]verdict{{{state: delayed, hint: time.Minute}}, {{state: delayed, hint: time.Minute}}}, false},
	} {
		s, now := newShaper(4, 0), time.Now()
		for _, v := range c.heard {
			s.recordVerdicts("d", v, time.Second, now)
		}
		if n, _ := s.limit("d", now); n == 0 != c.paused {
			t.Errorf("%s: %d jobs may be in hand", c.name, n)
		}
	}
}

func TestShaperRate(t *testing.T) {
	t.Parallel()
	s, now := newShaper(10, 2), time.Now()
	inHand, began := 0, 0
	for tick := range 100 { // ten seconds
		at := now.Add(time.Duration(tick) * 100 * time.Millisecond)
		for {
			n, again := s.limit("d", at)
			if n <= inHand {
				if n < 10 && !again.After(at) {
					t.Fatalf("%d jobs may be in hand, and it is not to be asked again", n)
				}
				break
			}
			at, err := s.acquire(t.Context(), "d", "team", "team")
			if err != nil {
				t.Fatal(err)
			}
			began++
			at.release(true, replied)
		}
	}
	if began < 20 || began > 23 {
		t.Errorf("%d messages in ten seconds at 2 a second", began)
	}
}

func TestShaperSlots(t *testing.T) {
	t.Parallel()
	s := newShaper(1, 0)
	first, err := s.acquire(t.Context(), "d", "team", "team")
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("stopping"))
	if _, err := s.acquire(gone, "d", "team", "team"); err == nil || err.Error() != "stopping" {
		t.Errorf("entered a full destination: %v", err)
	}
	second := make(chan slot)
	go func() {
		at, err := s.acquire(context.WithoutCancel(t.Context()), "d", "team", "team")
		if err != nil {
			t.Error(err)
		}
		second <- at
	}()
	first.release(true, replied)
	(<-second).release(true, replied)
	h := s.entry("d")
	if h.inProgress != 0 || !h.turns.Unused() {
		t.Errorf("places are lost: %+v", h)
	}
	s.recordVerdicts("d", took, time.Millisecond, time.Now())
	if n, _ := s.limit("d", time.Now()); n != prefetch {
		t.Errorf("%d jobs in hand for a quick destination", n)
	}
	s.recordVerdicts("d", took, time.Minute, time.Now())
	if n, _ := s.limit("d", time.Now()); n != 1 {
		t.Errorf("%d jobs in hand for a slow destination", n)
	}
}

// The shaper's table of destinations has a maximum size, even if all destinations are paused.
func TestShaperForgets(t *testing.T) {
	t.Parallel()
	s, now := newShaper(20, 0), time.Now()
	for i := range shapesMax + 500 {
		for range 2 {
			s.recordVerdicts(fmt.Sprintf("d%d.example", i), throttled, time.Second, now)
		}
	}
	if n := len(s.shapes); n > shapesMax {
		t.Errorf("%d destinations are kept, at most %d may be", n, shapesMax)
	}
}
