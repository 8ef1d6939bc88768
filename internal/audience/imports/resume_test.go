package imports_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// resuming is a world for tests in which an import is interrupted.
type resuming struct {
	*world
	n     imports.NewImport
	file  string
	round int
	last  imports.Import
}

func newResuming(t *testing.T, d *db.DB, batch int) *resuming {
	w := newWorld(t, testnode.New(t, d, testnode.Options{}), imports.Config{Batch: batch})
	topic, err := w.Contacts.CreateTopic(t.Context(), w.team, contacts.NewTopic{Name: "T", Default: contacts.OptOut})
	w.Must(err)
	return &resuming{world: w, n: imports.NewImport{OnConflict: "upsert", Segments: []string{w.segment("News")},
		Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: contacts.OptIn}},
		Map: &imports.Map{FirstName: "name", Properties: map[string]imports.Column{"plan": {Name: "plan"},
			"seats": {Name: "seats", Type: "number"}}}}}
}

// begin creates an import of a file whose addresses no earlier import contained.
func (r *resuming) begin() {
	r.t.Helper()
	r.round++
	r.file = "email,name,plan,seats\n"
	for _, row := range []string{"a%d@example.org,A,pro,1", "a%d@example.org,B,pro,2", "b%d@example.org,B,,", "wrong%d,,,",
		"\"c%d@example.org\"x", ",,,", "d%d@example.org,D,\"x\ny\",4", "a%d@example.org,C,,"} {
		if strings.Contains(row, "%d") {
			row = fmt.Sprintf(row, r.round)
		}
		r.file += row + "\n"
	}
	var err error
	r.last, err = r.create(r.file, r.n)
	r.Must(err)
}

// check runs the import until it ends, and checks the result.
func (r *resuming) check(what string) {
	r.t.Helper()
	for n := 0; !r.done(r.last.ID); n++ {
		if err := r.handle(r.last.ID); err != nil || n == 3 {
			r.t.Fatalf("%s: tried again: %v, %d times", what, err, n)
		}
	}
	if i := r.get(r.last.ID); counts(i) != "completed 7=3+2+0+2" {
		r.t.Errorf("%s: %s %q", what, counts(i), i.Reason)
	}
	all := r.contacts()
	sign := fmt.Sprintf("%d@", r.round)
	var these []string
	for _, c := range all {
		if strings.Contains(c, sign) && strings.IndexAny(c, "0123456789") == 1 {
			these = append(these, strings.Replace(c, sign, "@", 1))
		}
	}
	if diff := cmp.Diff([]string{`a@example.org "C" "" false plan=pro seats=2 in News`,
		`b@example.org "B" "" false in News`,
		"d@example.org \"D\" \"\" false plan=x\ny seats=4 in News"}, these); diff != "" {
		r.t.Errorf("%s: %s", what, diff)
	}
	if got := r.failures(r.last.ID); len(got) != 2 || got[0].Line != 5 || got[1].Line != 6 {
		r.t.Errorf("%s: %+v", what, got)
	}
	if n := r.files() + r.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, imports.Kind); n != 0 {
		r.t.Errorf("%s: %d files and jobs are left", what, n)
	}
}

// If an attempt to run an import fails at any statement, the next attempt continues and the result is the same.
func TestResumesAfterErrors(t *testing.T) {
	t.Parallel()
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		r := newResuming(t, d, 2)
		var j jobs.Job
		failed := trace.EachBroken(t, func() { r.begin(); j = r.job(r.last.ID) },
			func() error { return r.imports.JobKind().Handle(t.Context(), j) },
			func(error) { r.check("a statement broken") })
		if failed < 10 {
			t.Errorf("%d attempts failed: the test reaches too little", failed)
		}
	})
}

// If a response from the database is lost, even the response to a COMMIT, no row is lost or imported twice.
func TestResumesAfterLostAnswers(t *testing.T) {
	t.Parallel()
	d, proxy := dbtest.Proxied(t, 0)
	r := newResuming(t, d, 4)
	failed := 0
	for skip, torn := 0, true; torn && skip < 200; skip += 3 { // in steps of 3, because each round is slow
		r.begin()
		j := r.job(r.last.ID)
		before := proxy.Torn()
		proxy.Tear(skip, 1)
		err := r.imports.JobKind().Handle(t.Context(), j)
		torn = proxy.Torn() > before
		if err := proxy.Pass(); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			failed++
			if fault.KindOf(err) != fault.Unavailable {
				t.Errorf("answer %d torn: %v", skip, err)
			}
		}
		r.check(fmt.Sprintf("answer %d torn", skip))
	}
	if failed < 3 {
		t.Errorf("%d attempts failed: the test reaches too little", failed)
	}
}
