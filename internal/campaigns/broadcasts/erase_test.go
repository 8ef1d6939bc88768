package broadcasts_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
)

// EraseAddress removes an address from the recipients in all teams in scope. Old recipients can be deleted without
// changing the broadcast's counts. Erasing a team deletes all its broadcasts.
func TestErasing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		id := s.entered(700)
		s.Happen(events.Event{TeamID: s.Acme.TeamID, EmailID: s.emailsOf(id)[1], BroadcastID: id, Type: events.EmailClicked,
			Data: &events.Click{Link: "https://acme.example/?to=%521%40re%61der%2Eexample"}})
		s.mustCount(1, `SELECT COUNT(*) FROM broadcast_links WHERE url NOT LIKE '%erased%'`)
		a, err := erasure.Parse("R1@reader.example")
		s.Must(err)
		for _, c := range []struct {
			scope       erasure.Scope
			found, left int
		}{{erasure.Scope{Teams: []string{s.Other.TeamID}}, 0, 1},
			{erasure.Scope{Teams: []string{s.Acme.TeamID}, DryRun: true}, 2, 1},
			{erasure.Scope{Teams: []string{s.Acme.TeamID}}, 2, 0}} {
			found, err := broadcasts.EraseAddress(t.Context(), s.DB, a, c.scope)
			s.Must(err)
			n := 0
			for _, f := range found {
				n += f.N
			}
			if n != c.found {
				t.Errorf("%+v: %d found, want %d", c.scope, n, c.found)
			}
			s.mustCount(c.left, `SELECT COUNT(*) FROM broadcast_recipients WHERE address = 'r1@reader.example'`)
			s.mustCount(c.left, `SELECT COUNT(*) FROM broadcast_links WHERE url NOT LIKE '%erased%'`)
		}
		s.mustCount(0, `SELECT COUNT(*) FROM broadcast_clicks`)
		s.mustCount(700, `SELECT COUNT(*) FROM broadcast_recipients`)

		remove := func(before time.Time) (steps int) {
			for after := ""; ; steps++ {
				after, err = s.b.RemoveRecipients(t.Context(), s.Acme.TeamID, before, after)
				if s.Must(err); after == "" {
					return steps
				}
			}
		}
		if steps := remove(s.DB.Now().Add(time.Hour)); steps != 0 {
			t.Errorf("a broadcast that has not ended was taken in %d steps", steps)
		}
		_, err = s.b.Cancel(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		remove(s.DB.Now().Add(-time.Hour))
		s.mustCount(700, `SELECT COUNT(*) FROM broadcast_recipients`)
		if steps := remove(s.DB.Now().Add(time.Hour)); steps < 2 {
			t.Errorf("700 recipients are deleted in %d steps", steps)
		}
		s.mustCount(0, `SELECT COUNT(*) FROM broadcast_recipients`)
		if b := s.broadcast(id); b.Entered != 700 {
			t.Errorf("the broadcast has %d", b.Entered)
		}
		s.Must(s.b.EraseTeam(t.Context(), s.Acme.TeamID))
		for _, table := range []string{"broadcasts", "broadcast_variants", "broadcast_links"} {
			s.mustCount(0, `SELECT COUNT(*) FROM `+table)
		}
	})
}

// A team's recipients with the given address are read in pages, together with their opens and clicks.
func TestPartsToAnAddress(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 5100 // more recipients than fit in one page
		first := s.entered(n)
		s.Happen(s.event(first, s.emailsOf(first)[1], events.EmailClicked),
			s.event(first, s.emailsOf(first)[1], events.EmailOpened))
		leave := true
		_, _, err := s.Contacts.Upsert(t.Context(), s.Acme.TeamID, "r1@reader.example", contacts.Change{Unsubscribed: &leave})
		s.Must(err)
		second := s.draft(s.news())
		s.send(second)
		s.draft(s.news())
		s.enqueued(second, n-1)
		a, err := erasure.Parse("R1@reader.example")
		s.Must(err)
		read := func(teamID string) (all []broadcasts.BroadcastRecipient, pages int) {
			for after := ""; ; pages++ {
				var some []broadcasts.BroadcastRecipient
				some, after, err = s.b.RecipientsWithAddress(t.Context(), teamID, a, after)
				s.Must(err)
				if all = append(all, some...); after == "" {
					return all, pages
				}
			}
		}
		all, pages := read(s.Acme.TeamID)
		if len(all) != 2 || pages < 4 || all[0].BroadcastID != second || all[0].Reason != "contact_unsubscribed" ||
			all[0].EmailID != "" || all[1].BroadcastID != first || all[1].Opens != 1 || all[1].Clicks != 1 {
			t.Errorf("%d pages: %+v", pages, all)
		}
		if all, _ := read(s.Other.TeamID); len(all) > 0 {
			t.Errorf("another team's: %+v", all)
		}
		found, err := broadcasts.EraseAddress(t.Context(), s.DB, a, erasure.Scope{Teams: []string{s.Acme.TeamID}})
		s.Must(err)
		if all, _ := read(s.Acme.TeamID); len(all) > 0 || len(found) != 1 || found[0].N != 2 {
			t.Errorf("%+v were erased, %+v are left", found, all)
		}
	})
}

