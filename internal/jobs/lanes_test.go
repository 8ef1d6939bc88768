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
	all.pause() // a
	all.add("a", "a3")
	var got []string
	for !all.empty() {
		_, lane := all.next()
		got = append(got, lane)
		if lane == "b0" {
			all.resume("a")
		}
	}
	all.resume("b") // who has nothing has no turn
	if s := fmt.Sprint(got); s != "[b0 c0 a0 a1 a2 a3]" || !all.empty() {
		t.Errorf("the turns were %s", s)
	}
}

// Bulk waits for the others, and has one turn in eight.
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

// An owner that has its share of the workers costs the same at each look, however many lanes it has.
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
		a.set("far", int64(1_000_000-i)) // each time earlier
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
