package contacts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/contacts"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/filter"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/scalar"
)

func (w *world) segment(name string) contacts.Segment {
	w.t.Helper()
	g, err := w.Contacts.CreateSegment(w.t.Context(), w.team, contacts.NewSegment{Name: name})
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

func (w *world) property(name string, t scalar.Type) contacts.Property {
	w.t.Helper()
	p, err := w.Contacts.CreateProperty(w.t.Context(), w.team, contacts.NewProperty{Name: name, Type: t})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// walk returns the addresses of an audience, read in pages of a size, up to the @, each with its values.
func (w *world) walk(a contacts.Audience, size int) (all []string) {
	w.t.Helper()
	after := ""
	for {
		found, more, err := w.Contacts.Walk(w.t.Context(), w.team, a, after, size)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, m := range found {
			if m.ID <= after {
				w.t.Errorf("%s comes after %s", m.ID, after)
			}
			after = m.ID
			name, _, _ := strings.Cut(m.Address, "@")
			for _, property := range a.Properties {
				if v, ok := m.Properties[property]; ok {
					name += " " + property + "=" + v.Text
				}
			}
			all = append(all, name)
		}
		if !more {
			return all
		}
	}
}

func TestWalk(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.property("plan", scalar.String)
		w.property("seats", scalar.Number)
		vip, empty := w.segment("vip"), w.segment("empty")
		var before time.Time
		for i := range 7 {
			c := contacts.Change{Properties: map[string]scalar.Value{"seats": scalar.OfNumber(float64(i) + 0.5)}}
			if i%2 == 0 {
				c.Segments = []string{strings.ToUpper(vip.ID)}
				c.Properties["plan"] = scalar.OfText("pro")
			}
			before = w.upsert(fmt.Sprintf("%d@x.example", i), c).CreatedAt
		}
		if _, _, err := w.Contacts.Upsert(ctx, w.Other.TeamID, "0@x.example", contacts.Change{}); err != nil {
			t.Fatal(err)
		}
		w.upsert("late@x.example", contacts.Change{Segments: []string{vip.ID}})
		w.upsert("1@x.example", contacts.Change{Segments: []string{vip.ID}})
		rule := func(text string) *filter.Rule {
			r, err := filter.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		const manySeats = `{"type":"rule","field":"contact.properties.seats","operator":"gt","value":2}`
		many, pro := rule(manySeats), rule(`{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"pro"}`)
		byFilter, err := w.Contacts.CreateSegment(ctx, w.team, contacts.NewSegment{Name: "by filter", Filter: manySeats})
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			a    contacts.Audience
			want []string
		}{
			"all":        {contacts.Audience{}, []string{"0", "1", "2", "3", "4", "5", "6", "late"}},
			"all before": {contacts.Audience{Before: before}, []string{"0", "1", "2", "3", "4", "5", "6"}},
			"a segment":  {contacts.Audience{SegmentID: vip.ID}, []string{"0", "1", "2", "4", "6", "late"}},
			"a segment before": {contacts.Audience{SegmentID: strings.ToUpper(vip.ID), Before: before,
				Properties: []string{"seats", "plan", "unknown", "'; DROP TABLE contacts"}},
				[]string{"0 seats=0.5 plan=pro", "2 seats=2.5 plan=pro", "4 seats=4.5 plan=pro", "6 seats=6.5 plan=pro"}},
			"an empty segment":    {contacts.Audience{SegmentID: empty.ID}, nil},
			"a filter":            {contacts.Audience{Filter: many}, []string{"2", "3", "4", "5", "6"}},
			"a segment by filter": {contacts.Audience{SegmentID: byFilter.ID}, []string{"2", "3", "4", "5", "6"}},
			"a filter of a segment": {contacts.Audience{SegmentID: vip.ID, Filter: many, Before: before,
				Properties: []string{"seats"}}, []string{"2 seats=2.5", "4 seats=4.5", "6 seats=6.5"}},
			"two filters": {contacts.Audience{SegmentID: byFilter.ID, Filter: pro}, []string{"2", "4", "6"}},
		} {
			// In parts of any size, and by sets where parts find few, it is the same.
			for _, part := range []struct{ size, worth int }{{10_000, 10}, {2, 1}, {1, 1_000_000}, {1, 0}} {
				w.Contacts.SetParts(part.size, part.worth)
				for _, size := range []int{1, 3, 100} {
					if diff := cmp.Diff(c.want, w.walk(c.a, size)); diff != "" {
						t.Errorf("%s by %d in parts of %d: %s", name, size, part.size, diff)
					}
				}
				n := int64(0)
				all, err := w.Contacts.CountRefused(ctx, w.team, c.a, "",
					func(string) bool { return true })
				for _, some := range all {
					n += some
				}
				if n != int64(len(c.want)) || err != nil {
					t.Errorf("%s: %d contacts in parts of %d, %v", name, n, part.size, err)
				}
			}
		}
		for _, segmentID := range []string{id.New(), "x", "\x00"} {
			_, _, err := w.Contacts.Walk(ctx, w.team, contacts.Audience{SegmentID: segmentID}, "", 1)
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("segment %q: %v", segmentID, err)
			}
		}
		if _, _, err := w.Contacts.Walk(ctx, w.Other.TeamID, contacts.Audience{SegmentID: vip.ID}, "",
			1); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another team's segment: %v", err)
		}
	})
}

