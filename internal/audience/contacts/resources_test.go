package contacts_test

import (
	"errors"
	"fmt"
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
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
)

// Events about a contact list the segments that the contact belongs to at the time of the event, oldest membership
// first.
func TestEventsOfContacts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		first, second, gone := w.segment("first"), w.segment("second"), w.segment("gone")
		w.property("plan", scalar.String)
		pro := map[string]scalar.Value{"plan": scalar.OfText("pro")}
		at := w.upsert("a@x.example", contacts.Change{Segments: []string{second.ID, gone.ID, second.ID}, Properties: pro})
		add := func(segmentID string) {
			t.Helper()
			if _, err := w.Contacts.AddToSegment(ctx, w.team, at.ID, segmentID); err != nil {
				t.Fatal(err)
			}
		}
		remove := func(segmentID string) {
			t.Helper()
			if _, err := w.Contacts.RemoveFromSegment(ctx, w.team, at.Address, segmentID); err != nil {
				t.Fatal(err)
			}
		}
		add(first.ID)
		add(first.ID) // changes nothing
		if err := w.Contacts.Segments.Delete(ctx, w.team, gone.ID); err != nil {
			t.Fatal(err)
		}
		w.upsert("a@x.example", contacts.Change{Properties: pro}) // changes nothing
		w.upsert("a@x.example", contacts.Change{Properties: map[string]scalar.Value{"plan": {}}})
		w.upsert("a@x.example", contacts.Change{Properties: map[string]scalar.Value{"plan": {}}}) // changes nothing
		remove(second.ID)
		remove(second.ID) // changes nothing
		if _, err := w.Contacts.Update(ctx, w.team, at.ID, contacts.Change{Address: new("B@x.example")}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Contacts.Delete(ctx, w.team, "b@x.example"); err != nil {
			t.Fatal(err)
		}
		var got []string
		names := strings.NewReplacer(first.ID, "first", second.ID, "second", gone.ID, "gone")
		var last time.Time
		for _, e := range w.seen.Take() {
			c := e.Data.(*events.Contact)
			got = append(got, names.Replace(fmt.Sprint(e.Type, " ", c.Email, " ", c.SegmentIDs)))
			if c.ID != at.ID || !c.CreatedAt.Equal(at.CreatedAt) || c.UpdatedAt.Before(last) {
				t.Errorf("%+v", c)
			}
			last = c.UpdatedAt
		}
		want := []string{
			"contact.created a@x.example [second gone]",
			"contact.updated a@x.example [second gone first]",
			"contact.updated a@x.example [second first]",
			"contact.updated a@x.example [first]",
			"contact.updated b@x.example [first]",
			"contact.deleted b@x.example [first]",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	})
}

// rows returns the number of rows in each table that package contacts uses.
func (w *world) rows() string {
	w.t.Helper()
	text := ""
	for _, table := range []string{"contacts", "contact_topics", "contact_texts", "contact_numbers", "contact_segments",
		"contact_engagement", "topics", "segments", "segment_counts", "contact_properties"} {
		text += fmt.Sprint(w.Count(`SELECT COUNT(*) FROM `+table), " ")
	}
	return strings.TrimSpace(text)
}

// whole creates a contact that has a row in each table.
func (w *world) whole(address string, topic contacts.Topic, g segments.Segment, choice contacts.Subscription) string {
	w.t.Helper()
	at := w.upsert(address, contacts.Change{FirstName: new("First"), Segments: []string{g.ID},
		Properties: map[string]scalar.Value{"plan": scalar.OfText("pro"), "seats": scalar.OfNumber(7)},
		Topics:     []contacts.Choice{{TopicID: topic.ID, Subscription: choice}}})
	w.Update(func(tx *db.Tx) error { w.Contacts.RecordMailed(w.t.Context(), tx, w.team, []string{at.ID}); return nil })
	return at.ID
}

