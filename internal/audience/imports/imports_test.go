package imports_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a test node with functions to create and run imports.
type world struct {
	*testnode.Node
	t       *testing.T
	imports *imports.Service
	team    string
	seen    testnode.Seen
}

func newWorld(t *testing.T, n *testnode.Node, c imports.Config) *world {
	w := &world{Node: n, t: t, team: n.Acme.TeamID}
	c.Look = time.Millisecond
	w.imports = testnode.Must(imports.New(c, imports.Deps{DB: n.DB, Queue: n.Queue, Blobs: n.Blobs, Contacts: n.Contacts,
		Log: n.Log}))
	n.Recorder.Listen(&w.seen)
	return w
}

func each(t *testing.T, c imports.Config, f func(t *testing.T, w *world)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) { f(t, newWorld(t, n, c)) })
}

// create stores a file and creates an import of it.
func (w *world) create(file string, n imports.NewImport) (imports.Import, error) {
	w.t.Helper()
	stored, err := w.imports.Store(w.t.Context(), strings.NewReader(file))
	if err != nil {
		return imports.Import{}, err
	}
	return w.imports.Create(w.t.Context(), w.team, stored, n)
}

func (w *world) get(importID string) imports.Import {
	w.t.Helper()
	i, err := w.imports.Get(w.t.Context(), w.team, importID)
	w.Must(err)
	return i
}

// await runs jobs until an import has ended.
func (w *world) await(importID string) imports.Import {
	w.t.Helper()
	stop := w.Run(w.imports.JobKind())
	defer stop()
	testnode.Until(w.t, "the import ends", func() bool {
		i := w.get(importID)
		return i.Done()
	})
	return w.get(importID)
}

// imported imports a file and waits until the import has ended.
func (w *world) imported(file string, n imports.NewImport) imports.Import {
	w.t.Helper()
	i, err := w.create(file, n)
	w.Must(err)
	return w.await(i.ID)
}

// counts returns an import's row counts by outcome.
func counts(i imports.Import) string {
	return fmt.Sprintf("%s %d=%d+%d+%d+%d", i.Status, i.Total(), i.Created, i.Updated, i.Skipped, i.Failed)
}

// failures returns an import's failed rows.
func (w *world) failures(importID string) (all []imports.Failure) {
	w.t.Helper()
	_, rows, err := w.imports.Failures(w.t.Context(), w.team, importID)
	w.Must(err)
	for f, err := range rows {
		w.Must(err)
		all = append(all, f)
	}
	return all
}

// contacts returns a map, by address, of the team's contacts with their values, segments and topics.
func (w *world) contacts() (all []string) {
	w.t.Helper()
	list, _, err := w.Contacts.List(w.t.Context(), w.team, "", page.Page{})
	w.Must(err)
	for _, c := range list {
		values, err := w.Contacts.Values(w.t.Context(), w.DB.Reader, w.team, c.ID)
		w.Must(err)
		text := fmt.Sprintf("%s %q %q %v", c.Address, c.FirstName, c.LastName, c.Unsubscribed)
		var names []string
		for name, v := range values {
			names = append(names, fmt.Sprintf(" %s=%s", name, v.Text))
		}
		slices.Sort(names)
		segments, _, err := w.Contacts.SegmentsOf(w.t.Context(), w.team, c.ID, page.Page{})
		w.Must(err)
		for _, s := range segments {
			names = append(names, " in "+s.Name)
		}
		all = append(all, text+strings.Join(names, ""))
	}
	slices.Sort(all)
	return all
}

func (w *world) segment(name string) string {
	w.t.Helper()
	s, err := w.Contacts.Segments.Create(w.t.Context(), w.team, segments.Definition{Name: name})
	w.Must(err)
	return s.ID
}

const people = `Email,First,Last,Gone,Plan,Seats,Member,Else
Ann@Example.org,Ann,Ash,,pro,3,yes,x
bob@example.org,Bob,,TRUE,,4.50,0,
nobody,Cid,,,,,,
cid@example.org,Cid,,maybe,,,,
dan@example.org,Dan,,,,many,,
eve@example.org,,,,,,,,,
fay@example.org,,,,,,,,y
ann@example.org,Anna,,,,,no,
`

