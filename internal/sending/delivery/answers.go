package delivery

import (
	"sync"
	"time"

	"github.com/postrider/postrider/internal/sending/evidence"
)

const (
	// The counts of an hour consist of countSlots slots. The count of an attempt therefore covers between 55 and 60 min.
	countSlots = 12
	countSlot  = 5 * time.Minute

	countsMax     = 20_000 // pairs of an answer and a team, of about 150 bytes each
	teamCountsMax = 2000   // of one team, so that no team uses up all
	sweepEvery    = 30 * time.Minute
	teamsCounted  = 500 // the highest number of other teams that is counted
)

// answerCounts counts the attempts of the last hour that did not go well, by the kind of answer and by team. It holds
// this node's attempts since it started, only in memory, and at most countsMax counts; attempts beyond are not counted.
// All results are therefore lower bounds.
type answerCounts struct {
	mu      sync.Mutex
	answers map[string]*sameAnswer
	byTeam  map[string]int // number of counts
	all     int            // number of counts
	started time.Time      // slots are numbered from here, so that a step of the wall clock has no effect
	sweptAt time.Time
}

// sameAnswer counts the attempts with one kind of answer.
type sameAnswer struct {
	total recentCount
	teams map[string]*recentCount
}

func newAnswerCounts() *answerCounts {
	now := time.Now()
	return &answerCounts{answers: map[string]*sameAnswer{}, byTeam: map[string]int{}, started: now, sweptAt: now}
}

func (c *answerCounts) slot(now time.Time) int64 {
	return int64(max(now.Sub(c.started), 0) / countSlot)
}

// count adds an attempt of a team, and returns the counts without it. Numbers about other teams are returned only for
// at least evidence.OthersMin of them, and rounded down to one of few values, so that two results that follow each
// other do not tell what a single team did in between.
func (c *answerCounts) count(answer, team string, now time.Time) (same evidence.Same) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same.Counted = true
	a, slot := c.answers[answer], c.slot(now)
	var own *recentCount
	if a != nil {
		if own = a.teams[team]; own != nil {
			same.Own = own.sum(slot)
		}
		same.Teams, same.Others = c.others(a, team, same.Own, slot)
	}
	if own == nil {
		if own = c.add(answer, team, now); own == nil {
			return same
		}
	}
	own.add(slot)
	c.answers[answer].total.add(slot)
	return same
}

// others counts the other teams with an answer, and their attempts.
func (c *answerCounts) others(a *sameAnswer, team string, own int, slot int64) (teams, attempts int) {
	if len(a.teams) < evidence.OthersMin {
		return 0, 0
	}
	for other, w := range a.teams {
		if other != team && w.sum(slot) > 0 {
			if teams++; teams == teamsCounted {
				break
			}
		}
	}
	if teams < evidence.OthersMin {
		return 0, 0
	}
	return roundDown(teams), roundDown(a.total.sum(slot) - own)
}

// add returns a new count, or nil if there are too many counts.
func (c *answerCounts) add(answer, team string, now time.Time) *recentCount {
	full := func() bool { return c.all >= countsMax || c.byTeam[team] >= teamCountsMax }
	if age := now.Sub(c.sweptAt); age >= sweepEvery || full() && age >= countSlot {
		c.sweep(now)
	}
	if full() {
		return nil
	}
	a := c.answers[answer]
	if a == nil {
		a = &sameAnswer{teams: map[string]*recentCount{}}
		c.answers[answer] = a
	}
	w := &recentCount{}
	a.teams[team] = w
	c.byTeam[team]++
	c.all++
	return w
}

// sweep removes the counts without an attempt in the last hour.
func (c *answerCounts) sweep(now time.Time) {
	c.sweptAt = now
	slot := c.slot(now)
	for answer, a := range c.answers {
		for team, w := range a.teams {
			if w.sum(slot) > 0 {
				continue
			}
			delete(a.teams, team)
			c.all--
			if c.byTeam[team]--; c.byTeam[team] == 0 {
				delete(c.byTeam, team)
			}
		}
		if len(a.teams) == 0 {
			delete(c.answers, answer)
		}
	}
}

// roundDown returns the largest of 1, 2, 5, 10, 20, 50 and so on that is at most n, or 0.
func roundDown(n int) int {
	found := 0
	for unit := 1; unit <= n; unit *= 10 {
		for _, x := range []int{unit, 2 * unit, 5 * unit} {
			if x <= n {
				found = x
			}
		}
	}
	return found
}

// recentCount counts events in the last countSlots slots.
type recentCount struct {
	counts [countSlots]uint32
	newest int64 // the slot that was counted last
}

func (w *recentCount) add(slot int64) {
	w.advance(slot)
	w.counts[w.newest%countSlots]++
}

// sum returns the number of events in the slot and those before it.
func (w *recentCount) sum(slot int64) (n int) {
	w.advance(slot)
	for _, c := range w.counts {
		n += int(c)
	}
	return n
}

// advance empties the slots that have passed.
func (w *recentCount) advance(slot int64) {
	if slot-w.newest >= countSlots {
		w.counts = [countSlots]uint32{}
	} else {
		for s := w.newest + 1; s <= slot; s++ {
			w.counts[s%countSlots] = 0
		}
	}
	w.newest = max(w.newest, slot)
}