// Removing recipients does not update broadcasts that have no rows left, but deletes rows that late clicks have
// created.
func TestRemovingAgain(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newSender(t, testnode.New(t, d, testnode.Options{}))
		var clicks []events.Event
		s.readers(2)
		for range 3 {
			id := s.draft(s.news())
			s.send(id)
			s.enqueued(id, 2)
			_, err := s.b.Cancel(t.Context(), s.Acme.TeamID, id)
			s.Must(err)
			clicks = append(clicks, events.Event{TeamID: s.Acme.TeamID, EmailID: s.emailsOf(id)[0], BroadcastID: id,
				Type: events.EmailClicked, Data: &events.Click{Link: "https://acme.example/"}})
		}
		remove := func() (deletes, steps int) {
			trace.Take()
			for after := ""; ; steps++ {
				var err error
				after, err = s.b.RemoveRecipients(t.Context(), s.Acme.TeamID, s.DB.Now().Add(time.Hour), after)
				if s.Must(err); after == "" {
					break
				}
			}
			for _, made := range trace.Take() {
				if strings.HasPrefix(made.SQL, "DELETE") {
					deletes++
				}
			}
			return deletes, steps
		}
		if deletes, _ := remove(); deletes != 9 {
			t.Errorf("%d statements delete from 3 tables of 3 broadcasts", deletes)
		}
		s.mustCount(0, `SELECT COUNT(*) FROM broadcast_recipients`)
		if deletes, steps := remove(); deletes != 0 || steps != 1 {
			t.Errorf("nothing is left, and %d statements delete it in %d steps", deletes, steps)
		}
		s.Happen(clicks[1])
		s.mustCount(1, `SELECT COUNT(*) FROM broadcast_clicks`)
		if deletes, _ := remove(); deletes != 3 {
			t.Errorf("%d statements delete what a late click left", deletes)
		}
		s.mustCount(0, `SELECT COUNT(*) FROM broadcast_clicks`)
		s.mustCount(0, `SELECT COUNT(*) FROM broadcast_links`)
	})
}

// Erasing an address from a team reads no rows of other teams. The team's own recipients are read in pages.
func TestErasingReadsParts(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newSender(t, testnode.New(t, d, testnode.Options{}))
		s.entered(20)
		a, err := erasure.Parse("r1@reader.example")
		s.Must(err)
		reads := func(teams ...string) (n int) {
			trace.Take()
			_, err := broadcasts.EraseAddress(t.Context(), s.DB, a, erasure.Scope{Teams: teams, DryRun: true})
			s.Must(err)
			for _, made := range trace.Take() {
				if strings.Contains(made.SQL, "broadcast_recipients") {
					if n++; !strings.Contains(made.SQL, "LIMIT") {
						t.Errorf("a read without end: %s", made.SQL)
					}
				}
			}
			return n
		}
		if n := reads(s.Other.TeamID); n != 0 {
			t.Errorf("the recipients of another team are read, %d times", n)
		}
		if n := reads(s.Acme.TeamID); n != 2 { // one query finds the end of the page, and the other reads the page
			t.Errorf("%d reads, want 2", n)
		}
	})
}

// A page of a broadcast that is written while its team is erased leaves no recipients.
func TestErasingBesideAPage(t *testing.T) {
	t.Parallel()
	s := newSender(t, testnode.New(t, dbtest.Postgres(t), testnode.Options{}))
	id := s.entered(2)
	written, free := make(chan bool), make(chan bool)
	var wg sync.WaitGroup
	wg.Go(func() {
		s.Update(func(tx *db.Tx) error {
			// A page locks the broadcast and inserts recipients.
			if _, err := tx.Exec(t.Context(), `UPDATE broadcasts SET entered = entered + 1 WHERE id = $1`,
				db.ID(id)); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO broadcast_recipients SELECT (JSONB_POPULATE_RECORD(r,
				JSONB_BUILD_OBJECT('contact_id', r.email_id))).* FROM broadcast_recipients r WHERE r.broadcast_id = $1 LIMIT 1`,
				db.ID(id))
			close(written)
			<-free
			return err
		})
	})
	<-written
	wg.Go(func() { s.Must(s.b.EraseTeam(t.Context(), s.Acme.TeamID)) })
	testnode.Until(t, "the erasure waits for the page", func() bool {
		return s.Count(`SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
			AND datname = current_database()`) > 0
	})
	close(free)
	wg.Wait()
	for _, table := range []string{"broadcasts", "broadcast_recipients", "broadcast_counts", "broadcast_entered"} {
		s.mustCount(0, `SELECT COUNT(*) FROM `+table)
	}
}