// When a contact, property or segment is deleted, or an address or team is erased, all rows that belong to it are
// deleted.
func TestNothingIsLeft(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		want := func(when, rows string) {
			t.Helper()
			if got := w.rows(); got != rows {
				t.Errorf("%s: rows %s, want %s", when, got, rows)
			}
		}
		topic := w.topic(contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		g := w.segment("all")
		plan, seats := w.property("plan", scalar.String), w.property("seats", scalar.Number)
		for i := range 6 {
			w.whole(fmt.Sprintf("%d@x.example", i), topic, g, contacts.OptIn)
		}
		w.whole("out@x.example", topic, g, contacts.OptOut)
		w.Update(func(tx *db.Tx) error {
			tx.Queue(ctx, `INSERT INTO segment_counts (segment_id, team_id, contacts, counted_at) VALUES ($1, $2, 7, 1)`,
				db.ID(g.ID), db.ID(w.team))
			return nil
		})
		want("at first", "7 7 7 7 7 7 1 1 1 2")
		_, err := w.Contacts.Delete(ctx, w.team, "0@x.example")
		must(err)
		want("a contact deleted", "6 6 6 6 6 6 1 1 1 2")
		erase := func(address string, refusals bool) {
			t.Helper()
			a, err := erasure.Parse(address)
			must(err)
			_, err = contacts.EraseAddress(ctx, w.DB, a, erasure.Scope{Teams: []string{w.team, w.Other.TeamID}}, refusals)
			must(err)
		}
		erase("1@x.example", false)
		want("an address erased", "5 5 5 5 5 5 1 1 1 2")
		erase("out@x.example", false)
		want("an address erased that refuses", "5 5 4 4 4 4 1 1 1 2")
		must(w.Contacts.DeleteProperty(ctx, w.team, plan.ID))
		must(w.Contacts.Sweep(ctx))
		want("a property deleted", "5 5 0 4 4 4 1 1 1 1")
		must(w.Contacts.DeleteProperty(ctx, w.team, seats.ID))
		must(w.Contacts.Segments.Delete(ctx, w.team, g.ID))
		must(w.Contacts.Sweep(ctx))
		want("all deleted", "5 5 0 0 0 4 1 0 0 0")
		w.property("plan", scalar.String)
		w.property("seats", scalar.Number)
		g = w.segment("again")
		for i := range 3 {
			w.whole(fmt.Sprintf("%d@y.example", i), topic, g, contacts.OptIn)
		}
		_, _, err = w.Contacts.Upsert(ctx, w.Other.TeamID, "other@x.example", contacts.Change{})
		must(err)
		must(w.Contacts.EraseTeam(ctx, w.team))
		want("a team erased", "1 0 0 0 0 0 0 0 0 0")
	})
}

// If a contact can be neither inserted nor found after all retries, the result is an internal error.
func TestContested(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		statements := []string{`CREATE TRIGGER contested BEFORE INSERT ON contacts BEGIN SELECT RAISE(IGNORE); END`}
		if !w.DB.Alone() {
			statements = []string{
				`CREATE FUNCTION contested() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$`,
				`CREATE TRIGGER contested BEFORE INSERT ON contacts FOR EACH ROW EXECUTE FUNCTION contested()`}
		}
		w.Update(func(tx *db.Tx) error {
			for _, text := range statements {
				if _, err := tx.Exec(ctx, text); err != nil {
					return err
				}
			}
			return nil
		})
		_, _, err := w.Contacts.Upsert(ctx, w.team, "a@x.example", contacts.Change{})
		inBulk := w.DB.Update(ctx, func(tx *db.Tx) error {
			_, err := w.Contacts.WriteBulk(ctx, tx, w.team, &contacts.Bulk{}, []contacts.BulkRow{{Address: "a@x.example"}})
			return err
		})
		for _, err := range []error{err, inBulk} {
			if !fault.Ours(err) || !strings.Contains(err.Error(), "created and deleted it 10 times") {
				t.Errorf("%v", err)
			}
		}
	})
}

