package automations_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
)

// runs returns a page of an automation's runs in the team Acme.
func (n *author) runs(automationID string, p page.Page, statuses ...automations.RunStatus) (all []automations.Run,
	more bool, next string) {
	n.T.Helper()
	all, more, next, err := n.a.Runs(n.T.Context(), n.Acme.TeamID, automationID, statuses, p)
	n.Must(err)
	return all, more, next
}

// waits blocks until the given number of an automation's runs are waiting.
func (n *author) waits(automationID string, runs int) {
	n.T.Helper()
	testnode.Until(n.T, fmt.Sprint(runs, " runs wait"), func() bool {
		return n.Count(`SELECT COUNT(*) FROM automation_runs WHERE automation_id = $1 AND waits_until > 0`,
			db.ID(automationID)) == runs
	})
}

// Run returns what a run is waiting for, when the wait ends, and the output of each step.
func TestRunIsShown(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		a, c := n.made(automations.Enabled), n.contact("ann@one.example")
		n.Run(n.a.Kinds()...)
		n.happens("signup", c, `{"plan":"pro"}`)
		n.waits(a.ID, 1)
		all, more, _ := n.runs(a.ID, page.Page{Limit: 20})
		if len(all) != 1 || more {
			t.Fatalf("%+v", all)
		}
		r, err := n.a.Run(t.Context(), n.Acme.TeamID, a.ID, all[0].ID)
		n.Must(err)
		if r.Status != automations.Running || r.ContactID != c.ID || r.Event != "signup" || r.Version != 1 ||
			r.Step != "wait" ||
			r.WaitsFor != "paid" || r.WaitsUntil.Sub(r.CreatedAt).Round(time.Hour) != 72*time.Hour ||
			!r.EndedAt.IsZero() {
			t.Errorf("%+v", r)
		}
		if s := r.Steps; len(s) != 2 || s[0].Type != engine.Trigger || s[0].Status != engine.StepCompleted ||
			s[1].Type != engine.WaitForEvent || s[1].Status != engine.StepWaiting || s[0].Output["event"] != "signup" ||
			!s[1].CompletedAt.IsZero() {
			t.Errorf("%+v", s)
		}
		n.happens("paid", c, `{"total":5}`)
		n.waits(a.ID, 0)
		r, err = n.a.Run(t.Context(), n.Acme.TeamID, a.ID, r.ID)
		n.Must(err)
		if r.Status != automations.Completed || r.EndedAt.IsZero() || !r.WaitsUntil.IsZero() || r.WaitsFor != "" ||
			r.Steps[1].Status != engine.StepCompleted {
			t.Errorf("%+v", r)
		}
		for _, id := range []string{a.ID, r.ID} {
			if _, err := n.a.Run(t.Context(), n.Other.TeamID, a.ID, id); fault.KindOf(err) != fault.NotFound {
				t.Error(err)
			}
		}
		if _, err := n.a.Run(t.Context(), n.Acme.TeamID, n.made(automations.Disabled).ID, r.ID); fault.KindOf(err) !=
			fault.NotFound {
			t.Error(err)
		}
	})
}

