package privacy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is a test node with the privacy service. The fixture includes those of the program's erasers that depend only
// on the node.
type fixture struct {
	*testnode.Node
	*privacy.Service
	t      *testing.T
	before func(name string) error // called before each eraser; an error interrupts the erasure
	soon   int                     // number of passes in which some data is too recent to be erased
}

func newFixture(t *testing.T, n *testnode.Node) *fixture {
	f := &fixture{Node: n, t: t, before: func(string) error { return nil }}
	eraser := func(name string, erase func(context.Context, erasure.Address, erasure.Scope) (erasure.Report, error),
	) erasure.Eraser {
		return erasure.Eraser{Name: name, Erase: func(ctx context.Context, a erasure.Address, s erasure.Scope) (
			erasure.Report, error) {
			if err := f.before(name); err != nil {
				return nil, err
			}
			return erase(ctx, a, s)
		}}
	}
	f.Service = testnode.Must(privacy.New(privacy.Deps{DB: n.DB, Queue: n.Queue, Contacts: n.Contacts, Emails: n.Emails,
		Suppressions: n.Suppressions,
		Received: func(_ context.Context, _ string, _ erasure.Address, after string) ([]privacy.ReceivedPart, string, error) {
			return []privacy.ReceivedPart{{ID: "after " + after}}, map[string]string{"": "1", "1": "2"}[after], nil
		},
		Broadcasts: func(_ context.Context, _ string, a erasure.Address, _ string) ([]privacy.BroadcastPart, string, error) {
			return []privacy.BroadcastPart{{BroadcastID: "of " + a.Key(), Opens: 2}}, "", nil
		},
		Automations: func(_ context.Context, _, contactID, _ string) ([]privacy.RunPart, string, error) {
			return []privacy.RunPart{{ID: "of " + contactID}}, "", nil
		},
		Erasers: []erasure.Eraser{
			eraser("sent emails", n.Emails.EraseAddress),
			eraser("contacts", func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
				return contacts.EraseAddress(ctx, n.DB, a, s, s.Refusals)
			}),
			eraser("recent", func(context.Context, erasure.Address, erasure.Scope) (r erasure.Report, err error) {
				if r.Add("rows", 1); f.soon > 0 {
					r.Leave("rows", erasure.LeftSoon, f.soon)
					f.soon--
				}
				return r, nil
			}),
			eraser("suppressions", func(ctx context.Context, a erasure.Address, s erasure.Scope) (erasure.Report, error) {
				if !s.Refusals {
					return nil, nil
				}
				return suppressions.EraseAddress(ctx, n.DB, a, s)
			}),
		}}))
	return f
}

func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) { test(t, newFixture(t, n)) })
}

// job claims an erasure's job as a worker does.
func (f *fixture) job(erasureID string) (j jobs.Job) {
	f.t.Helper()
	f.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(f.t.Context(), `UPDATE jobs SET attempt = attempt + 1 WHERE dedupe = $1`, erasureID)
		return err
	})
	f.Must(f.DB.QueryRow(f.t.Context(), `SELECT id, kind, lane, team_id, payload, attempt FROM jobs WHERE dedupe = $1`,
		erasureID).Scan((*db.ID)(&j.ID), &j.Kind, &j.Lane, (*db.ID)(&j.TeamID), &j.Payload, &j.Attempt))
	return j
}

// work runs an erasure's job once.
func (f *fixture) work(erasureID string) error {
	return f.Kind().Handle(f.t.Context(), f.job(erasureID))
}

func (f *fixture) erase(address string, o privacy.Options) privacy.Erasure {
	f.t.Helper()
	e, err := f.Erase(f.t.Context(), f.Acme.TeamID, address, o)
	f.Must(err)
	return e
}

// state formats the state of an erasure as one line.
func (f *fixture) state(erasureID string) string {
	f.t.Helper()
	e, err := f.Get(f.t.Context(), f.Acme.TeamID, erasureID)
	f.Must(err)
	var b strings.Builder
	fmt.Fprint(&b, e.State)
	for _, p := range e.Report {
		fmt.Fprintf(&b, "; %s:", p.Name)
		for _, c := range p.Found {
			fmt.Fprintf(&b, " %d %s", c.N, strings.TrimSpace(c.Kind+" "+string(c.Left)))
		}
	}
	return b.String()
}

const alone = "; sent emails: 1 sent emails to nobody else, deleted"