// When a property or segment that many contacts have is deleted, its values or memberships are deleted in several
// steps.
func TestSweepInSteps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		g, kept := w.segment("gone"), w.segment("kept")
		plan, other := w.property("plan", scalar.String), w.property("other", scalar.String)
		w.Update(func(tx *db.Tx) error {
			for i := range 1201 {
				contactID := id.New()
				for _, to := range []string{g.ID, kept.ID} {
					tx.Queue(ctx, `INSERT INTO contact_segments (team_id, segment_id, contact_id, created_at)
						VALUES ($1, $2, $3, 1)`, db.ID(w.team), db.ID(to), db.ID(contactID))
				}
				for _, of := range []string{plan.ID, other.ID} {
					tx.Queue(ctx, `INSERT INTO contact_texts (team_id, contact_id, property_id, value) VALUES ($1, $2, $3, $4)`,
						db.ID(w.team), db.ID(contactID), db.ID(of), fmt.Sprint("v", i%3))
				}
			}
			return nil
		})
		for _, err := range []error{w.Contacts.DeleteProperty(ctx, w.team, plan.ID),
			w.Contacts.Segments.Delete(ctx, w.team, g.ID), w.Contacts.Sweep(ctx)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if got, want := w.rows(), "0 0 1201 0 1201 0 0 1 0 1"; got != want {
			t.Errorf("rows %s, want %s", got, want)
		}
	})
}

// The number of properties and segments per team is limited, and other teams cannot see them.
func TestLimitsOfPropertiesAndSegments(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		w.Update(func(tx *db.Tx) error {
			for i := range contacts.MaxProperties {
				tx.Queue(ctx, `INSERT INTO contact_properties (id, team_id, name, type, fallback, has_fallback, created_at,
					deleted_at) VALUES ($1, $2, $3, 'string', '', FALSE, 1, 0)`, db.ID(id.New()), db.ID(w.team), fmt.Sprint("p",
					i))
			}
			for range segments.Max {
				tx.Queue(ctx, `INSERT INTO segments (id, team_id, name, filter, created_at, deleted_at)
					VALUES ($1, $2, 'same', '', 1, 0)`, db.ID(id.New()), db.ID(w.team))
			}
			return nil
		})
		_, err := w.Contacts.CreateProperty(ctx, w.team, contacts.NewProperty{Name: "more", Type: scalar.String})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("one property too many: %v", err)
		}
		_, err = w.Contacts.Segments.Create(ctx, w.team, segments.Definition{Name: "more"})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("one segment too many: %v", err)
		}
		all, more, err := w.Contacts.Segments.List(ctx, w.team, page.Page{})
		if len(all) != segments.Max || more || err != nil {
			t.Errorf("%d segments, %v, %v", len(all), more, err)
		}
		if all, _, err := w.Contacts.Segments.List(ctx, w.Other.TeamID, page.Page{}); len(all) != 0 || err != nil {
			t.Errorf("another team sees %v, %v", all, err)
		}
	})
}

// If concurrent requests create the last property that the limit allows, or create the same contact, each request gets
// a correct response.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		g := w.segment("all")
		w.property("seats", scalar.Number)
		var wg sync.WaitGroup
		ids := make([]string, 12)
		taken := make([]error, 12)
		for i := range 12 {
			wg.Go(func() {
				at, _, err := w.Contacts.Upsert(ctx, w.team, "new@x.example", contacts.Change{Segments: []string{g.ID},
					Properties: map[string]scalar.Value{"seats": scalar.OfNumber(float64(i))}})
				if err != nil {
					t.Error(err)
				}
				ids[i] = at.ID
				_, taken[i] = w.Contacts.CreateProperty(ctx, w.team, contacts.NewProperty{Name: "plan", Type: scalar.String})
			})
		}
		wg.Wait()
		if slices.Sort(ids); ids[0] != ids[11] {
			t.Errorf("contacts %v", ids)
		}
		made := 0
		for _, err := range taken {
			switch {
			case err == nil:
				made++
			case fault.KindOf(err) != fault.Invalid:
				t.Error(err)
			}
		}
		if made != 1 {
			t.Errorf("%d properties of one name", made)
		}
		if got, want := w.rows(), "1 0 0 1 1 0 0 1 0 2"; got != want {
			t.Errorf("rows %s, want %s", got, want)
		}
	})
}

