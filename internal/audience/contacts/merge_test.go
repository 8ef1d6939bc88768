package contacts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/node/testnode"
)

// summary describes a result in a few words.
func summary(r contacts.MergeResult) string {
	var words []string
	for _, f := range []struct {
		word string
		on   bool
	}{{"created", r.Created}, {"completed", r.Completed}, {"differs", r.Differs}, {"opted out", r.OptedOut},
		{"refused", r.Err != nil}} {
		if f.on {
			words = append(words, f.word)
		}
	}
	return strings.Join(words, ", ")
}

// Merge creates contacts with all of their data, completes existing ones, and never overwrites names and values. A
// second call with the same rows changes nothing. Ann has other names, and Bob has none.
func TestMerge(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		plan := testnode.Must(w.Contacts.CreateProperty(ctx, w.team, contacts.NewProperty{Name: "plan", Type: scalar.String}))
		seats := testnode.Must(w.Contacts.CreateProperty(ctx, w.team,
			contacts.NewProperty{Name: "seats", Type: scalar.Number}))
		segment := testnode.Must(w.Contacts.Segments.Create(ctx, w.team, segments.Definition{Name: "Readers"}))
		news := w.topic(contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		offers := w.topic(contacts.NewTopic{Name: "Offers", Default: contacts.OptOut})
		w.upsert("ann@example.net", contacts.Change{FirstName: new("Ann"),
			Properties: map[string]scalar.Value{"plan": scalar.OfText("free")},
			Topics:     []contacts.Choice{{TopicID: offers.ID, Subscription: contacts.OptIn}}})
		w.upsert("bob@example.net", contacts.Change{Unsubscribed: new(true)})
		w.seen.Take()

		out := contacts.Choice{TopicID: news.ID, Subscription: contacts.OptOut}
		byDefault := func(topicID string, s contacts.Subscription) contacts.MergeChoice {
			return contacts.MergeChoice{Choice: contacts.Choice{TopicID: topicID, Subscription: s}, IsDefault: true}
		}
		values := func(p string, n float64) map[string]scalar.Value {
			return map[string]scalar.Value{plan.ID: scalar.OfText(p), seats.ID: scalar.OfNumber(n)}
		}
		rows := []contacts.MergeRow{
			{Address: "Ann <Ann@example.net>", FirstName: "Anna", Values: values("pro", 2), Segments: []string{segment.ID},
				Topics: []contacts.MergeChoice{{Choice: out}, byDefault(offers.ID, contacts.OptOut)}},
			{Address: "bob@example.net", Topics: []contacts.MergeChoice{byDefault(news.ID, contacts.OptIn)}},
			{Address: "bob@example.net", FirstName: "Bob", Values: values("pro", 3)},
			{Address: "bob@example.net", FirstName: "Bob", LastName: "Lee", Values: values("free", 4)},
			{Address: "cleo@example.net", FirstName: "Cleo", Values: values("pro", 1.5), Segments: []string{segment.ID},
				Topics: []contacts.MergeChoice{{Choice: out}, byDefault(offers.ID, contacts.OptOut)}},
			{Address: "cleo@example.net", Unsubscribed: true},
			{Address: "nobody"},
		}
		properties := []contacts.Property{plan, seats}
		want := []string{"completed, differs, opted out", "completed", "", "", "created", "", "refused"}
		check := func(name string, results []contacts.MergeResult, err error, want []string) {
			t.Helper()
			var got []string
			for _, r := range results {
				got = append(got, summary(r))
			}
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("%s: %v %s", name, err, diff)
			}
		}
		before := w.Count(`SELECT COUNT(*) FROM contacts`)
		planned, err := w.Contacts.PlanMerge(ctx, w.team, properties, rows)
		check("plan", planned, err, want)
		if n := w.Count(`SELECT COUNT(*) FROM contacts`); n != before {
			t.Errorf("a plan wrote %d contacts", n-before)
		}
		merged, err := w.Contacts.Merge(ctx, w.team, properties, rows)
		check("merge", merged, err, want)
		again, err := w.Contacts.Merge(ctx, w.team, properties, rows)
		check("again", again, err, []string{"differs", "", "", "", "", "", "refused"})
		if all := w.seen.Take(); len(all) > 0 {
			t.Errorf("recorded %v", all)
		}

		ann := testnode.Must(w.Contacts.Member(ctx, w.team, segment.ID, "ann@example.net"))
		if ann.FirstName != "Ann" || ann.Unsubscribed || ann.Properties["plan"].Text != "free" ||
			ann.Properties["seats"].Text != "2" {
			t.Errorf("Ann is %+v", ann)
		}
		bob := testnode.Must(w.Contacts.Member(ctx, w.team, "", "bob@example.net"))
		if bob.FirstName != "Bob" || bob.LastName != "Lee" || !bob.Unsubscribed || bob.Properties["plan"].Text != "pro" ||
			bob.Properties["seats"].Text != "3" {
			t.Errorf("Bob is %+v", bob)
		}
		cleo := testnode.Must(w.Contacts.Member(ctx, w.team, segment.ID, "cleo@example.net"))
		if cleo.FirstName != "Cleo" || !cleo.Unsubscribed || cleo.Properties["seats"].Text != "1.5" {
			t.Errorf("Cleo is %+v", cleo)
		}
		for address, want := range map[string]map[string]contacts.Subscription{
			"ann@example.net": {"News": contacts.OptOut, "Offers": contacts.OptOut},
			"bob@example.net": {"News": contacts.OptIn, "Offers": contacts.OptOut},
		} {
			got := map[string]contacts.Subscription{}
			for _, s := range testnode.Must(w.Contacts.Subscriptions(ctx, w.team, address)) {
				got[s.Name] = s.Subscription
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", address, diff)
			}
		}
		if n := w.Count(`SELECT COUNT(*) FROM contact_topics`); n != 3 { // two of Ann and one of Cleo
			t.Errorf("%d choices are stored", n)
		}
		rows[0].Segments = []string{news.ID}
		if _, err := w.Contacts.Merge(ctx, w.team, properties, rows); err == nil {
			t.Error("a segment that does not exist was accepted")
		}
	})
}