func (f *fixture) settled(to string) {
	f.t.Helper()
	emailID := f.Send(testnode.Hello(to))
	f.Happen(events.Event{TeamID: f.Acme.TeamID, EmailID: emailID, Type: events.EmailDelivered, Recipient: to})
	f.Counted(time.Now().Add(time.Hour))
}

// An interrupted erasure continues where it stopped, stores the address only until it ends, and can be requested again.
func TestErase(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, acme := t.Context(), f.Acme.TeamID
		f.settled("ann@one.example")
		for _, teamID := range []string{acme, f.Other.TeamID} {
			_, err := f.Suppressions.Add(ctx, teamID, []string{"ann@one.example"})
			f.Must(err)
			_, _, err = f.Contacts.Upsert(ctx, teamID, "ann@one.example", contacts.Change{FirstName: new("Ann")})
			f.Must(err)
		}
		c, err := f.Contacts.Get(ctx, acme, "ann@one.example")
		f.Must(err)
		e := f.erase(strings.ToUpper(c.ID), privacy.Options{})
		if e.State != privacy.Queued || e.ContactID != c.ID {
			t.Errorf("%+v", e)
		}
		if again := f.erase("ANN@one.example", privacy.Options{}); again.ID != e.ID {
			t.Errorf("the same is erased twice at once")
		}
		_, err = f.Erase(ctx, acme, c.ID, privacy.Options{Refusals: true})
		if fault.KindOf(err) != fault.Locked {
			t.Errorf("with other options: %v", err)
		}
		var began []string
		f.before = func(name string) error {
			if began = append(began, name); name == "contacts" && len(began) < 3 {
				return errors.New("the node stops")
			}
			return nil
		}
		if err := f.work(e.ID); err == nil || f.state(e.ID) != "in_progress"+alone {
			t.Errorf("after an interruption it is %s, %v", f.state(e.ID), err)
		}
		f.Must(f.work(e.ID))
		want := "completed" + alone + "; contacts: 1 contacts deleted; recent: 1 rows; suppressions:"
		if f.state(e.ID) != want {
			t.Errorf("it is %s", f.state(e.ID))
		}
		if want := []string{"sent emails", "contacts", "contacts", "recent", "suppressions"}; !slices.Equal(began, want) {
			t.Errorf("it did %q", began)
		}
		if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, privacy.Kind); n > 0 {
			t.Errorf("%d jobs are left", n)
		}
		if n := f.Count(`SELECT COUNT(*) FROM erasures WHERE address <> ''`); n > 0 {
			t.Error("the erasure keeps the address")
		}
		if n := f.Count(`SELECT COUNT(*) FROM contacts WHERE address = 'ann@one.example'`); n != 1 {
			t.Errorf("%d contacts are left: one is of another team", n)
		}
		e = f.erase("ann@one.example", privacy.Options{Refusals: true})
		f.Must(f.work(e.ID))
		if want := "completed; sent emails:; contacts:; recent: 1 rows; suppressions: 1 suppressions deleted"; f.state(
			e.ID) != want || e.ContactID != "" {
			t.Errorf("again it is %s", f.state(e.ID))
		}
		if n := f.Count(`SELECT COUNT(*) FROM suppressions`); n != 1 {
			t.Errorf("%d suppressions are left: one is of another team", n)
		}
		all, more, err := f.List(ctx, acme, page.Page{Limit: 1})
		if err != nil || !more || len(all) != 1 || all[0].ID != e.ID || all[0].CompletedAt.IsZero() {
			t.Errorf("%+v, %v, %v", all, more, err)
		}
		if _, err := f.Get(ctx, f.Other.TeamID, e.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("for another team: %v", err)
		}
	})
}

// While some data is too recent, an erasure runs more passes and adds up their counts. A dry run has only one pass.
func TestErasePasses(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.soon = 2
		e := f.erase("ann@one.example", privacy.Options{})
		for i, want := range []string{"1 rows 2 rows soon", "2 rows 1 rows soon", "3 rows"} {
			f.Must(f.work(e.ID))
			if state := f.state(e.ID); !strings.Contains(state, "recent: "+want+";") || strings.HasPrefix(state,
				"completed") != (i == 2) {
				t.Errorf("after pass %d it is %s", i, state)
			}
		}
		f.soon = 100
		e = f.erase("ann@one.example", privacy.Options{})
		for range 4 {
			f.Must(f.work(e.ID))
		}
		if state := f.state(e.ID); !strings.HasPrefix(state, "completed") || !strings.Contains(state, "97 rows soon") {
			t.Errorf("in the end it is %s", state)
		}
		f.settled("bo@one.example")
		e = f.erase("bo@one.example", privacy.Options{DryRun: true})
		f.Must(f.work(e.ID))
		if state := f.state(e.ID); !strings.HasPrefix(state, "completed"+alone) ||
			f.Count(`SELECT COUNT(*) FROM emails`) != 1 {
			t.Errorf("a dry run is %s", state)
		}
	})
}

