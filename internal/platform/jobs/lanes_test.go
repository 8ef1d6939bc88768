package jobs

import (
	"fmt"
	"strings"
	"testing"
)

func TestRing(t *testing.T) {
	var all ring
	for i := range 3 {
		all.add("a", fmt.Sprint("a", i))
	}
	all.add("b", "b0")
	all.add("c", "c0")
	all.pause() // pauses owner a
	all.add("a", "a3")
	var got []string
	for !all.empty() {
		_, lane := all.next()
		got = append(got, lane)
		if lane == "b0" {
			all.resume("a")
		}
	}
	all.resume("b") // owner b has no lanes, so it gets no turn
	if s := fmt.Sprint(got); s != "[b0 c0 a0 a1 a2 a3]" || !all.empty() {
		t.Errorf("the turns were %s", s)
	}
}

// Bulk lanes yield to other lanes, but still get one turn in eight.
func TestTurnsOfBulk(t *testing.T) {
	var all turns
	for i := range 16 {
		all.add("a", fmt.Sprint("b", i), true)
		all.add("a", fmt.Sprint("f", i), false)
	}
	got := ""
	for !all.empty() {
		bulk := all.turn()
		_, lane := all.of(bulk).next()
		all.had(bulk)
		got += lane[:1]
	}
	if want := "fffffffb" + "fffffffb" + "ff" + strings.Repeat("b", 14); got != want {
		t.Errorf("the turns were %s, want %s", got, want)
	}
}

// The time that a paused owner adds to each turn does not depend on the owner's number of lanes.
func TestPausedOwnersCostNothing(t *testing.T) {
	cost := func(lanes int) float64 {
		var all ring
		for i := range lanes {
			all.add("a", fmt.Sprint(i))
		}
		return testing.AllocsPerRun(100, func() {
			all.pause()
			all.resume("a")
		})
	}
	if few, many := cost(1), cost(100_000); many > few {
		t.Errorf("pausing an owner of 100,000 lanes allocates %v times, of one lane %v times", many, few)
	}
}

func TestAlarms(t *testing.T) {
	a := newAlarms()
	for i := range 10_000 {
		a.set("far", int64(1_000_000-i)) // each time is earlier than the last
		a.set("near", 10)
		if lane, ok := a.due(10); lane != "near" || !ok {
			t.Fatalf("due is %q", lane)
		}
	}
	a.set("far", 2_000_000)
	if at, ok := a.soonest(); at != 1_000_000-9_999 || !ok {
		t.Errorf("the next is due at %d", at)
	}
	if len(a.queue) > 2000 {
		t.Errorf("%d times are kept of one lane", len(a.queue))
	}
	if lane, _ := a.due(2_000_000); lane != "far" {
		t.Errorf("due is %q", lane)
	}
	if _, ok := a.due(2_000_000); ok {
		t.Error("a lane is due twice")
	}
}

// Capacity that becomes free in a group goes to lanes that are not bulk. If it is the bulk lanes' turn, one bulk lane
// comes first.
func TestFreedRoomGoesToOthersFirst(t *testing.T) {
	for _, c := range []struct {
		name      string
		passed    int
		others    int // waiting lanes that are not bulk
		ofOthers  int // how many lanes that are not bulk become ready
		ofBulk    int
		bulkHands int // running bulk jobs
	}{
		{"not bulk's turn", 0, 10, 4, 0, 0},
		{"bulk's turn", bulkTurn - 1, 10, 3, 1, 0},
		{"bulk's turn, but it has all it may have", bulkTurn - 1, 10, 4, 0, 6},
		{"few others", 0, 1, 1, 3, 0},
		{"few others, and bulk may have one more", 0, 1, 1, 1, 5},
		{"bulk alone", 0, 0, 0, 4, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newDispatcher(nil, Kind{Workers: 100, PerLane: 8})
			k.exact = true
			k.inHand["g"] = 4
			k.bulk.groups["g"] = c.bulkHands
			var h turns
			for i := range c.others {
				h.add(fmt.Sprint("o", i%3), fmt.Sprint("f", i), false)
			}
			for i := range 10 {
				h.add("o0", fmt.Sprint("b", i), true)
			}
			h.passed = c.passed
			k.unhold("g", &h)
			count := func(r *ring) (n int) {
				for !r.empty() {
					r.next()
					n++
				}
				return n
			}
			others, bulk := count(&k.ready.first), count(&k.ready.bulk)
			if others != c.ofOthers || bulk != c.ofBulk {
				t.Errorf("%d lanes and %d of bulk are ready, want %d and %d", others, bulk, c.ofOthers, c.ofBulk)
			}
		})
	}
}
