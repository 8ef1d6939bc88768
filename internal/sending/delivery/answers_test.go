package delivery

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/sending/evidence"
)

// A team learns how many of its own attempts of the last hour got the same answer.
func TestOwnAnswers(t *testing.T) {
	c, now := newAnswerCounts(), time.Now()
	for n := range 5 {
		if got := c.count("host temporary", "acme", now); got != (evidence.Same{Counted: true, Own: n}) {
			t.Errorf("attempt %d: %+v", n+1, got)
		}
		now = now.Add(10 * time.Minute)
	}
	if got := c.count("host final", "acme", now); got.Own != 0 {
		t.Errorf("of another answer: %+v", got)
	}
	if got := c.count("host temporary", "acme", now.Add(20*time.Minute)); got.Own >= 5 || got.Own < 3 {
		t.Errorf("after older ones have passed: %+v", got)
	}
	if got := c.count("host temporary", "acme", now.Add(3*time.Hour)); got.Own != 0 {
		t.Errorf("after all have passed: %+v", got)
	}
	// A clock that was set back counts too much for a while, and never panics.
	if got := c.count("host temporary", "acme", now.Add(-48*time.Hour)); got.Own != 1 {
		t.Errorf("after the clock was set back: %+v", got)
	}
}

// An answer says nothing about other teams until ten of them got the same answer in the last hour. The numbers are
// rounded, so that the next team's attempts do not show.
func TestOtherTeamsAnswers(t *testing.T) {
	c, now := newAnswerCounts(), time.Now()
	ask := func() evidence.Same { return c.count("host temporary", "acme", now) }
	for n := range evidence.OthersMin {
		if got := ask(); got.Teams != 0 || got.Others != 0 {
			t.Errorf("with %d other teams: %+v", n, got)
		}
		for range 3 {
			c.count("host temporary", fmt.Sprint("team ", n), now)
		}
	}
	if got := ask(); got.Teams != 10 || got.Others != 20 { // 30 attempts
		t.Errorf("with ten other teams: %+v", got)
	}
	c.count("host temporary", "team 11", now)
	if got := ask(); got.Teams != 10 || got.Others != 20 {
		t.Errorf("with one more: %+v", got)
	}
	if got := c.count("host final", "acme", now); got.Teams != 0 {
		t.Errorf("of another answer: %+v", got)
	}
	now = now.Add(2 * time.Hour)
	if got := ask(); got.Teams != 0 || got.Others != 0 {
		t.Errorf("two hours later: %+v", got)
	}
}

// The memory is bounded, and no team uses up that of the others.
func TestAnswersAreBounded(t *testing.T) {
	c, now := newAnswerCounts(), time.Now()
	for n := range 2 * teamCountsMax {
		c.count(fmt.Sprint("host ", n), "greedy", now)
	}
	if n := c.byTeam["greedy"]; n != teamCountsMax || c.all != n {
		t.Errorf("a team has %d counts of %d", n, c.all)
	}
	for n := range 2 * countsMax {
		c.count("host", fmt.Sprint("team ", n), now)
	}
	if c.all != countsMax {
		t.Errorf("%d counts", c.all)
	}
	if got := c.count("host", "team 1", now); got.Own != 1 || got.Teams != teamsCounted {
		t.Errorf("a team with a count: %+v", got)
	}
	now = now.Add(2 * time.Hour)
	c.count("new", "acme", now)
	if got := c.count("new", "acme", now); got.Own != 1 || c.all != 1 || len(c.byTeam) != 1 || len(c.answers) != 1 {
		t.Errorf("after the old counts have passed: %+v, %d counts", got, c.all)
	}
}

func TestRoundDown(t *testing.T) {
	for n, want := range map[int]int{-1: 0, 0: 0, 1: 1, 2: 2, 4: 2, 5: 5, 9: 5, 10: 10, 19: 10, 20: 20, 49: 20, 50: 50,
		99: 50, 12345: 10000} {
		if got := roundDown(n); got != want {
			t.Errorf("%d: %d, want %d", n, got, want)
		}
	}
}