// If two workers run the same erasure because one of their nodes was declared dead, nothing is counted twice.
func TestEraseTwice(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.settled("ann@one.example")
		e := f.erase("ann@one.example", privacy.Options{})
		first, once := f.job(e.ID), true
		f.before = func(name string) error {
			if name == "contacts" && once {
				once = false
				f.Must(f.work(e.ID))
			}
			return nil
		}
		if err := f.Kind().Handle(t.Context(), first); err == nil {
			t.Error("the worker that lost the job ended it")
		}
		if state := f.state(e.ID); state != "completed"+alone+"; contacts:; recent: 1 rows; suppressions:" {
			t.Errorf("it is %s", state)
		}
	})
}

// Invalid requests are rejected, and the number of a team's erasures in progress is limited.
func TestEraseRefuses(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, acme := t.Context(), f.Acme.TeamID
		theirs, _, err := f.Contacts.Upsert(ctx, f.Other.TeamID, "x@one.example", contacts.Change{})
		f.Must(err)
		for named, want := range map[string]fault.Kind{id.New(): fault.NotFound, theirs.ID: fault.NotFound,
			"nobody": fault.BadID, "a@": fault.Invalid, "": fault.BadID} {
			if _, err := f.Erase(ctx, acme, named, privacy.Options{}); fault.KindOf(err) != want && !(want == fault.BadID &&
				fault.KindOf(err) == fault.Missing) {
				t.Errorf("%q: %v", named, err)
			}
		}
		for i := range 100 {
			f.erase(fmt.Sprintf("%d@one.example", i), privacy.Options{})
		}
		if _, err := f.Erase(ctx, acme, "more@one.example", privacy.Options{}); fault.KindOf(err) != fault.TooFast {
			t.Errorf("one more: %v", err)
		}
		if _, err := f.Erase(ctx, f.Other.TeamID, "x@one.example", privacy.Options{}); err != nil {
			t.Errorf("of another team: %v", err)
		}
	})
}

// Erasures are deleted with their team, or when their retention period has ended.
func TestErasuresGo(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		for days, address := range map[int]string{401: "", 399: "", 402: "waits@one.example", 1: ""} {
			at := time.Now().Add(-time.Duration(days) * 24 * time.Hour)
			f.Update(func(tx *db.Tx) error {
				tx.Queue(ctx, `INSERT INTO erasures (id, team_id, contact_id, address, refusals, dry_run, state, pass, done, report,
					created_at, completed_at) VALUES ($1, $2, NULL, $3, $4, $4, 'completed', 0, 0, '', 0, 0)`,
					db.ID(id.First(at)), db.ID(f.Acme.TeamID), address, false)
				return nil
			})
		}
		f.Must(f.Sweep(ctx))
		if n := f.Count(`SELECT COUNT(*) FROM erasures`); n != 3 {
			t.Errorf("%d are left", n)
		}
		f.Must(f.EraseTeam(ctx, f.Other.TeamID))
		if n := f.Count(`SELECT COUNT(*) FROM erasures`); n != 3 {
			t.Errorf("%d are left after another team", n)
		}
		f.Must(f.EraseTeam(ctx, f.Acme.TeamID))
		if n := f.Count(`SELECT COUNT(*) FROM erasures`); n != 0 {
			t.Errorf("%d are left in the end", n)
		}
	})
}

