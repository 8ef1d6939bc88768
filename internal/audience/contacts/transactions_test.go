package contacts_test

import (
	"cmp"
	"errors"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// Changes in the caller's transaction take effect only if that transaction is committed.
func TestWithinATransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		segment, err := w.Contacts.Segments.Create(ctx, w.team, segments.Definition{Name: "Customers"})
		w.Must(err)
		gone := w.upsert("gone@x.example", contacts.Change{})
		rita := w.upsert("rita@x.example", contacts.Change{})
		w.happened()
		all := func(tx *db.Tx) error {
			_, created, err := w.Contacts.UpsertIn(ctx, tx, w.team, "New@x.example", contacts.Change{})
			if err == nil && !created {
				err = errors.New("it was there before")
			}
			if err == nil {
				_, err = w.Contacts.UpdateIn(ctx, tx, w.team, rita.ID, contacts.Change{FirstName: new("Rita")})
			}
			if err == nil {
				_, err = w.Contacts.AddToSegmentIn(ctx, tx, w.team, rita.ID, segment.ID)
			}
			if err == nil {
				_, err = w.Contacts.DeleteIn(ctx, tx, w.team, gone.ID)
			}
			return err
		}
		abandoned := errors.New("abandoned")
		if err := w.DB.Update(ctx, func(tx *db.Tx) error { return cmp.Or(all(tx), abandoned) }); !errors.Is(err, abandoned) {
			t.Fatal(err)
		}
		if got := w.happened(); len(got) != 0 {
			t.Errorf("a transaction that failed recorded %v", got)
		}
		if got, err := w.Contacts.Get(ctx, w.team, rita.ID); err != nil || got.FirstName != "" {
			t.Errorf("of a transaction that failed there is left: %+v, %v", got, err)
		}
		w.Must(w.DB.Update(ctx, all))
		want := []string{"contact.created new@x.example", "contact.updated rita@x.example",
			"contact.updated rita@x.example", "contact.deleted gone@x.example"}
		if got := w.happened(); !slices.Equal(got, want) {
			t.Errorf("recorded %v, want %v", got, want)
		}
		if got, err := w.Contacts.Member(ctx, w.team, segment.ID, rita.ID); err != nil || got.FirstName != "Rita" {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := w.Contacts.Get(ctx, w.team, gone.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a deleted contact: %v", err)
		}
	})
}

// After a fault, the caller can continue and commit the transaction.
func TestFaultsWithinATransaction(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		filtered, err := w.Contacts.Segments.Create(ctx, w.team, segments.Definition{Name: "Filtered",
			Filter: `{"type":"rule","field":"contact.first_name","operator":"eq","value":"Rita"}`})
		w.Must(err)
		at := w.upsert("rita@x.example", contacts.Change{})
		theirs, _, err := w.Contacts.Upsert(ctx, w.Other.TeamID, "theirs@x.example", contacts.Change{})
		w.Must(err)
		w.happened()
		update := func(contactID string, c contacts.Change) func(*db.Tx) error {
			return func(tx *db.Tx) error {
				_, err := w.Contacts.UpdateIn(ctx, tx, w.team, contactID, c)
				return err
			}
		}
		add := func(contactID, segmentID string) func(*db.Tx) error {
			return func(tx *db.Tx) error {
				_, err := w.Contacts.AddToSegmentIn(ctx, tx, w.team, contactID, segmentID)
				return err
			}
		}
		for name, c := range map[string]struct {
			do   func(*db.Tx) error
			kind fault.Kind
		}{
			"a name of two lines": {update(at.ID, contacts.Change{FirstName: new("a\nb")}), fault.Invalid},
			"no such property": {update(at.ID, contacts.Change{FirstName: new("Rita"),
				Properties: map[string]scalar.Value{"plan": scalar.OfText("pro")}}), fault.Invalid},
			"no such segment in a change": {update(at.ID, contacts.Change{FirstName: new("Rita"),
				Segments: []string{id.New()}}), fault.Invalid},
			"another team's contact":  {update(theirs.ID, contacts.Change{FirstName: new("Rita")}), fault.NotFound},
			"no such contact":         {add(id.New(), filtered.ID), fault.Invalid},
			"no such segment":         {add(at.ID, id.New()), fault.NotFound},
			"a segment with a filter": {add(at.ID, filtered.ID), fault.Invalid},
			"the deletion of another team's contact": {func(tx *db.Tx) error {
				_, err := w.Contacts.DeleteIn(ctx, tx, w.team, theirs.ID)
				return err
			}, fault.NotFound},
			"no address": {func(tx *db.Tx) error {
				_, _, err := w.Contacts.UpsertIn(ctx, tx, w.team, "nobody", contacts.Change{})
				return err
			}, fault.Invalid},
		} {
			err := w.DB.Update(ctx, func(tx *db.Tx) error {
				if err := c.do(tx); fault.KindOf(err) != c.kind {
					t.Errorf("%s: %v", name, err)
				}
				_, _, err := w.Contacts.UpsertIn(ctx, tx, w.team, "noted@x.example", contacts.Change{FirstName: &name})
				return err
			})
			if err != nil {
				t.Errorf("%s: the transaction ended with %v", name, err)
			}
			if got, err := w.Contacts.Get(ctx, w.team, "noted@x.example"); err != nil || got.FirstName != name {
				t.Errorf("after %s the caller wrote %+v, %v", name, got, err)
			}
		}
		if got, err := w.Contacts.Get(ctx, w.team, at.ID); err != nil || got.FirstName != "" ||
			!got.UpdatedAt.Equal(at.UpdatedAt) {
			t.Errorf("what was refused changed %+v, %v", got, err)
		}
	})
}

