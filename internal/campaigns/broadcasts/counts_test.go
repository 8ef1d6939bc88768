package broadcasts_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

// event returns an event for a broadcast email.
func (s *sender) event(broadcastID, emailID string, kind events.Type) events.Event {
	e := events.Event{TeamID: s.Acme.TeamID, EmailID: emailID, BroadcastID: broadcastID, Type: kind}
	switch kind {
	case events.EmailBounced:
		e.Data = &events.Bounce{Type: "Permanent", SubType: "NoEmail"}
	case events.EmailOpened:
		e.Data = &events.Open{}
	case events.EmailClicked:
		e.Data = &events.Click{Link: "https://acme.example/"}
	case events.EmailComplained:
		e.Data = &events.Complaint{}
	}
	return e
}

// Even if events are concurrent, repeated and out of order, the counters of each variant match the recipients' rows.
func TestCountsAreThoseOfTheRows(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 80
		const untouched = 30 // so many that each variant, which chance fills, almost certainly has some
		s.readers(n)
		_, err := s.Suppressions.Add(t.Context(), s.Acme.TeamID, []string{"r0@reader.example"})
		s.Must(err)
		id := s.twoVariants(100)
		s.send(id)
		s.enqueued(id, n-1)
		kinds := []events.Type{events.EmailSent, events.EmailDelivered, events.EmailBounced, events.EmailOpened,
			events.EmailOpened, events.EmailClicked, events.EmailComplained, events.EmailUnsubscribed, events.EmailDelayed,
			events.EmailDelivered, events.EmailCanceled, events.EmailFailed, events.EmailSuppressed}
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j, emailID := range s.emailsOf(id)[:n-1-untouched] {
					for k := range 4 {
						s.Happen(s.event(id, emailID, kinds[(i+5*j+3*k)%len(kinds)]))
					}
				}
			})
		}
		wg.Wait()
		r, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		if len(r.Variants) != 2 {
			t.Fatalf("%d variants", len(r.Variants))
		}
		for variant, got := range append(r.Variants, r.Tally) {
			where := fmt.Sprintf("state <> 8 /* left_out */ AND (variant = %d OR %d = 2) AND ", variant, variant)
			count := func(condition string) int64 {
				return int64(s.Count(`SELECT COUNT(*) FROM broadcast_recipients WHERE ` + where + condition))
			}
			want := broadcasts.Tally{Entered: count("TRUE"), Waiting: count("state = 1 /* waiting */"),
				Sent: count("state IN (2, 3, 4)"), Delivered: count("state = 3 /* delivered */"),
				Bounced: count("state = 4 /* bounced */"), Failed: count("state = 5 /* failed */"),
				Suppressed: count("state = 6 /* suppressed */"), Canceled: count("state = 7 /* canceled */"),
				Opened: count("opened"), Clicked: count("clicked"),
				Complained: count("complained"), Unsubscribed: count("unsubscribed")}
			if diff := cmp.Diff(want, got); diff != "" || want.Waiting == 0 || want.Opened == 0 {
				t.Errorf("variant %d: %s of %+v", variant, diff, want)
			}
		}
		if r.Entered != n-1 || !maps.Equal(r.LeftOut, map[string]int64{"suppressed": 1}) {
			t.Errorf("%d entered, left out %v", r.Entered, r.LeftOut)
		}
		_, err = s.b.Cancel(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		for after := ""; ; {
			after, err = s.b.RemoveRecipients(t.Context(), s.Acme.TeamID, s.DB.Now().Add(1), after)
			if s.Must(err); after == "" {
				break
			}
		}
		s.mustCount(0, `SELECT COUNT(*) FROM broadcast_recipients`)
		kept, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		if diff := cmp.Diff(r.Variants, kept.Variants); diff != "" {
			t.Errorf("the results without the recipients: %s", diff)
		}
	})
}

