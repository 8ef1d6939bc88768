package contacts_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// byFilter creates a segment with a filter.
func (w *world) byFilter(rule string) segments.Segment {
	w.t.Helper()
	g, err := w.Contacts.Segments.Create(w.t.Context(), w.team, segments.Definition{Name: "by filter", Filter: rule})
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func leaf(field, operator, value string) string {
	return fmt.Sprintf(`{"type":"rule","field":"%s","operator":"%s","value":%s}`, field, operator, value)
}

// crowd creates n contacts with different plans, seats, names and subscriptions.
func (w *world) crowd(n int) {
	w.t.Helper()
	w.property("plan", scalar.String)
	w.property("seats", scalar.Number)
	for i := range n {
		w.upsert(fmt.Sprintf("%02d@x.example", i), contacts.Change{FirstName: new(fmt.Sprint("n", i%5)),
			Unsubscribed: new(i%9 == 0), Properties: map[string]scalar.Value{"plan": scalar.OfText(fmt.Sprint("p", i%7)),
				"seats": scalar.OfNumber(float64(i))}})
	}
}

func pad(i int) string { return fmt.Sprintf("%02d@x.example", i) }

// Every page of a filtered list except the last one is full, regardless of where the matching contacts are and how they
// are found.
func TestPagesOfFiltersAreFull(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		const n = 40
		w.crowd(n)
		for name, c := range map[string]struct {
			rule string
			is   func(i int) bool
		}{
			"the newest":   {leaf("properties.seats", "gt", "34"), func(i int) bool { return i > 34 }},
			"the oldest":   {leaf("properties.seats", "lt", "4"), func(i int) bool { return i < 4 }},
			"one of seven": {leaf("properties.plan", "eq", `"p3"`), func(i int) bool { return i%7 == 3 }},
			"all but some": {leaf("properties.plan", "neq", `"p3"`), func(i int) bool { return i%7 != 3 }},
			"by name":      {leaf("contact.first_name", "eq", `"n4"`), func(i int) bool { return i%5 == 4 }},
			"unsubscribed": {leaf("contact.unsubscribed", "eq", `true`), func(i int) bool { return i%9 == 0 }},
			"subscribed":   {leaf("contact.unsubscribed", "eq", `false`), func(i int) bool { return i%9 != 0 }},
			"nobody":       {leaf("properties.plan", "eq", `"p9"`), func(i int) bool { return false }},
			"everybody":    {leaf("properties.seats", "gte", "0"), func(i int) bool { return true }},
			"never opened": {leaf("contact.engagement.opened_at", "not_within_last", `"1 day"`),
				func(i int) bool { return true }},
			"name and plan": {`{"type":"and","rules":[` + leaf("contact.first_name", "eq", `"n4"`) + `,` +
				leaf("properties.plan", "eq", `"p2"`) + `]}`, func(i int) bool { return i%35 == 9 }},
		} {
			g := w.byFilter(c.rule)
			var want []string
			for i := n - 1; i >= 0; i-- {
				if c.is(i) {
					want = append(want, pad(i))
				}
			}
			for _, part := range []struct{ size, worth int }{{10_000, 10}, {1, 0}, {3, 1}, {5, 1_000_000}} {
				w.Contacts.SetParts(part.size, part.worth)
				for _, limit := range []int{3, 0} {
					what := fmt.Sprintf("%s, %d in parts of %d", name, limit, part.size)
					if diff := cmp.Diff(want, w.pages(what, g.ID, limit, false)); diff != "" {
						t.Errorf("%s: %s", what, diff)
					}
					if len(want) < 2 || limit == 0 {
						continue
					}
					back := w.pages(what, g.ID, limit, true)
					slices.Reverse(back)
					if diff := cmp.Diff(want[:len(want)-1], back); diff != "" {
						t.Errorf("%s, backwards: %s", what, diff)
					}
				}
			}
		}
	})
}

// pages reads a list to its end, forward or backward, and checks that only the last page is short.
func (w *world) pages(what, segmentID string, limit int, back bool) (all []string) {
	w.t.Helper()
	p := page.Page{Limit: limit}
	if back {
		list, _, err := w.Contacts.List(w.t.Context(), w.team, segmentID, page.Page{})
		if err != nil {
			w.t.Fatal(err)
		}
		p.Before = list[len(list)-1].ID
	}
	for more := true; more; {
		var list []contacts.Contact
		var err error
		list, more, err = w.Contacts.List(w.t.Context(), w.team, segmentID, p)
		if err != nil {
			w.t.Fatal(err)
		}
		if more && len(list) != limit {
			w.t.Fatalf("%s: a page of %d with more behind it", what, len(list))
		}
		if back {
			slices.Reverse(list)
		}
		for _, c := range list {
			all = append(all, c.Address)
			if p.After = c.ID; back {
				p.After, p.Before = "", c.ID
			}
		}
	}
	return all
}