// Runs lists a run of a stopped automation as cancelled, and filters it as such, even before a job has ended the run.
func TestStoppedRunsAreShownAsCanceled(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		a := n.made(automations.Enabled)
		begin := func(runs ...int) (ids []string) {
			for _, i := range runs {
				n.happens("signup", n.contact(fmt.Sprintf("c%d@one.example", i)), "")
			}
			all, _, _ := n.runs(a.ID, page.Page{Limit: len(runs)})
			for _, r := range all {
				ids = append(ids, r.ID)
			}
			return ids
		}
		old := begin(0, 1, 2)
		n.happens("paid", n.contact("c1@one.example"), "") // no run is waiting for this event yet
		_, err := n.a.Stop(t.Context(), n.Acme.TeamID, a.ID)
		n.Must(err)
		n.change(a.ID, automations.Change{Status: new(automations.Enabled)})
		young := begin(3, 4)
		check := func() {
			t.Helper()
			for _, c := range []struct {
				statuses []automations.RunStatus
				p        page.Page
				want     []string
				more     bool
			}{
				{nil, page.Page{Limit: 20}, []string{young[0], young[1], old[0], old[1], old[2]}, false},
				{[]automations.RunStatus{automations.Running}, page.Page{Limit: 20}, young, false},
				{[]automations.RunStatus{automations.Cancelled}, page.Page{Limit: 20}, old, false},
				{[]automations.RunStatus{automations.Cancelled, automations.Failed}, page.Page{Limit: 2}, old[:2],
					true},
				{[]automations.RunStatus{automations.Cancelled, automations.Running}, page.Page{Limit: 3},
					[]string{young[0], young[1], old[0]}, true},
				{[]automations.RunStatus{automations.Cancelled, automations.Running}, page.Page{Limit: 3,
					After: young[1]}, old, false},
				{[]automations.RunStatus{automations.Cancelled, automations.Completed}, page.Page{Limit: 2,
					Before: old[2]},
					old[:2], false},
				{[]automations.RunStatus{automations.Completed, automations.Failed}, page.Page{Limit: 20}, nil, false},
			} {
				all, more, next := n.runs(a.ID, c.p, c.statuses...)
				var ids []string
				for _, r := range all {
					ids = append(ids, r.ID)
					if cancelled := r.ID <= old[0]; cancelled != (r.Status == automations.Cancelled) ||
						cancelled && (r.Reason != automations.Stopped || r.Message == "") {
						t.Errorf("%+v", r)
					}
				}
				if fmt.Sprint(ids) != fmt.Sprint(c.want) || more != c.more || next != "" {
					t.Errorf("%q %+v: %q, %v, %q, want %q", c.statuses, c.p, ids, more, next, c.want)
				}
			}
		}
		check()
		n.Run(n.a.Kinds()...)
		n.waits(a.ID, 2)
		testnode.Until(t, "a job has ended the runs", func() bool {
			return n.Count(`SELECT COUNT(*) FROM automation_runs WHERE status = 'cancelled'`) == 3
		})
		check()
		_, _, _, err = n.a.Runs(t.Context(), n.Acme.TeamID, a.ID, []automations.RunStatus{"skipped"},
			page.Page{Limit: 1})
		refused(t, err, "status", "`cancelled`")
	})
}

// rows returns the number of rows in each table of package automations.
func (n *author) rows() (all string) {
	n.T.Helper()
	for _, table := range []string{"automations", "automation_versions", "automation_triggers", "automation_runs",
		"automation_run_steps", "automation_waits", "automation_contacts"} {
		all += fmt.Sprint(n.Count(`SELECT COUNT(*) FROM `+table), " ")
	}
	return strings.TrimSpace(all)
}