func peopleMap() *imports.Map {
	return &imports.Map{Email: "Email", FirstName: "first", LastName: "Last", Unsubscribed: "Gone",
		Properties: map[string]imports.Column{"plan": {Name: "Plan"}, "seats": {Name: "Seats", Type: "number"},
			"member": {Name: "Member", Type: "boolean"}}}
}

func TestImport(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{}, func(t *testing.T, w *world) {
		segmentID := w.segment("News")
		topic, err := w.Contacts.CreateTopic(t.Context(), w.team, contacts.NewTopic{Name: "T", Default: contacts.OptOut})
		w.Must(err)
		n := imports.NewImport{Filename: "people.csv", Map: peopleMap(), OnConflict: "upsert",
			Segments: []string{strings.ToUpper(segmentID)},
			Topics:   []contacts.Choice{{TopicID: topic.ID, Subscription: "opt_in"}}}
		i, err := w.create(people, n)
		if err != nil || i.Status != imports.Queued || i.Done() || i.Size != int64(len(people)) {
			t.Fatalf("%+v, %v", i, err)
		}
		if i = w.await(i.ID); counts(i) != "completed 8=3+1+0+4" || i.Filename != "people.csv" || i.Position != i.Size ||
			i.StartedAt.IsZero() || i.FinishedAt.Before(i.StartedAt) || i.Reason != "" {
			t.Errorf("%s %+v", counts(i), i)
		}
		want := []string{`ann@example.org "Anna" "Ash" false member=false plan=pro seats=3 in News`,
			`bob@example.org "Bob" "" true member=false seats=4.5 in News`, `eve@example.org "" "" false in News`}
		if diff := cmp.Diff(want, w.contacts()); diff != "" {
			t.Error(diff)
		}
		wrong := []imports.Failure{
			{4, "Invalid `email` field: The address must contain an @, as in `user@example.com`. Use `email@example.com`.",
				[]string{"nobody", "Cid", "", "", "", "", "", ""}},
			{5, "The `unsubscribed` field must be `true` or `false`, not \"maybe\".",
				[]string{"cid@example.org", "Cid", "", "maybe", "", "", "", ""}},
			{6, "The `seats` field must be a number, as 12 or 12.5, not \"many\".",
				[]string{"dan@example.org", "Dan", "", "", "", "many", "", ""}},
			{8, "The row has 9 fields, and the first line names 8 columns. Quote fields that contain the separator.",
				[]string{"fay@example.org", "", "", "", "", "", "", "", "y"}},
		}
		got := w.failures(i.ID)
		if len(got) == 4 {
			got[0].Reason = wrong[0].Reason // the error message comes from package message
		}
		if diff := cmp.Diff(wrong, got); diff != "" {
			t.Error(diff)
		}
		refused, err := w.Contacts.Refused(t.Context(), w.DB.Reader, w.team, topic.ID, []string{"ann@example.org",
			"bob@example.org", "nobody@example.org"})
		if diff := cmp.Diff(map[string]contacts.Refusal{"bob@example.org": contacts.Unsubscribed,
			"nobody@example.org": contacts.NotOptedIn}, refused); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
		if seen := w.seen.Take(); len(seen) != 0 {
			t.Errorf("an import records events: %+v", seen)
		}
		if _, err := w.Blobs.Get(t.Context(), "imports/"+i.ID); err == nil {
			t.Error("the file is still there")
		}

		before := w.updated()
		if i = w.imported(people, n); counts(i) != "completed 8=0+4+0+4" {
			t.Errorf("again: %s", counts(i))
		}
		if diff := cmp.Diff(want, w.contacts()); diff != "" || !before.Equal(w.updated()) {
			t.Errorf("the same again changes something: %s", diff)
		}
		n.OnConflict = ""
		if i = w.imported("Email,First,Last,Gone,Plan,Seats,Member\n"+
			"ann@example.org,X,X,X,X,X,X\nann@example.org,X\ngus@example.org\n"+
			"GUS@example.org,Gus\n", n); counts(i) != "completed 4=1+0+2+1" {
			t.Errorf("skip: %s %v", counts(i), w.failures(i.ID))
		}
		if diff := cmp.Diff(append(want, `gus@example.org "" "" false in News`), w.contacts()); diff != "" {
			t.Error(diff)
		}
	})
}