// fill occupies all slots for long reads, each with a different owner, until the returned function is called.
func (w *world) fill() (release func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	var wg sync.WaitGroup
	for taken := true; taken; {
		began := make(chan bool)
		wg.Go(func() {
			err := w.DB.ReadLong(ctx, db.Long{Owner: id.New(), Wait: time.Millisecond}, func(ctx context.Context,
				_ db.Reader) error {
				began <- true
				<-ctx.Done()
				return nil
			})
			if errors.Is(err, db.ErrCrowded) {
				began <- false
			}
		})
		taken = <-began
	}
	return func() {
		cancel()
		wg.Wait()
	}
}

// Reading many contacts requires a read slot. If no slot is free, reading many contacts returns a fault with advice,
// and short reads still work.
func TestFiltersWithoutAPlace(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.crowd(30)
		rare, common := w.byFilter(leaf("properties.seats", "eq", "0")), w.byFilter(leaf("properties.seats", "gte", "0"))
		w.Contacts.SetParts(2, 1)
		w.Contacts.SetTimes(time.Millisecond, 0, 0)
		release := w.fill()
		_, _, err := w.Contacts.List(ctx, w.team, rare.ID, page.Page{Limit: 1})
		if !errors.Is(err, db.ErrCrowded) || fault.KindOf(err) != fault.Unavailable ||
			!strings.Contains(err.Error(), "Try again") {
			t.Errorf("a list of few: %v", err)
		}
		if list, more, err := w.Contacts.List(ctx, w.team, common.ID, page.Page{Limit: 1}); len(list) != 1 || !more ||
			err != nil {
			t.Errorf("a list of many: %v, %v", list, err)
		}
		if c, err := w.Contacts.CountSegment(ctx, rare); c != (segments.Count{}) || err != nil {
			t.Errorf("a count: %+v, %v, want none yet", c, err)
		}
		_, err = w.Contacts.CountRefused(ctx, w.team, contacts.Audience{}, "", func(string) bool { return true })
		if !errors.Is(err, db.ErrCrowded) {
			t.Errorf("a preview: %v", err)
		}
		release()
		w.Contacts.SetTimes(time.Minute, 0, 0)
		if list, more, err := w.Contacts.List(ctx, w.team, rare.ID, page.Page{Limit: 1}); len(list) != 1 || more ||
			err != nil {
			t.Errorf("a list of few: %v, %v", list, err)
		}
		if c, err := w.Contacts.CountSegment(ctx, rare); c.Contacts != 1 || err != nil {
			t.Errorf("a count: %+v, %v", c, err)
		}
		w.Contacts.SetTimes(0, time.Nanosecond, 0)
		_, _, err = w.Contacts.List(ctx, w.team, rare.ID, page.Page{Limit: 1})
		if !errors.Is(err, db.ErrTooLong) || fault.KindOf(err) != fault.Unavailable ||
			!strings.Contains(err.Error(), "narrower rules") {
			t.Errorf("a list that takes too long: %v", err)
		}
		w.Contacts.SetTimes(0, time.Minute, 0)
		w.Contacts.SetPreview(time.Nanosecond)
		_, err = w.Contacts.CountRefused(ctx, w.team, contacts.Audience{}, "", func(string) bool { return true })
		if !errors.Is(err, db.ErrTooLong) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("a preview that takes too long: %v", err)
		}
	})
}