// After contacts are written, deleted and erased concurrently, no rows for deleted contacts remain.
func TestDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		topic, g := w.topic(contacts.NewTopic{Name: "News", Default: contacts.OptIn}), w.segment("all")
		w.property("plan", scalar.String)
		w.property("seats", scalar.Number)
		a, err := erasure.Parse("a@x.example")
		if err != nil {
			t.Fatal(err)
		}
		all := contacts.Change{Segments: []string{g.ID},
			Topics:     []contacts.Choice{{TopicID: topic.ID, Subscription: contacts.OptIn}},
			Properties: map[string]scalar.Value{"plan": scalar.OfText("pro"), "seats": scalar.OfNumber(1)}}
		var wg sync.WaitGroup
		for _, do := range []func() error{
			func() error { return errorOf2(w.Contacts.Upsert(ctx, w.team, "a@x.example", all)) },
			func() error {
				return errorOf2(w.Contacts.Upsert(ctx, w.team, "a@x.example", contacts.Change{Topics: all.Topics}))
			},
			func() error { return errorOf(w.Contacts.Update(ctx, w.team, "a@x.example", all)) },
			func() error { return errorOf(w.Contacts.Delete(ctx, w.team, "a@x.example")) },
			func() error { return errorOf(w.Contacts.AddToSegment(ctx, w.team, "a@x.example", g.ID)) },
			func() error {
				return errorOf(contacts.EraseAddress(ctx, w.DB, a, erasure.Scope{Teams: []string{w.team}}, true))
			},
		} {
			wg.Go(func() {
				for range 20 {
					if err := do(); err != nil && fault.KindOf(err) != fault.NotFound {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		for _, table := range []string{"contact_topics", "contact_texts", "contact_numbers", "contact_segments"} {
			if n := w.Count(`SELECT COUNT(*) FROM ` + table + ` v WHERE NOT EXISTS (SELECT 1 FROM contacts c
				WHERE c.id = v.contact_id AND c.team_id = v.team_id)`); n != 0 {
				t.Errorf("%d rows of %s have no contact", n, table)
			}
		}
	})
}

// Opens and clicks by people count for the contact that has the recipient's address; opens and clicks by bots do not
// count.
func TestEngagement(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		at := w.upsert("a@x.example", contacts.Change{})
		emailID := w.Send(testnode.Hello("A@x.example", "nobody@x.example"))
		early, late := time.UnixMicro(1_700_000_000_000_000).UTC(), time.UnixMicro(1_800_000_000_000_000).UTC()
		event := func(to string, data any, when time.Time) events.Event {
			e := events.Event{TeamID: w.team, EmailID: emailID, Type: events.EmailOpened, Recipient: to, At: when, Data: data}
			if _, ok := data.(*events.Click); ok {
				e.Type = events.EmailClicked
			}
			return e
		}
		program := events.Machine{Is: true, Reason: "prefetch"}
		w.Happen(event("A@x.example", &events.Open{}, late), event("A@x.example", &events.Open{}, early),
			event("A@x.example", &events.Click{}, late),
			event("A@x.example", &events.Open{Machine: program}, late.Add(time.Hour)),
			event("A@x.example", &events.Click{Machine: program}, late.Add(time.Hour)),
			event("nobody@x.example", &events.Open{}, late))
		w.Happen(event("A@x.example", &events.Click{}, early))
		var opened, clicked, openedAt, clickedAt int64
		err := w.DB.QueryRow(t.Context(), `SELECT opened, clicked, opened_at, clicked_at FROM contact_engagement
			WHERE contact_id = $1 AND team_id = $2 AND mailed = 0 AND mailed_at IS NULL`, db.ID(at.ID), db.ID(w.team)).
			Scan(&opened, &clicked, &openedAt, &clickedAt)
		if err != nil || opened != 2 || clicked != 2 || openedAt != late.UnixMicro() || clickedAt != late.UnixMicro() {
			t.Errorf("%d opens until %d, %d clicks until %d, %v", opened, openedAt, clicked, clickedAt, err)
		}
		if n := w.Count(`SELECT COUNT(*) FROM contact_engagement`); n != 1 {
			t.Errorf("%d rows", n)
		}
	})
}