// Results and the guard do not read the recipients' rows. Each page of recipients is read through an index for its
// type, so the time needed does not grow with the number of recipients.
func TestReadsByIndex(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newSender(t, testnode.New(t, d, testnode.Options{}))
		id := s.entered(3)
		at := s.emailsOf(id)
		s.Happen(s.event(id, at[0], events.EmailBounced), s.event(id, at[1], events.EmailDelivered))
		trace.Take()
		_, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		s.guard(id)
		if left, err := s.work(id); err != nil || !left { // settles the broadcast
			t.Error(left, err)
		}
		for _, st := range trace.Take() {
			if strings.Contains(st.SQL, "broadcast_recipients") {
				t.Errorf("it reads recipients: %s", st.SQL)
			}
		}
		byKey := map[string]string{"sqlite": "PRIMARY KEY", "postgres": "broadcast_recipients_pkey"}[d.Engine()]
		check := func(name, index string) {
			t.Helper()
			asked := 0
			for _, st := range trace.Take() {
				if !strings.Contains(st.SQL, "FROM broadcast_recipients r") {
					continue
				}
				asked++
				if plan := trace.Plan(t, st); !strings.Contains(plan, index) ||
					strings.Contains(plan, "Sort") || strings.Contains(plan, "TEMP B-TREE") {
					t.Errorf("%s: %s\n%s", name, st.SQL, plan)
				}
			}
			if asked == 0 {
				t.Errorf("%s: nothing was read", name)
			}
		}
		for _, of := range broadcasts.RecipientTypes {
			index := map[broadcasts.RecipientType]string{"opened": "opens", "clicked": "clicks", "complained": "complained",
				"unsubscribed": "unsubscribed", "suppressed": "reason"}[of]
			switch {
			case slices.Contains([]broadcasts.RecipientType{"sent", "delivered", "waiting"}, of):
				index = byKey
			case index == "":
				index = "broadcast_recipients_state"
			default:
				index = "broadcast_recipients_" + index
			}
			q := broadcasts.RecipientQuery{Type: of}
			cursor := (&broadcasts.Recipient{ContactID: "01900000-0000-7000-8000-000000000000"}).Cursor()
			for _, p := range []page.Page{pageOf(2), {Limit: 2, After: cursor}, {Limit: 2, Before: cursor}} {
				trace.Take()
				_, _, _, err := s.b.Recipients(t.Context(), s.Acme.TeamID, id, q, p)
				s.Must(err)
				check(string(of), index)
			}
		}
		_, _, _, err = s.b.Recipients(t.Context(), s.Acme.TeamID, id, broadcasts.RecipientQuery{Type: "bounced",
			BounceType: "transient"}, pageOf(2))
		s.Must(err)
		check("transient bounces", "broadcast_recipients_bounce")
	})
}

