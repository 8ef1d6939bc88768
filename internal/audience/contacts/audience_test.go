package contacts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func (w *world) segment(name string) segments.Segment {
	w.t.Helper()
	g, err := w.Contacts.Segments.Create(w.t.Context(), w.team, segments.Definition{Name: name})
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

// walk reads an audience in pages of the given size, and returns the local part of each address with the contact's
// values.
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
		byFilter, err := w.Contacts.Segments.Create(ctx, w.team, segments.Definition{Name: "by filter", Filter: manySeats})
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
			// Walk returns the same contacts whatever the size of the parts, and also when it finds them through the
			// indexes on values.
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

// If contacts have large values, Walk returns only a few contacts per page, to limit memory use.
func TestWalkReadsFewLargeContacts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		const small, n, properties = 30, 90, 50
		of := contacts.Audience{}
		values := map[string]scalar.Value{}
		for i := range properties {
			name := fmt.Sprint("p", i)
			w.property(name, scalar.String)
			of.Properties = append(of.Properties, name)
			values[name] = scalar.OfText(strings.Repeat("x", 2000))
		}
		for i := range n {
			var c contacts.Change
			if i >= small {
				c.Properties = values
			}
			w.upsert(fmt.Sprintf("%02d@x.example", i), c)
		}
		var sizes []int
		all := 0
		for after, more := "", true; more; {
			var some []contacts.Member
			var err error
			if some, more, err = w.Contacts.Walk(t.Context(), w.team, of, after, 1000); err != nil || len(some) == 0 {
				t.Fatal(some, err)
			}
			size := 0
			for _, m := range some {
				if all++; all > small && len(m.Properties) != properties {
					t.Fatalf("%s has %d values", m.Address, len(m.Properties))
				}
				size += 2000 * len(m.Properties)
			}
			if size > 4<<20 {
				t.Errorf("a page of %d contacts has %d bytes", len(some), size)
			}
			after = some[len(some)-1].ID
			sizes = append(sizes, len(some))
		}
		if all != n {
			t.Errorf("pages of %v contacts, for %d", sizes, n)
		}
	})
}

// AudienceMembers returns the current state of contacts, and whether they may be mailed. The result omits deleted
// contacts and other teams' contacts.
func TestAudienceMembers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		strange, _, err := w.Contacts.Upsert(ctx, w.Other.TeamID, "none@x.example", contacts.Change{})
		w.Must(err)
		ids := []string{strange.ID, id.New()}
		for _, s := range []contacts.Subscription{contacts.OptIn, contacts.OptOut} {
			topic := w.topic(contacts.NewTopic{Name: string(s), Default: s})
			choose := func(s contacts.Subscription) contacts.Change {
				return contacts.Change{Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: s}}}
			}
			want := map[string]contacts.AudienceMember{}
			for _, one := range []struct {
				address string
				change  contacts.Change
				refused contacts.Refusal
			}{{"none", contacts.Change{}, map[contacts.Subscription]contacts.Refusal{contacts.OptOut: contacts.NotOptedIn}[s]},
				{"in", choose(contacts.OptIn), ""}, {"out", choose(contacts.OptOut), contacts.OptedOut},
				{"left", contacts.Change{Unsubscribed: new(true)}, contacts.Unsubscribed}} {
				at := w.upsert(one.address+"@x.example", one.change)
				_, err := w.Contacts.Update(ctx, w.team, at.ID, contacts.Change{Address: new("New-" + at.Address)})
				w.Must(err)
				want[at.ID] = contacts.AudienceMember{ID: at.ID, Address: "new-" + at.Address, Refused: one.refused}
				ids = append(ids, at.ID)
			}
			gone := w.upsert("gone@x.example", contacts.Change{})
			_, err := w.Contacts.Delete(ctx, w.team, gone.ID)
			w.Must(err)
			ids = append(ids, gone.ID)
			got, err := w.Contacts.AudienceMembers(ctx, w.DB.Reader, w.team, strings.ToUpper(topic.ID), ids)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("default %s: %v %s", s, err, diff)
			}
			for contactID, c := range want {
				if c.Refused != contacts.Unsubscribed {
					c.Refused = ""
				}
				want[contactID] = c
			}
			got, err = w.Contacts.AudienceMembers(ctx, w.DB.Reader, w.team, "", ids)
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("without a topic: %v %s", err, diff)
			}
			if _, err := w.Contacts.AudienceMembers(ctx, w.DB.Reader, w.Other.TeamID, topic.ID,
				ids); fault.KindOf(err) != fault.Invalid {
				t.Errorf("another team's topic: %v", err)
			}
			for contactID := range want {
				_, err := w.Contacts.Delete(ctx, w.team, contactID)
				w.Must(err)
			}
		}
	})
}