// Opens and clicks count for the contact that the email was sent to, even if its address has changed. If that contact
// no longer exists, opens and clicks count for the contact that has the recipient's normalized address.
func TestEngagementIsOfTheContact(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		emailID := w.Send(testnode.Hello("a@x.example"))
		moved, gone := w.upsert("a@x.example", contacts.Change{}), w.upsert("gone@x.example", contacts.Change{})
		_, err := w.Contacts.Update(ctx, w.team, moved.ID, contacts.Change{Address: new("b@x.example")})
		w.Must(err)
		_, err = w.Contacts.Delete(ctx, w.team, gone.ID)
		w.Must(err)
		strange, _, err := w.Contacts.Upsert(ctx, w.Other.TeamID, "stranger@x.example", contacts.Change{})
		w.Must(err)
		late, again := w.upsert("a@x.example", contacts.Change{}), w.upsert("gone@x.example", contacts.Change{})
		kelvin := w.upsert("\u212aarl@x.example", contacts.Change{}) // the Kelvin sign, which has the lowercase form k
		w.upsert("karl@x.example", contacts.Change{})
		by := func(contactID, to string, data any) events.Event {
			e := events.Event{TeamID: w.team, EmailID: emailID, Type: events.EmailOpened, Recipient: to,
				ContactID: contactID, Data: data}
			if _, ok := data.(*events.Click); ok {
				e.Type = events.EmailClicked
			}
			return e
		}
		w.Happen(by(moved.ID, "A@x.example", &events.Open{}), by(moved.ID, "A@x.example", &events.Click{}),
			by(moved.ID, "", &events.Open{}), by("", "B@x.example", &events.Open{}),
			by(gone.ID, "Gone@x.example", &events.Click{}), by(strange.ID, "stranger@x.example", &events.Open{}),
			by("", "\u212aarl@x.example", &events.Open{}), by("", "", &events.Open{}))
		w.Happen(by("", "A@x.example", &events.Click{}))
		for contactID, want := range map[string][2]int{moved.ID: {3, 1}, late.ID: {0, 1}, again.ID: {0, 1},
			kelvin.ID: {1, 0}} {
			for i, column := range []string{"opened", "clicked"} {
				if n := w.Count(`SELECT COALESCE(SUM(`+column+`), 0) FROM contact_engagement WHERE contact_id = $1`,
					db.ID(contactID)); n != want[i] {
					t.Errorf("%d %s of %s, want %d", n, column, contactID, want[i])
				}
			}
		}
		if n := w.Count(`SELECT COUNT(*) FROM contact_engagement`); n != 4 {
			t.Errorf("%d rows", n)
		}
	})
}