// updated returns the time when a contact was last changed.
func (w *world) updated() time.Time {
	return db.Time(int64(w.Count(`SELECT MAX(updated_at) FROM contacts`)))
}

// An import does not undo opt-outs that contacts made through an unsubscribe link.
func TestChoicesByLinkStay(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{}, func(t *testing.T, w *world) {
		ctx := t.Context()
		topic, err := w.Contacts.CreateTopic(ctx, w.team, contacts.NewTopic{Name: "T", Default: contacts.OptIn})
		w.Must(err)
		link := func(address, topicID string) contacts.Link {
			return contacts.Link{TeamID: w.team, EmailID: w.team, TopicID: topicID, Address: address}
		}
		for _, l := range []contacts.Link{link("ann@example.org", topic.ID), link("bob@example.org", "")} {
			_, _, err := w.Contacts.Unsubscribe(ctx, l)
			w.Must(err)
		}
		// Through a link, Dan and Eve confirm the opt-outs that the team had already recorded.
		for _, address := range []string{"cid@example.org", "dan@example.org", "eve@example.org"} {
			_, _, err = w.Contacts.Upsert(ctx, w.team, address, contacts.Change{Unsubscribed: new(true),
				Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: contacts.OptOut}}})
			w.Must(err)
		}
		for _, l := range []contacts.Link{link("dan@example.org", topic.ID), link("eve@example.org", "")} {
			_, _, err := w.Contacts.Unsubscribe(ctx, l)
			w.Must(err)
		}
		i := w.imported("email,unsubscribed\nann@example.org,false\nbob@example.org,false\ncid@example.org,false\n"+
			"dan@example.org,false\neve@example.org,false\n",
			imports.NewImport{OnConflict: "upsert",
				Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: contacts.OptIn}}})
		if counts(i) != "completed 5=0+5+0+0" {
			t.Error(counts(i))
		}
		got, err := w.Contacts.Refused(ctx, w.DB.Reader, w.team, topic.ID, []string{"ann@example.org", "bob@example.org",
			"cid@example.org", "dan@example.org", "eve@example.org"})
		if diff := cmp.Diff(map[string]contacts.Refusal{"ann@example.org": contacts.OptedOut,
			"bob@example.org": contacts.Unsubscribed, "dan@example.org": contacts.OptedOut,
			"eve@example.org": contacts.Unsubscribed}, got); diff != "" || err != nil {
			t.Errorf("%v %s", err, diff)
		}
	})
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{MaxSize: 1000}, func(t *testing.T, w *world) {
		segmentID, ctx := w.segment("News"), t.Context()
		_, err := w.Contacts.CreateProperty(ctx, w.team, contacts.NewProperty{Name: "seats", Type: scalar.Number})
		w.Must(err)
		theirs, err := w.Contacts.Segments.Create(ctx, w.Other.TeamID, segments.Definition{Name: "Theirs"})
		w.Must(err)
		mapped := func(m imports.Map) imports.NewImport { return imports.NewImport{Map: &m} }
		property := func(name string, c imports.Column) imports.NewImport {
			return mapped(imports.Map{Properties: map[string]imports.Column{"fresh": {Name: "email"}, name: c}})
		}
		choose := func(topicID string, s contacts.Subscription) imports.NewImport {
			return imports.NewImport{Topics: []contacts.Choice{{TopicID: topicID, Subscription: s}}}
		}
		const file = "email,name,Name,plan\na@example.org,b\n"
		for name, c := range map[string]struct {
			file  string
			n     imports.NewImport
			field string
		}{
			"a policy":             {file, imports.NewImport{OnConflict: "replace"}, "on_conflict"},
			"no column":            {"mail\na@example.org\n", imports.NewImport{}, "column_map"},
			"two columns":          {"email, EMAIL,email \na@example.org\n", mapped(imports.Map{Email: "Email"}), "column_map"},
			"no such column":       {file, mapped(imports.Map{Email: "mail"}), "column_map"},
			"no name":              {file, mapped(imports.Map{FirstName: "first"}), "column_map"},
			"ambiguous":            {file, mapped(imports.Map{FirstName: "NAME"}), "column_map"},
			"no property's column": {file, property("plan", imports.Column{Name: "Plans"}), "column_map"},
			"no type":              {file, property("plan", imports.Column{Name: "plan", Type: "date"}), "column_map"},
			"another type":         {file, property("seats", imports.Column{Name: "plan"}), "column_map"},
			"reserved":             {file, property("EMAIL", imports.Column{Name: "plan"}), "column_map"},
			"a bad key":            {file, property("a b", imports.Column{Name: "plan"}), "column_map"},
			"no segment":           {file, imports.NewImport{Segments: []string{w.team}}, "segments"},
			"no id":                {file, imports.NewImport{Segments: []string{"x\x00"}}, "segments"},
			"others' segment":      {file, imports.NewImport{Segments: []string{segmentID, theirs.ID}}, "segments"},
			"segments":             {file, imports.NewImport{Segments: make([]string, imports.MaxSegments+1)}, "segments"},
			"no topic":             {file, choose(w.team, "opt_in"), "topics"},
			"no choice":            {file, choose(w.team, ""), "topics[0].subscription"},
			"topics":               {file, imports.NewImport{Topics: make([]contacts.Choice, imports.MaxTopics+1)}, "topics"},
			"a spreadsheet":        {"PK\x03\x04", imports.NewImport{}, "file"},
			"a large file":         {"email\n" + strings.Repeat("x", 1000), imports.NewImport{}, "file"},
			"no file":              {"", imports.NewImport{}, "file"},
		} {
			_, err := w.create(c.file, c.n)
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Field != c.field || f.Kind != fault.Invalid {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := w.Count(`SELECT COUNT(*) FROM contact_imports`) + w.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`,
			imports.Kind) + w.Count(`SELECT COUNT(*) FROM contact_properties WHERE name <> 'seats'`); n != 0 {
			t.Errorf("%d rows of what was refused", n)
		}
		if n := w.files(); n != 0 {
			t.Errorf("%d files of what was refused", n)
		}
		if _, err := w.imports.Store(ctx, io.MultiReader(strings.NewReader(file), broken{})); !errors.Is(err, errBroken) {
			t.Errorf("a broken upload: %v", err)
		}
		for range imports.MaxWaiting {
			if _, err := w.create("email\n", imports.NewImport{}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.create("email\n", imports.NewImport{}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("one too many: %v", err)
		}
		if err := w.imports.CheckCapacity(ctx, w.team); fault.KindOf(err) != fault.Invalid {
			t.Errorf("room for one too many: %v", err)
		}
		if n := w.files(); n != imports.MaxWaiting {
			t.Errorf("%d files", n)
		}
	})
}

// files returns the number of stored files.
func (w *world) files() (n int) {
	w.t.Helper()
	w.Must(w.Blobs.List(w.t.Context(), "imports/", func(blob.Info) error { n++; return nil }))
	return n
}

var errBroken = errors.New("the connection broke")

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errBroken }

// An import fails if a segment, topic or property that it refers to is deleted.
func TestEnds(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{Batch: 1}, func(t *testing.T, w *world) {
		ctx := t.Context()
		file := "email,plan\n" + strings.Repeat("a@example.org,x\n", 3)
		withPlan := &imports.Map{Properties: map[string]imports.Column{"plan": {Name: "plan"}}}
		for name, c := range map[string]struct {
			n    imports.NewImport
			gone func(imports.Import) error
			says string
		}{
			"its file": {imports.NewImport{}, func(i imports.Import) error { return w.Blobs.Delete(ctx, "imports/"+i.ID) },
				"not stored any more"},
			"a segment": {imports.NewImport{Segments: []string{w.segment("a")}}, func(imports.Import) error {
				list, _, err := w.Contacts.Segments.List(ctx, w.team, page.Page{Limit: 1})
				w.Must(err)
				return w.Contacts.Segments.Delete(ctx, w.team, list[0].ID)
			}, "is no segment"},
			"a property": {imports.NewImport{Map: withPlan}, func(imports.Import) error {
				list, _, err := w.Contacts.Properties(ctx, w.team, page.Page{Limit: 1})
				w.Must(err)
				return w.Contacts.DeleteProperty(ctx, w.team, list[0].ID)
			}, "`plan` was deleted"},
			"its patience": {imports.NewImport{}, func(i imports.Import) error {
				_, err := w.imports.Cancel(ctx, w.team, i.ID)
				return err
			}, "canceled"},
		} {
			i, err := w.create(file, c.n)
			w.Must(err)
			w.Must(c.gone(i))
			if i = w.await(i.ID); i.Status != imports.Failed || !strings.Contains(i.Reason, c.says) {
				t.Errorf("without %s: %s %q", name, counts(i), i.Reason)
			}
			if n := w.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, imports.Kind); n != 0 || w.files() != 0 {
				t.Errorf("without %s: %d jobs and %d files are left", name, n, w.files())
			}
		}
	})
}

// If the database refuses to write an import's rows, the import is retried and its Reason field is set.
func TestHeld(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{Batch: 1}, func(t *testing.T, w *world) {
		withPlan := &imports.Map{Properties: map[string]imports.Column{"plan": {Name: "plan"}}}
		i, err := w.create("email,plan\na@example.org,\nb@example.org,x\nc@example.org,x\n", imports.NewImport{Map: withPlan})
		w.Must(err)
		rename := func(from, to string) {
			w.Update(func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `ALTER TABLE `+from+` RENAME TO `+to)
				return err
			})
		}
		rename("contact_texts", "texts_away")
		for range 2 {
			if err := w.handle(i.ID); err == nil {
				t.Error("it goes on without a table")
			}
			if i = w.get(i.ID); i.Status != imports.InProgress || i.Done() || !strings.Contains(i.Reason, "after line 2,") {
				t.Errorf("%s %q", counts(i), i.Reason)
			}
		}
		rename("texts_away", "contact_texts")
		if i = w.await(i.ID); counts(i) != "completed 3=3+0+0+0" || i.Reason != "" {
			t.Errorf("%s %q", counts(i), i.Reason)
		}
	})
}

// A team's imports run in the order in which they were created.
func TestOneAfterAnother(t *testing.T) {
	t.Parallel()
	each(t, imports.Config{}, func(t *testing.T, w *world) {
		n := imports.NewImport{OnConflict: "upsert"}
		first, err := w.create("email,first_name\na@example.org,First\n", n)
		w.Must(err)
		second, err := w.create("email,first_name\na@example.org,Second\n", n)
		w.Must(err)
		w.Must(w.handle(second.ID)) // runs the job in the same way as the node that claimed the first job
		if i := w.get(second.ID); i.Status != imports.Queued {
			t.Errorf("the second is %s before the first", i.Status)
		}
		w.await(second.ID)
		if got := w.contacts(); len(got) != 1 || !strings.Contains(got[0], "Second") || !w.done(first.ID) {
			t.Errorf("%q", got)
		}
	})
}

func (w *world) done(importID string) bool { i := w.get(importID); return i.Done() }

// job claims an import's job without running it, like a worker that is killed right after claiming a job.
func (w *world) job(importID string) jobs.Job {
	w.t.Helper()
	j := jobs.Job{Kind: imports.Kind, Lane: w.team, TeamID: w.team, Payload: importID}
	w.Update(func(tx *db.Tx) error {
		return tx.QueryRow(w.t.Context(), `UPDATE jobs SET attempt = attempt + 1, holder = NULL WHERE dedupe = $1
			RETURNING id, attempt`, importID).Scan((*db.ID)(&j.ID), &j.Attempt)
	})
	return j
}

func (w *world) handle(importID string) error {
	w.t.Helper()
	return w.imports.JobKind().Handle(w.t.Context(), w.job(importID))
}