// The document contains all data about the address, section by section, and no data about others.
func TestDocument(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, acme := t.Context(), f.Acme.TeamID
		_, err := f.Contacts.CreateProperty(ctx, acme, contacts.NewProperty{Name: "plan", Type: scalar.String})
		f.Must(err)
		segment, err := f.Contacts.Segments.Create(ctx, acme, segments.Definition{Name: "News"})
		f.Must(err)
		topic, err := f.Contacts.CreateTopic(ctx, acme, contacts.NewTopic{Name: "Offers", Default: contacts.OptIn})
		f.Must(err)
		c, _, err := f.Contacts.Upsert(ctx, acme, "ann@one.example", contacts.Change{FirstName: new("Ann"),
			Properties: map[string]scalar.Value{"plan": scalar.OfText("pro")}, Segments: []string{segment.ID},
			Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: contacts.OptOut}}})
		f.Must(err)
		f.Update(func(tx *db.Tx) error { f.Contacts.RecordMailed(ctx, tx, acme, []string{c.ID}); return nil })
		f.settled("ann@one.example")
		shared := f.Send(testnode.Hello("Ann <ANN@one.example>", "bo@one.example"))
		f.Happen(events.Event{TeamID: acme, EmailID: shared, Type: events.EmailBounced, Recipient: "bo@one.example",
			Data: &events.Bounce{Type: "Permanent", Suppress: true}})
		f.Send(testnode.Hello("bo@one.example"))
		read := func(teamID, named string) (doc privacy.Document, text string) {
			t.Helper()
			chunks := 0
			for chunk, err := range f.Document(ctx, teamID, named) {
				f.Must(err)
				text += string(chunk)
				chunks++
			}
			if err := json.Unmarshal([]byte(text), &doc); err != nil || chunks != 3 {
				t.Errorf("%d parts: %s: %v", chunks, text, err)
			}
			return doc, text
		}
		doc, text := read(acme, c.ID)
		if strings.Contains(text, "bo@one.example") {
			t.Errorf("it names another: %s", text)
		}
		at := doc.Contact
		if at == nil || at.FirstName != "Ann" || at.Properties["plan"] != "pro" || len(at.Segments) != 1 ||
			at.Segments[0].Name != "News" || len(at.Topics) != 1 || at.Topics[0].Subscription != "opt_out" ||
			at.Engagement == nil || at.Engagement.Mailed != 1 || at.Engagement.OpenedAt != nil || doc.Suppression != nil {
			t.Errorf("%s", text)
		}
		var lines []string
		for _, e := range doc.Emails {
			line := e.Kind + " " + e.State
			for _, x := range e.Events {
				line += " " + x.Type
			}
			lines = append(lines, line)
		}
		if diff := cmp.Diff([]string{"to queued queued", "to delivered queued delivered"}, lines); diff != "" {
			t.Error(diff)
		}
		if len(doc.Received) != 3 {
			t.Errorf("%+v", doc.Received)
		}
		if b := doc.Broadcasts; len(b) != 1 || b[0].BroadcastID != "of ann@one.example" || b[0].Opens != 2 {
			t.Errorf("broadcasts %+v", b)
		}
		if doc, _ := read(f.Other.TeamID, "ann@one.example"); doc.Contact != nil || len(doc.Emails) > 0 {
			t.Errorf("for another team: %+v", doc)
		}
		for _, err := range f.Document(ctx, f.Other.TeamID, c.ID) {
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("for another team: %v", err)
			}
		}
		for range f.Document(ctx, acme, c.ID) {
			break
		}
	})
}

// If the database fails during an erasure, the next attempt continues it.
func TestEraseFails(t *testing.T) {
	t.Parallel()
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, testnode.New(t, d, testnode.Options{}))
		ctx, acme, n := t.Context(), f.Acme.TeamID, 0
		f.settled("ann@one.example")
		trace.EachBroken(t, func() { n++ }, func() error {
			_, err := f.Erase(ctx, acme, fmt.Sprintf("%d@one.example", n), privacy.Options{})
			return err
		}, nil)
		e := f.erase("ann@one.example", privacy.Options{Refusals: true})
		trace.EachBroken(t, nil, func() error {
			_, err := f.Get(ctx, acme, e.ID)
			return err
		}, nil)
		var j jobs.Job
		failed := trace.EachBroken(t, func() { j = f.job(e.ID) }, func() error { return f.Kind().Handle(ctx, j) }, nil,
			"DELETE FROM jobs")
		// The erasure's counts do not include what an attempt erased before it failed.
		if state := f.state(e.ID); failed < 5 ||
			state != "completed; sent emails:; contacts:; recent: 1 rows; suppressions:" ||
			f.Count(`SELECT COUNT(*) FROM emails`) > 0 {
			t.Errorf("after %d failures it is %s", failed, state)
		}
	})
}