// Only filters that need few look-ups are evaluated in an ordinary read. All other filters need a long read, even if
// the page could be filled quickly. Otherwise, one team's lists could delay the reads of all teams.
func TestHeavyFiltersNeedAPlace(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.crowd(3)
		w.Contacts.SetTimes(time.Millisecond, 0, 0)
		w.Contacts.SetPatience(time.Millisecond)
		byHand := w.segment("by hand")
		if _, _, err := w.Contacts.Upsert(ctx, w.team, pad(0), contacts.Change{Segments: []string{byHand.ID}}); err != nil {
			t.Fatal(err)
		}
		defer w.fill()()
		many := func(n int, leaf string) string {
			return `{"type":"or","rules":[` + strings.Repeat(leaf+",", n-1) + leaf + `]}`
		}
		values := `["p0"` + strings.Repeat(`,"p1","p2"`, 100) + `]`
		all := leaf("contact.email", "exists", "null")
		for name, c := range map[string]struct {
			segmentID string
			crowded   bool
		}{
			"all contacts":      {"", false},
			"by hand":           {byHand.ID, false},
			"a rule":            {w.byFilter(all).ID, false},
			"two rules":         {w.byFilter(many(2, all)).ID, false},
			"a short list":      {w.byFilter(leaf("properties.plan", "in", `["p0","p1","p2"]`)).ID, false},
			"a hundred rules":   {w.byFilter(many(100, all)).ID, true},
			"a search in texts": {w.byFilter(leaf("properties.plan", "contains", `"p"`)).ID, true},
			"no search in texts": {w.byFilter(`{"type":"not","rule":` + leaf("properties.plan", "contains", `"x"`) + `}`).ID,
				true},
			"a long list": {w.byFilter(leaf("properties.plan", "in", values)).ID, true},
		} {
			list, _, err := w.Contacts.List(ctx, w.team, c.segmentID, page.Page{Limit: 1})
			if errors.Is(err, db.ErrCrowded) != c.crowded || !c.crowded && (err != nil || len(list) != 1) {
				t.Errorf("a list of %s: %d contacts, %v", name, len(list), err)
			}
			found, _, err := w.Contacts.Walk(ctx, w.team, contacts.Audience{SegmentID: c.segmentID}, "", 1)
			if errors.Is(err, db.ErrCrowded) != c.crowded || !c.crowded && (err != nil || len(found) != 1) {
				t.Errorf("a walk of %s: %d contacts, %v", name, len(found), err)
			}
		}
	})
}

// If counting a filtered segment takes too long, the previous count is kept and a single warning is logged. The count
// is tried again later, or after the filter changes.
func TestCountsThatTakeTooLong(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		var log bytes.Buffer
		w.Contacts.Log = slog.New(slog.NewTextHandler(&log, nil))
		w.crowd(12)
		g := w.byFilter(leaf("properties.plan", "eq", `"p1"`))
		w.Contacts.SetCountAtOnce(2)
		w.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO segment_counts (segment_id, team_id, contacts, counted_at)
				VALUES ($1, $2, 7, 1)`, db.ID(g.ID), db.ID(w.team))
			return err
		})
		// step requests a segment's count, compares it with the wanted one, and then runs the next scheduled count.
		step := func(what string, g segments.Segment, want int, renewed bool) {
			t.Helper()
			if c, err := w.Contacts.CountSegment(ctx, g); c.Contacts != want || err != nil {
				t.Errorf("%s: %d contacts, %v, want %d", what, c.Contacts, err, want)
			}
			if did := w.Contacts.RenewNext(ctx); did != renewed {
				t.Errorf("%s: renewed %t, want %t", what, did, renewed)
			}
			if n := strings.Count(log.String(), "takes too long"); n != 1 {
				t.Errorf("%s: the log says it %d times", what, n)
			}
		}
		w.Contacts.SetTimes(0, 0, time.Nanosecond)
		step("a count that takes too long", g, 7, true)
		step("it is not tried at once", g, 7, false)
		w.Contacts.Forgive()
		step("it is tried again later", g, 7, true)
		step("and again too long", g, 7, false)
		changed, err := w.Contacts.Segments.Update(ctx, w.team, g.ID, segments.Change{
			Filter: leaf("properties.plan", "eq", `"p2"`)})
		if err != nil {
			t.Fatal(err)
		}
		w.Contacts.SetTimes(0, 0, time.Minute)
		step("another filter", changed, 0, true)
		step("another filter that was counted", changed, 2, false)
		w.Contacts.Forgive()
		w.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE segment_counts SET counted_at = 1, contacts = 8 WHERE segment_id = $1`,
				db.ID(g.ID))
			return err
		})
		step("a count of the filter before", g, 8, true)
		step("which counts what the segment is now", changed, 2, false)
		if log := log.String(); strings.Count(log, "level=WARN") != 1 {
			t.Errorf("the log:\n%s", log)
		}
	})
}