// A page of a walk has few contacts when these have large values, so that it does not fill the memory.
func TestWalkReadsFewLargeContacts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		const n, properties = 60, 50
		of := contacts.Audience{}
		values := map[string]scalar.Value{}
		for i := range properties {
			name := fmt.Sprint("p", i)
			w.property(name, scalar.String)
			of.Properties = append(of.Properties, name)
			values[name] = scalar.OfText(strings.Repeat("x", 2000))
		}
		for i := range n {
			w.upsert(fmt.Sprintf("%02d@x.example", i), contacts.Change{Properties: values})
		}
		var sizes []int
		all := 0
		for after, more := "", true; more; {
			var some []contacts.Member
			var err error
			if some, more, err = w.Contacts.Walk(t.Context(), w.team, of, after, 1000); err != nil || len(some) == 0 {
				t.Fatal(some, err)
			}
			for _, m := range some {
				if all++; len(m.Properties) != properties {
					t.Fatalf("%s has %d values", m.Address, len(m.Properties))
				}
			}
			after = some[len(some)-1].ID
			sizes = append(sizes, len(some))
		}
		if all != n || len(sizes) < 2 {
			t.Errorf("pages of %v contacts, for %d contacts of 100 KB each", sizes, n)
		}
	})
}

func TestRefusedMembers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, s := range []contacts.Subscription{contacts.OptIn, contacts.OptOut} {
			topic := w.topic(contacts.NewTopic{Name: string(s), Default: s})
			choose := func(s contacts.Subscription) contacts.Change {
				return contacts.Change{Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: s}}}
			}
			w.upsert("none@x.example", contacts.Change{})
			w.upsert("in@x.example", choose(contacts.OptIn))
			w.upsert("out@x.example", choose(contacts.OptOut))
			w.upsert("left@x.example", contacts.Change{Unsubscribed: new(true)})
			members, _, err := w.Contacts.Walk(ctx, w.team, contacts.Audience{}, "", 100)
			if err != nil {
				t.Fatal(err)
			}
			named := func(topicID string) map[string]contacts.Refusal {
				t.Helper()
				refused, err := w.Contacts.RefusedMembers(ctx, w.DB.Reader, w.team, topicID, members)
				if err != nil {
					t.Fatal(err)
				}
				found := map[string]contacts.Refusal{}
				for _, m := range members {
					if why := refused[m.ID]; why != "" {
						found[m.Address] = why
					}
				}
				return found
			}
			want := map[string]contacts.Refusal{"left@x.example": contacts.Unsubscribed}
			if diff := cmp.Diff(want, named("")); diff != "" {
				t.Error(diff)
			}
			want["out@x.example"] = contacts.OptedOut
			if s == contacts.OptOut {
				want["none@x.example"] = contacts.NotOptedIn
			}
			if diff := cmp.Diff(want, named(strings.ToUpper(topic.ID))); diff != "" {
				t.Errorf("default %s: %s", s, diff)
			}
			if _, err := w.Contacts.RefusedMembers(ctx, w.DB.Reader, w.Other.TeamID, topic.ID,
				members); fault.KindOf(err) != fault.Invalid {
				t.Errorf("another team's topic: %v", err)
			}
		}
	})
}

// What is mailed is counted for contacts of the team alone.
func TestMailed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a, b := w.upsert("a@x.example", contacts.Change{}), w.upsert("b@x.example", contacts.Change{})
		strange, _, err := w.Contacts.Upsert(t.Context(), w.Other.TeamID, "a@x.example", contacts.Change{})
		if err != nil {
			t.Fatal(err)
		}
		for _, ids := range [][]string{{b.ID, a.ID, strange.ID, id.New()}, {a.ID}, nil} {
			w.Update(func(tx *db.Tx) error { w.Contacts.Mailed(t.Context(), tx, w.team, slices.Clone(ids)); return nil })
		}
		for contactID, want := range map[string]int{a.ID: 2, b.ID: 1, strange.ID: 0} {
			if n := w.Count(`SELECT COALESCE(SUM(mailed), 0) FROM contact_engagement WHERE contact_id = $1
				AND mailed_at > 0 AND opened_at = 0`, contactID); n != want {
				t.Errorf("%d emails are counted for %s, want %d", n, contactID, want)
			}
		}
		if n := w.Count(`SELECT COUNT(*) FROM contact_engagement`); n != 2 {
			t.Errorf("%d rows", n)
		}
	})
}