// Every operation that accepts an id returns NotFound for another team's objects.
func TestOfOtherTeams(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		ctx, strange := t.Context(), w.Other.TeamID
		topic := w.topic(contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		g, p := w.segment("all"), w.property("plan", scalar.String)
		w.property("seats", scalar.Number)
		contactID := w.whole("a@x.example", topic, g, contacts.OptIn)
		theirs, _, err := w.Contacts.Upsert(ctx, strange, "b@x.example", contacts.Change{})
		if err != nil {
			t.Fatal(err)
		}
		w.seen.Take()
		before := w.rows()
		filter := func(field, value string) segments.Definition {
			return segments.Definition{Name: "x",
				Filter: `{"type":"rule","field":"` + field + `","operator":"eq","value":"` + value + `"}`}
		}
		of := contacts.Audience{SegmentID: g.ID}
		for what, c := range map[string]struct {
			err  error
			kind fault.Kind
		}{
			"contact":         {errorOf(w.Contacts.Get(ctx, strange, contactID)), fault.NotFound},
			"update":          {errorOf(w.Contacts.Update(ctx, strange, contactID, contacts.Change{})), fault.NotFound},
			"delete":          {errorOf(w.Contacts.Delete(ctx, strange, contactID)), fault.NotFound},
			"its segments":    {errorOf2(w.Contacts.SegmentsOf(ctx, strange, contactID, page.Page{})), fault.NotFound},
			"its topics":      {errorOf2(w.Contacts.ListSubscriptions(ctx, strange, contactID, page.Page{})), fault.NotFound},
			"a list":          {errorOf2(w.Contacts.List(ctx, strange, g.ID, page.Page{})), fault.NotFound},
			"a member":        {errorOf(w.Contacts.Member(ctx, strange, g.ID, contactID)), fault.NotFound},
			"a walk":          {errorOf2(w.Contacts.Walk(ctx, strange, of, "", 1)), fault.NotFound},
			"a count":         {errorOf(w.Contacts.CountRefused(ctx, strange, of, "", nil)), fault.NotFound},
			"add to it":       {errorOf(w.Contacts.AddToSegment(ctx, strange, theirs.ID, g.ID)), fault.NotFound},
			"add another":     {errorOf(w.Contacts.AddToSegment(ctx, w.team, theirs.ID, g.ID)), fault.NotFound},
			"remove from it":  {errorOf(w.Contacts.RemoveFromSegment(ctx, strange, theirs.ID, g.ID)), fault.NotFound},
			"segment":         {errorOf(w.Contacts.Segments.Get(ctx, strange, g.ID)), fault.NotFound},
			"rename":          {errorOf(w.Contacts.Segments.Update(ctx, strange, g.ID, segments.Change{})), fault.NotFound},
			"delete it":       {w.Contacts.Segments.Delete(ctx, strange, g.ID), fault.NotFound},
			"property":        {errorOf(w.Contacts.Property(ctx, strange, p.ID)), fault.NotFound},
			"fallback":        {errorOf(w.Contacts.UpdateProperty(ctx, strange, p.ID, scalar.Value{})), fault.NotFound},
			"delete property": {w.Contacts.DeleteProperty(ctx, strange, p.ID), fault.NotFound},
			"a segment of a change": {errorOf(w.Contacts.Update(ctx, strange, theirs.ID,
				contacts.Change{Segments: []string{g.ID}})), fault.Invalid},
			"a property of a change": {errorOf(w.Contacts.Update(ctx, strange, theirs.ID,
				contacts.Change{Properties: map[string]scalar.Value{"plan": scalar.OfText("x")}})), fault.Invalid},
			"a topic of a change": {w.Contacts.Subscribe(ctx, strange, theirs.ID,
				[]contacts.Choice{{TopicID: topic.ID, Subscription: contacts.OptOut}}), fault.Invalid},
			"a property of a filter": {errorOf(w.Contacts.Segments.Create(ctx, strange, filter("contact.properties.plan",
				"pro"))),
				fault.Invalid},
			"a topic of a filter": {errorOf(w.Contacts.Segments.Create(ctx, strange,
				filter("contact.topics."+topic.ID, "opt_in"))), fault.Invalid},
			"a segment of a filter": {errorOf(w.Contacts.Segments.Create(ctx, strange, filter("contact.segments", g.ID))),
				fault.Invalid},
		} {
			if fault.KindOf(c.err) != c.kind {
				t.Errorf("%s: %v", what, c.err)
			}
		}
		if after := w.rows(); after != before {
			t.Errorf("rows %s became %s", before, after)
		}
		if all := w.seen.Take(); len(all) != 0 {
			t.Errorf("recorded %+v", all)
		}
	})
}

func errorOf2[T any](_ T, _ bool, err error) error { return err }

// Changing a contact's address fails if a concurrent transaction has just given the new address to another contact.
func TestUpdateRefuses(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a := w.upsert("a@x.example", contacts.Change{})
		w.upsert("b@x.example", contacts.Change{})
		w.happened()
		_, err := w.Contacts.Update(t.Context(), w.team, a.ID, contacts.Change{Address: new("b@x.example"),
			FirstName: new("x")})
		var f *fault.Error
		if !errors.As(err, &f) || f.Kind != fault.Invalid || f.Field != "email" {
			t.Errorf("%v", err)
		}
		got, err := w.Contacts.Get(t.Context(), w.team, a.ID)
		if err != nil || got.FirstName != "" || got.Address != a.Address {
			t.Errorf("%+v, %v", got, err)
		}
		if all := w.happened(); len(all) != 0 {
			t.Errorf("what was refused recorded %v", all)
		}
		for what, err := range map[string]error{
			"update": errorOf(w.Contacts.Update(t.Context(), w.Other.TeamID, a.ID, contacts.Change{})),
			"delete": errorOf(w.Contacts.Delete(t.Context(), w.Other.TeamID, a.ID)),
			"member": errorOf(w.Contacts.Member(t.Context(), w.Other.TeamID, "", a.ID)),
		} {
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("another team's %s: %v", what, err)
			}
		}
	})
}