// A first name is never combined with the last name of somebody else: neither in an existing contact, nor in rows of
// the same address.
func TestMergeKeepsNamesTogether(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		name := func(first, last string) contacts.MergeRow { return contacts.MergeRow{FirstName: first, LastName: last} }
		for i, x := range []struct{ here, there, want contacts.MergeRow }{
			{name("Ann", ""), name("Bob", "Smith"), name("Ann", "")},
			{name("", "Smith"), name("Bob", "Jones"), name("", "Smith")},
			{name("Ann", ""), name("Ann", "Smith"), name("Ann", "Smith")},
			{name("Ann", ""), name("", "Smith"), name("Ann", "Smith")},
			{name("", ""), name("Bob", "Smith"), name("Bob", "Smith")},
		} {
			existing, fresh := fmt.Sprintf("p%d@example.net", i), fmt.Sprintf("q%d@example.net", i)
			w.upsert(existing, contacts.Change{FirstName: &x.here.FirstName, LastName: &x.here.LastName})
			rows := []contacts.MergeRow{x.there, x.here, x.there}
			rows[0].Address, rows[1].Address, rows[2].Address = existing, fresh, fresh
			if _, err := w.Contacts.Merge(t.Context(), w.team, nil, rows); err != nil {
				t.Fatal(err)
			}
			for _, address := range []string{existing, fresh} {
				got := testnode.Must(w.Contacts.Get(t.Context(), w.team, address))
				if got.FirstName != x.want.FirstName || got.LastName != x.want.LastName {
					t.Errorf("%v and %v become %q %q in %s", x.here, x.there, got.FirstName, got.LastName, address)
				}
			}
		}
	})
}