func TestMemberIn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		for _, n := range []contacts.NewProperty{
			{Name: "plan", Type: scalar.String, Fallback: scalar.OfText("free")},
			{Name: "seats", Type: scalar.Number, Fallback: scalar.OfNumber(1)},
			{Name: "city", Type: scalar.String},
		} {
			_, err := w.Contacts.CreateProperty(ctx, w.team, n)
			w.Must(err)
		}
		at := w.upsert("rita@x.example", contacts.Change{Properties: map[string]scalar.Value{"plan": scalar.OfText("pro")}})
		got, err := w.Contacts.MemberIn(ctx, w.DB.Reader, w.team, at.ID)
		want := map[string]scalar.Value{"plan": scalar.OfText("pro"), "seats": scalar.OfNumber(1)}
		if err != nil || got.ID != at.ID || !gocmp.Equal(got.Properties, want) {
			t.Errorf("%+v, %v; want the values %v", got, err, want)
		}
		bare := w.upsert("bare@x.example", contacts.Change{})
		got, err = w.Contacts.MemberIn(ctx, w.DB.Reader, w.team, bare.ID)
		want["plan"] = scalar.OfText("free")
		if err != nil || !gocmp.Equal(got.Properties, want) {
			t.Errorf("%+v, %v; want the fallbacks %v", got, err, want)
		}
		if _, err := w.Contacts.MemberIn(ctx, w.DB.Reader, w.Other.TeamID, at.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another team gets %v", err)
		}
	})
}

// Events contain the topics that the contact has just opted in to or out of, so that these changes can start an
// automation.
func TestEventsTellWhatWasChosen(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		news := w.topic(contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		beta := w.topic(contacts.NewTopic{Name: "Beta", Default: contacts.OptOut})
		names := map[string]string{news.ID: "News", beta.ID: "Beta"}
		choose := func(s contacts.Subscription, topics ...contacts.Topic) (c contacts.Change) {
			for _, t := range topics {
				c.Topics = append(c.Topics, contacts.Choice{TopicID: t.ID, Subscription: s})
			}
			return c
		}
		upsert := func(c contacts.Change) func() { return func() { w.upsert("rita@x.example", c) } }
		link := func(topicID string) func() {
			return func() {
				_, _, err := w.Contacts.Unsubscribe(ctx, contacts.Link{TeamID: w.team, EmailID: id.New(), TopicID: topicID,
					Address: "rita@x.example"})
				w.Must(err)
			}
		}
		for _, c := range []struct {
			name string
			do   func()
			want string
		}{
			{"created with a topic", upsert(choose(contacts.OptIn, beta)), "contact.created: Beta in"},
			{"the same again", upsert(choose(contacts.OptIn, beta)), ""},
			{"what the default said, by choice", upsert(choose(contacts.OptIn, news, beta)), "contact.updated: News in"},
			{"a name", upsert(contacts.Change{FirstName: new("Rita")}), "contact.updated:"},
			{"two topics and unsubscribed", upsert(contacts.Change{Unsubscribed: new(true),
				Topics: choose(contacts.OptOut, news, beta).Topics}), "contact.updated: unsubscribed News out Beta out"},
			{"confirmed by a link", link(news.ID), "contact.updated:"},
			{"subscribed again", upsert(contacts.Change{Unsubscribed: new(false),
				Topics: choose(contacts.OptIn, news).Topics}), "contact.updated: subscribed News in"},
			{"left by a link", link(news.ID), "contact.updated: News out"},
			{"left everything by a link", link(""), "contact.updated: unsubscribed"},
			{"unsubscribed when created", func() {
				w.upsert("other@x.example", contacts.Change{Unsubscribed: new(true)})
			}, "contact.created: unsubscribed"},
			{"subscribed when created", func() {
				w.upsert("third@x.example", contacts.Change{Unsubscribed: new(false)})
			}, "contact.created:"},
		} {
			c.do()
			got := ""
			for _, e := range w.seen.Take() {
				d := e.Data.(*events.Contact)
				got += string(e.Type) + ":"
				if d.Switched {
					got += map[bool]string{true: " unsubscribed", false: " subscribed"}[d.Unsubscribed]
				}
				for _, topic := range d.Topics {
					got += " " + names[topic.TopicID] + map[bool]string{true: " in", false: " out"}[topic.In]
				}
			}
			if got != c.want {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
		}
	})
}