// RefusedContact applies the topic choices of the given contact, even if its address has changed. It also applies those
// of every other contact that has one of the given addresses. If no contact is given, only the contacts that have these
// addresses count. If the contact has been deleted, all addresses are refused.
func TestRefusedContact(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		news := w.topic(contacts.NewTopic{Name: "news", Default: contacts.OptIn})
		beta := w.topic(contacts.NewTopic{Name: "beta", Default: contacts.OptOut})
		choose := func(topic contacts.Topic, s contacts.Subscription) contacts.Change {
			return contacts.Change{Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: s}}}
		}
		strange, _, err := w.Contacts.Upsert(ctx, w.Other.TeamID, "left@x.example", contacts.Change{Unsubscribed: new(true)})
		w.Must(err)
		plain, left := w.upsert("plain@x.example", contacts.Change{}), w.upsert("left@x.example",
			contacts.Change{Unsubscribed: new(true)})
		out, in := w.upsert("out@x.example", choose(news, contacts.OptOut)), w.upsert("in@x.example",
			choose(beta, contacts.OptIn))
		gone := w.topic(contacts.NewTopic{Name: "gone", Default: contacts.OptIn})
		w.Must(w.Contacts.DeleteTopic(ctx, w.team, gone.ID))
		for i, c := range []struct {
			topicID, contactID, address string
			want                        contacts.Refusal
		}{
			{"", plain.ID, "old@x.example", ""},
			{"", plain.ID, "left@x.example", contacts.Unsubscribed},
			{"", plain.ID, "out@x.example", ""},
			{"", left.ID, "old@x.example", contacts.Unsubscribed},
			{"", left.ID, "in@x.example", contacts.Unsubscribed},
			{"", left.ID, "left@x.example", contacts.Unsubscribed},
			{"", "", "left@x.example", contacts.Unsubscribed},
			{"", "", "old@x.example", ""},
			{"", id.New(), "left@x.example", contacts.Deleted},
			{"", strange.ID, "old@x.example", contacts.Deleted},
			{news.ID, plain.ID, "old@x.example", ""},
			{news.ID, plain.ID, "out@x.example", contacts.OptedOut},
			{news.ID, out.ID, "old@x.example", contacts.OptedOut},
			{news.ID, out.ID, "left@x.example", contacts.OptedOut},
			{news.ID, id.New(), "out@x.example", contacts.Deleted},
			{news.ID, id.New(), "old@x.example", contacts.Deleted},
			{strings.ToUpper(beta.ID), in.ID, "old@x.example", ""},
			{beta.ID, in.ID, "plain@x.example", ""}, // no explicit opt-out
			{beta.ID, plain.ID, "in@x.example", contacts.NotOptedIn},
			{beta.ID, id.New(), "old@x.example", contacts.Deleted},
			{gone.ID, id.New(), "old@x.example", contacts.Deleted},
			{beta.ID, "", "in@x.example", ""},
		} {
			for _, all := range [][]string{{c.address}, {c.address, "free@x.example"}} {
				got, err := w.Contacts.RefusedContact(ctx, w.DB.Reader, w.team, c.topicID, c.contactID, all)
				if got[c.address] != c.want || err != nil {
					t.Errorf("%d: of %v is refused %v, %v", i, all, got, err)
				}
			}
		}
		for _, topicID := range []string{id.New(), "x", "\x00", gone.ID} {
			for _, contactID := range []string{plain.ID, ""} {
				_, err := w.Contacts.RefusedContact(ctx, w.DB.Reader, w.team, topicID, contactID, []string{"old@x.example"})
				if f, ok := err.(*fault.Error); !ok || f.Kind != fault.Invalid || f.Field != "topic_id" {
					t.Errorf("topic %q of %q: %v", topicID, contactID, err)
				}
			}
		}
	})
}