// Sweep deletes the rows of a deleted automation one hour after the deletion, but only after all its runs have ended.
func TestSweep(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		a, kept := n.made(automations.Enabled), n.made(automations.Disabled)
		for i := range 3 {
			n.happens("signup", n.contact(fmt.Sprintf("c%d@one.example", i)), "")
		}
		n.Must(n.a.Delete(t.Context(), n.Acme.TeamID, a.ID))
		sweep := func(want string) {
			t.Helper()
			n.Must(n.a.Sweep(t.Context()))
			if got := n.rows(); got != want {
				t.Errorf("rows %s, want %s", got, want)
			}
		}
		hourAgo := func() {
			n.Update(func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE automations SET deleted_at = deleted_at - $1 WHERE deleted_at <> 0`,
					time.Hour.Microseconds()+1)
				return nil
			})
		}
		sweep("2 2 0 3 6 3 3")
		hourAgo()
		sweep("2 2 0 3 6 3 3")
		n.Run(n.a.Kinds()...)
		testnode.Until(t, "a job has ended the runs", func() bool {
			return n.Count(`SELECT COUNT(*) FROM automation_runs WHERE status = 'running'`) == 0
		})
		sweep("1 1 0 0 0 0 0")
		if _, err := n.a.Get(t.Context(), n.Acme.TeamID, kept.ID); err != nil {
			t.Error(err)
		}
	})
}

func TestEraseTeam(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		a := n.made(automations.Enabled)
		n.Must(n.a.Delete(t.Context(), n.Acme.TeamID, n.made(automations.Enabled).ID))
		n.happens("signup", n.contact("ann@one.example"), "")
		_, err := n.a.Create(t.Context(), n.Other.TeamID, automations.NewAutomation{Name: "Other",
			Status: automations.Enabled, Steps: []byte(alone), Connections: []byte(`[]`)})
		n.Must(err)
		if got := n.rows(); got != "3 3 2 1 2 1 1" {
			t.Errorf("rows %s before", got)
		}
		n.Must(n.Queue.EraseTeam(t.Context(), n.Acme.TeamID))
		n.Must(n.a.EraseTeam(t.Context(), n.Acme.TeamID))
		if got := n.rows(); got != "1 1 1 0 0 0 0" {
			t.Errorf("rows %s", got)
		}
		if _, err := n.a.Get(t.Context(), n.Acme.TeamID, a.ID); fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
}

// RemoveRuns deletes runs that ended before the given time. The reentry rule still prevents a second run for the
// contact.
func TestRemoveRuns(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		a := n.made(automations.Enabled)
		n.change(a.ID, automations.Change{Reentry: new(automations.Once)})
		n.Run(n.a.Kinds()...)
		ann, bob := n.contact("ann@one.example"), n.contact("bob@one.example")
		n.happens("signup", ann, "")
		n.happens("signup", bob, "")
		n.waits(a.ID, 2)
		n.happens("paid", ann, "")
		n.waits(a.ID, 1)
		remove := func(before time.Time, want string) {
			t.Helper()
			for next, begun := "", false; !begun || next != ""; begun = true {
				var err error
				next, err = n.a.RemoveRuns(t.Context(), n.Acme.TeamID, before, next)
				n.Must(err)
			}
			if got := n.rows(); got != want {
				t.Errorf("rows %s, want %s", got, want)
			}
		}
		remove(n.DB.Now().Add(-time.Hour), "1 1 1 2 4 1 2")
		remove(n.DB.Now().Add(time.Hour), "1 1 1 1 2 1 2")
		n.happens("signup", ann, "")
		if got := n.rows(); got != "1 1 1 1 2 1 2" {
			t.Errorf("rows %s after another event", got)
		}
	})
}

// EraseAddress deletes the runs of the contact with the given address, and replaces the address in other runs.
func TestEraseAddress(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		a := n.made(automations.Enabled)
		ann, bob := n.contact("ann@one.example"), n.contact("bob@one.example")
		stop := n.Run(n.a.Kinds()...)
		n.happens("signup", ann, "")
		n.happens("signup", bob, `{"by":"Ann <ANN@one.example>","also":"joann@one.example"}`)
		n.waits(a.ID, 2)
		n.happens("paid", bob, `{"by":"ann@one.example"}`)
		n.waits(a.ID, 1)
		stop()
		address, err := erasure.Parse("ann@one.example")
		n.Must(err)
		runsOf := func(c contacts.Contact) (all []automations.ContactRun) {
			t.Helper()
			all, next, err := n.a.RunsOfContact(t.Context(), n.Acme.TeamID, c.ID, "")
			if n.Must(err); next != "" {
				t.Errorf("more after %q", next)
			}
			return all
		}
		if of := runsOf(ann); len(of) != 1 || of[0].Automation != "Welcome" || of[0].Status != automations.Running ||
			len(of[0].Steps) != 2 {
			t.Errorf("%+v", of)
		}
		erase := func(dry bool, want string) {
			t.Helper()
			found, err := n.a.EraseAddress(t.Context(), address, erasure.Scope{Teams: []string{n.Other.TeamID,
				n.Acme.TeamID},
				DryRun: dry})
			if n.Must(err); fmt.Sprint(found) != want {
				t.Errorf("%v, want %s", found, want)
			}
		}
		const both = "[{runs of automations deleted 1 } {runs of automations in which it was replaced 1 }]"
		erase(true, both)
		erase(false, both)
		erase(false, "[]")
		if got := n.rows(); got != "1 1 1 1 2 0 1" {
			t.Errorf("rows %s", got)
		}
		if c := n.Count(`SELECT COUNT(*) FROM jobs WHERE kind LIKE 'automations.%'`); c != 0 {
			t.Errorf("%d jobs", c)
		}
		of := runsOf(bob)[0]
		text := of.Payload + of.Received + fmt.Sprint(of.Steps[1].Output)
		if strings.Contains(strings.ToLower(text), `ann@one`) && !strings.Contains(text, "joann@one.example") ||
			strings.Count(text, erasure.Placeholder) < 2 {
			t.Error(text)
		}
	})
}