// Recipients finds the few recipients of a given type among very many recipients, and each request reads only part of
// the rows.
func TestRareRecipients(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newSender(t, testnode.New(t, d, testnode.Options{}))
		id := s.entered(3)
		at := s.emailsOf(id)
		s.Happen(s.event(id, at[0], events.EmailDelivered), s.event(id, at[1], events.EmailBounced))
		s.Update(func(tx *db.Tx) error { // simulate very many waiting recipients with higher ids
			contactID := `CAST('ffffffff-ffff-7fff-8fff-ffffff' || i AS UUID)`
			if tx.OneWriter() { // SQLite
				contactID = `CAST('zzzzzzzzzz' || i AS BLOB)`
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO broadcast_recipients (broadcast_id, contact_id, email_id, address,
				state, reason, bounce, variant, opens, clicks, opened, clicked, complained, unsubscribed)
				WITH RECURSIVE n(i) AS (SELECT 100000 UNION ALL SELECT i + 1 FROM n WHERE i < 219999)
				SELECT $1, `+contactID+`, NULL, '', 1, '', 0, 0, 0, 0, FALSE, FALSE, FALSE, FALSE FROM n`, db.ID(id))
			return err
		})
		list := func(of broadcasts.RecipientType, p page.Page) (found []string, requests int) {
			t.Helper()
			for {
				trace.Take()
				all, more, next, err := s.b.Recipients(t.Context(), s.Acme.TeamID, id, broadcasts.RecipientQuery{Type: of}, p)
				s.Must(err)
				if n := len(trace.Take()); n > 110 {
					t.Errorf("%s are looked for by %d statements", of, n)
				}
				requests++
				for _, r := range all {
					found = append(found, r.EmailID)
				}
				if next == "" {
					if more {
						t.Errorf("there are more of %s, and not where", of)
					}
					return found, requests
				}
				if p.Before != "" {
					p.Before = next
				} else {
					p.After = next
				}
			}
		}
		first := (&broadcasts.Recipient{ContactID: string(db.NoID)}).Cursor()
		for _, c := range []struct {
			of       broadcasts.RecipientType
			page     page.Page
			want     []string
			requests int
		}{
			{"delivered", pageOf(3), at[:1], 2},
			{"delivered", page.Page{Limit: 3, Before: first}, at[:1], 2},
			{"sent", pageOf(3), []string{at[1], at[0]}, 2},
			{"bounced", pageOf(3), at[1:2], 1},
			{"failed", pageOf(3), nil, 1},
		} {
			found, requests := list(c.of, c.page)
			slices.Sort(found)
			want := slices.Sorted(slices.Values(c.want))
			if !slices.Equal(found, want) || requests != c.requests {
				t.Errorf("%s of %+v: %v in %d requests, want %v in %d", c.of, c.page, found, requests, want, c.requests)
			}
		}
		s.Update(func(tx *db.Tx) error { // set the counter to 0, so that no rows are read
			_, err := tx.Exec(t.Context(), `UPDATE broadcast_recipients SET state = 4 WHERE broadcast_id = $1
				AND state = 3 /* delivered */`, db.ID(id))
			return err
		})
		if found, requests := list("delivered", pageOf(3)); len(found) != 0 || requests != 1 {
			t.Errorf("of none %v are found in %d requests", found, requests)
		}
	})
}

// guard calls the handler of a broadcast's guard job, as the job runner does.
func (s *sender) guard(broadcastID string) {
	s.T.Helper()
	kinds := s.b.Kinds()
	k := kinds[slices.IndexFunc(kinds, func(k jobs.Kind) bool { return k.Name == "broadcast.guard" })]
	j := jobs.Job{Kind: k.Name, TeamID: s.Acme.TeamID, Payload: broadcastID}
	s.Must(s.DB.QueryRow(s.T.Context(), `SELECT id, attempt FROM jobs WHERE kind = $1 AND dedupe = $2`, k.Name,
		broadcastID).Scan((*db.ID)(&j.ID), &j.Attempt))
	s.Must(k.Handle(s.T.Context(), j))
}

// The guard does not miss bounces that are recorded while it runs. The test keeps the transaction that records the
// bounces open until the guard is about to end its job.
func TestGuardMissesNoBounce(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newSender(t, testnode.New(t, d, testnode.Options{}))
		const n = 210
		id := s.entered(n)
		at := s.emailsOf(id)
		each := func(kind events.Type, of []string) (all []events.Event) {
			for _, emailID := range of {
				all = append(all, s.event(id, emailID, kind))
			}
			return all
		}
		s.Happen(each(events.EmailDelivered, at)...)
		s.Happen(each(events.EmailBounced, at[:1])...)
		recorded, asked, looked := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(looked)
			<-recorded
			s.guard(id)
		}()
		look := sync.OnceFunc(func() {
			trace.Before("DELETE FROM jobs", func() { close(asked) })
			close(recorded)
		})
		s.Update(func(tx *db.Tx) error {
			if err := s.Recorder.Record(t.Context(), tx, each(events.EmailBounced, at[1:21])...); err != nil {
				return err
			}
			var jobs int // the query forces the queued statements to run
			if err := tx.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs`).Scan(&jobs); err != nil {
				return err
			}
			look()
			if d.Engine() == "postgres" { // on SQLite the guard's transaction can begin only after this one
				<-asked
			}
			return nil
		})
		<-looked
		if s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast.guard'`) > 0 {
			s.guard(id)
		}
		if b := s.broadcast(id); b.Status != broadcasts.Paused {
			t.Errorf("it is %s with a tenth bounced", b.Status)
		}
	})
}

// The numbers in the database never change, because rows, indexes and the trigger that counts results have them.
func TestRecipientNumbers(t *testing.T) {
	t.Parallel()
	want := map[string]int16{"waiting": 1, "sent": 2, "delivered": 3, "bounced": 4, "failed": 5, "suppressed": 6,
		"canceled": 7, "left_out": 8, "bounce ": 0, "bounce permanent": 1, "bounce transient": 2, "bounce undetermined": 3}
	if diff := cmp.Diff(want, broadcasts.Numbers()); diff != "" {
		t.Error(diff)
	}
}