// AudienceMembers looks up contacts by id with one query per chunk, by the primary key. RefusedContact looks up a
// contact and several addresses with one query that uses two indexes.
func TestMailabilityIsOneQueryByIndexes(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		n := testnode.New(t, d, testnode.Options{})
		ctx, team := t.Context(), n.Acme.TeamID
		topic, err := n.Contacts.CreateTopic(ctx, team, contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		n.Must(err)
		at, _, err := n.Contacts.Upsert(ctx, team, "a@x.example", contacts.Change{})
		n.Must(err)
		ids := []string{at.ID}
		for range 600 {
			ids = append(ids, id.New())
		}
		key := map[string]string{"sqlite": "sqlite_autoindex_contacts_1", "postgres": "contacts_pkey"}[d.Engine()]
		for _, topicID := range []string{"", topic.ID} {
			current := func(ids []string) func() error {
				return func() error { _, err := n.Contacts.AudienceMembers(ctx, d.Reader, team, topicID, ids); return err }
			}
			for _, c := range []struct {
				queries int
				indexes []string
				ask     func() error
			}{
				{1, []string{key}, current(ids[:500])},
				{2, []string{key}, current(ids)},
				{1, []string{key, "contacts_address"}, func() error {
					_, err := n.Contacts.RefusedContact(ctx, d.Reader, team, topicID, at.ID, []string{"b@x.example"})
					return err
				}},
			} {
				trace.Take()
				n.Must(c.ask())
				asked := trace.Take()
				if len(asked) != c.queries {
					t.Errorf("%d queries, want %d: %v", len(asked), c.queries, asked)
				}
				for _, one := range asked {
					plan := trace.Plan(t, one)
					for _, index := range c.indexes {
						if !strings.Contains(plan, index) {
							t.Errorf("topic %q does not go by %s:\n%s", topicID, index, plan)
						}
					}
					for _, scan := range []string{"SCAN c", "SCAN s", "SCAN t", "Seq Scan"} {
						if strings.Contains(plan, scan) {
							t.Errorf("topic %q: %s\n%s", topicID, scan, plan)
						}
					}
				}
			}
		}
	})
}

// RecordMailed changes the engagement of only those contacts that belong to the team.
func TestRecordMailed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a, b := w.upsert("a@x.example", contacts.Change{}), w.upsert("b@x.example", contacts.Change{})
		strange, _, err := w.Contacts.Upsert(t.Context(), w.Other.TeamID, "a@x.example", contacts.Change{})
		if err != nil {
			t.Fatal(err)
		}
		for _, ids := range [][]string{{b.ID, a.ID, strange.ID, id.New()}, {a.ID}, nil} {
			w.Update(func(tx *db.Tx) error { w.Contacts.RecordMailed(t.Context(), tx, w.team, slices.Clone(ids)); return nil })
		}
		for contactID, want := range map[string]int{a.ID: 2, b.ID: 1, strange.ID: 0} {
			if n := w.Count(`SELECT COALESCE(SUM(mailed), 0) FROM contact_engagement WHERE contact_id = $1
				AND mailed_at > 0 AND opened_at IS NULL`, db.ID(contactID)); n != want {
				t.Errorf("%d emails are counted for %s, want %d", n, contactID, want)
			}
		}
		if n := w.Count(`SELECT COUNT(*) FROM contact_engagement`); n != 2 {
			t.Errorf("%d rows", n)
		}
	})
}

// Whether a contact may be mailed about a topic depends on the contact's choice, the topic's default, and whether the
// contact is unsubscribed.
func TestCountRefused(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		count := func(team, topicID string) (map[string]int64, error) {
			return w.Contacts.CountRefused(t.Context(), team, contacts.Audience{}, topicID, func(string) bool { return true })
		}
		for _, s := range []contacts.Subscription{contacts.OptIn, contacts.OptOut} {
			topic := w.topic(contacts.NewTopic{Name: string(s), Default: s})
			choose := func(s contacts.Subscription) contacts.Change {
				return contacts.Change{Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: s}}}
			}
			w.upsert("none@x.example", contacts.Change{})
			w.upsert("in@x.example", choose(contacts.OptIn))
			w.upsert("out@x.example", choose(contacts.OptOut))
			w.upsert("left@x.example", contacts.Change{Unsubscribed: new(true)})
			got, err := count(w.team, "")
			if diff := cmp.Diff(map[string]int64{"": 3, string(contacts.Unsubscribed): 1}, got); diff != "" || err != nil {
				t.Errorf("%v: %s", err, diff)
			}
			want := map[string]int64{"": 2, string(contacts.OptedOut): 1, string(contacts.Unsubscribed): 1}
			if s == contacts.OptOut {
				want[""], want[string(contacts.NotOptedIn)] = 1, 1
			}
			got, err = count(w.team, strings.ToUpper(topic.ID))
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("default %s: %v: %s", s, err, diff)
			}
			if _, err := count(w.Other.TeamID, topic.ID); fault.KindOf(err) != fault.Invalid {
				t.Errorf("another team's topic: %v", err)
			}
		}
	})
}