// Teams take turns with background counts, and the number of waiting segments per team is limited.
func TestCountsTakeTurns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.crowd(4)
		w.Contacts.SetCountAtOnce(2)
		theirs, err := w.Contacts.Segments.Create(ctx, w.Other.TeamID, segments.Definition{Name: "theirs"})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			if _, _, err := w.Contacts.Upsert(ctx, w.Other.TeamID, pad(i),
				contacts.Change{Segments: []string{theirs.ID}}); err != nil {
				t.Fatal(err)
			}
		}
		for range contacts.CountQueue + 5 {
			if _, err := w.Contacts.CountSegment(ctx, w.byFilter(leaf("properties.seats", "gt", "0"))); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second call changes nothing, because the segment is already waiting
			if _, err := w.Contacts.CountSegment(ctx, theirs); err != nil {
				t.Fatal(err)
			}
		}
		counted := func(teamID string) int {
			return w.Count(`SELECT COUNT(*) FROM segment_counts WHERE team_id = $1`, db.ID(teamID))
		}
		for range 2 {
			w.Contacts.RenewNext(ctx)
		}
		if counted(w.team) != 1 || counted(w.Other.TeamID) != 1 {
			t.Errorf("%d and %d of the teams are counted first", counted(w.team), counted(w.Other.TeamID))
		}
		n := 2
		for w.Contacts.RenewNext(ctx) {
			n++
		}
		if n != contacts.CountQueue+1 || counted(w.team) != contacts.CountQueue {
			t.Errorf("%d are counted", n)
		}
	})
}

// until waits until a condition is true.
func (w *world) until(what string, holds func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatal("in vain: ", what)
		}
	}
}

// A team whose count is waiting for a read slot, for example because of the team's own long reads, does not delay other
// teams' counts.
func TestCountsWaitBesideEachOther(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Contacts.SetCountAtOnce(1)
		third, _ := w.Team("Third")
		all := []string{w.team, w.Other.TeamID, third.TeamID}
		var filtered []segments.Segment
		for _, team := range all {
			g, err := w.Contacts.Segments.Create(ctx, team, segments.Definition{Name: "all",
				Filter: leaf("contact.email", "exists", "null")})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 2 {
				if _, _, err := w.Contacts.Upsert(ctx, team, pad(i), contacts.Change{}); err != nil {
					t.Fatal(err)
				}
			}
			filtered = append(filtered, g)
		}
		counted := func() int { return w.Count(`SELECT COUNT(*) FROM segment_counts WHERE contacts = 2`) }
		release := w.fill()
		defer release()
		running, stop := context.WithCancel(ctx)
		var run sync.WaitGroup
		run.Go(func() {
			if err := w.Contacts.Run(running); err != nil {
				t.Error(err)
			}
		})
		defer run.Wait()
		defer stop()
		for _, g := range filtered {
			if _, err := w.Contacts.CountSegment(ctx, g); err != nil {
				t.Fatal(err)
			}
		}
		w.until("all teams' counts wait", func() bool { return w.Contacts.Counted() == len(all) })
		if n := counted(); n != 0 {
			t.Errorf("%d are counted without a place", n)
		}
		release()
		w.until("all teams are counted", func() bool { return counted() == len(all) && w.Contacts.Counted() == 0 })
	})
}

// Only one count runs at a time: a second count that gets a read slot releases the slot and waits.
func TestOneCountAtATime(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.crowd(3)
		w.Contacts.SetCountAtOnce(2)
		if _, err := w.Contacts.CountSegment(ctx, w.byFilter(leaf("properties.seats", "gt", "0"))); err != nil {
			t.Fatal(err)
		}
		release := w.fill()
		done := make(chan bool)
		go func() { done <- w.Contacts.RenewNext(ctx) }()
		w.until("the count waits", func() bool { return w.Contacts.Counted() == 1 })
		end := w.Contacts.HoldCounts()
		release()
		nothing := func(context.Context, db.Reader) error { return nil }
		if err := w.DB.ReadLong(ctx, db.Long{Owner: id.New()}, nothing); err != nil {
			t.Errorf("the place is kept: %v", err)
		}
		select {
		case <-done:
			t.Error("two counts run at the same time")
		default:
		}
		end()
		if !<-done || w.Count(`SELECT COUNT(*) FROM segment_counts WHERE contacts = 2`) != 1 {
			t.Error("it is not counted after the other")
		}
	})
}
