package metrics_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is a team with emails and all their events.
type fixture struct {
	d        *db.DB
	s        *metrics.Service
	recorder *events.Recorder
	all      []events.Event
	emails   []email
	gone     map[string]bool // deleted emails
}

type email struct {
	id, domain, broadcast string
	to                    []string
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	w := &fixture{d: d, s: metrics.New(d), recorder: &events.Recorder{}, gone: map[string]bool{}}
	w.recorder.Listen(w.s)
	insertTeam(t, d, dbtest.ID("team"), 7)
	domains := []string{id.New(), id.New()}
	w.update(t, func(tx *db.Tx) error {
		for i := range 12 {
			e := email{id: id.New(), domain: domains[i%2]}
			if i%3 == 0 {
				e.broadcast = "00000000-0000-7000-8000-00000000000" + fmt.Sprint(i%2)
			}
			for k := range 1 + i%4 {
				e.to = append(e.to, fmt.Sprintf("to%d@example.net", k))
				tx.Queue(t.Context(), `INSERT INTO email_recipients (email_id, position, team_id, kind, address, domain, state,
					rank, updated_at)
					VALUES ($1, $2, $5, 1, $3, 'example.net', $4, 1, 0)`, db.ID(e.id), k, e.to[k],
					map[bool]int{true: 10, false: 3}[k == 2], db.ID(dbtest.ID("team")))
			}
			w.emails = append(w.emails, e)
		}
		return nil
	})
	return w
}

// insertTeam inserts the row of a team.
func insertTeam(t testing.TB, d *db.DB, teamID string, short int64) {
	t.Helper()
	if err := d.Update(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO teams (id, short_id, name, email, rate_limit, suspended, created_at)
			VALUES ($1, $2, 'team', '', 0, FALSE, 0)`, db.ID(teamID), short)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func (w *fixture) update(t *testing.T, f func(tx *db.Tx) error) {
	t.Helper()
	if err := w.d.Update(context.Background(), f); err != nil {
		t.Fatal(err)
	}
}

// happen records events for the fixture's emails, and stores received emails, in one transaction.
func (w *fixture) happen(t *testing.T, all ...events.Event) {
	t.Helper()
	var recorded []events.Event
	w.update(t, func(tx *db.Tx) error {
		recorded = slices.Clone(all)
		if err := w.recorder.Record(t.Context(), tx, recorded...); err != nil {
			return err
		}
		for i := range recorded {
			e := &recorded[i]
			if r, ok := e.Data.(*events.Received); ok {
				e.EmailID = r.ID // for recount
				insertReceived(t, tx, e)
			}
		}
		return nil
	})
	w.all = append(w.all, recorded...)
}

// insertReceived inserts the row of a received email.
func insertReceived(t *testing.T, tx *db.Tx, e *events.Event) {
	tx.Queue(t.Context(), `INSERT INTO received_emails (team_id, id, domain_id, sender, subject, message_id, recipients,
		received_for, files, thread_id, origin, authentication, spam, size, blob_key, created_at)
		VALUES ($1, $2, $3, '', '', '', '', '', '', $2, '', '', '', 0, '', $4)`, db.ID(e.TeamID), db.ID(e.EmailID),
		db.ID(e.DomainID), e.At.UnixMicro())
}

func (w *fixture) event(r *rand.Rand, now time.Time) events.Event {
	e := w.emails[r.IntN(len(w.emails))]
	if r.IntN(8) == 0 { // emails are received at the current time
		return events.Event{TeamID: dbtest.ID("team"), DomainID: e.domain, Type: events.EmailReceived,
			Data: &events.Received{ID: id.New()}}
	}
	v := events.Event{TeamID: dbtest.ID("team"), EmailID: e.id, DomainID: e.domain, BroadcastID: e.broadcast,
		Recipient: e.to[r.IntN(len(e.to))]}
	switch v.Type = []events.Type{events.EmailQueued, events.EmailSent, events.EmailDelivered, events.EmailOpened,
		events.EmailOpened, events.EmailClicked,
		events.EmailBounced}[r.IntN(7)]; v.Type {
	case events.EmailSent:
		v.Recipient = ""
	case events.EmailOpened:
		v.Data = &events.Open{Machine: events.Machine{Is: r.IntN(2) == 0}}
	case events.EmailClicked:
		v.Data = &events.Click{Machine: events.Machine{Is: r.IntN(2) == 0}}
	case events.EmailBounced:
		v.Data = &events.Bounce{Type: []string{"Permanent", "Transient"}[r.IntN(2)]}
	}
	if r.IntN(4) > 0 { // one event in four happens at the current time
		v.At = now.Add(-time.Duration(r.Int64N(int64(6 * time.Hour)))).Truncate(time.Microsecond)
	}
	return v
}

// recount counts the events with simple Go code.
func (w *fixture) recount(q metrics.Query) []metrics.Count {
	sums := map[metrics.Count][3]int{}
	for i := range w.all {
		e := &w.all[i]
		at := e.At
		if w.gone[e.EmailID] {
			if q.ByEmail || len(q.EmailIDs) > 0 {
				continue // deleted events cannot be assigned to an email
			}
			at = at.Truncate(15 * time.Minute)
		}
		if len(q.Types) > 0 && !slices.Contains(q.Types, e.Type) {
			continue
		}
		if e.Type == events.EmailQueued || at.Before(q.From) || !at.Before(q.To) ||
			len(q.DomainIDs) > 0 && !slices.Contains(q.DomainIDs, e.DomainID) || len(q.EmailIDs) > 0 &&
			!slices.Contains(q.EmailIDs, e.EmailID) ||
			len(q.BroadcastIDs) > 0 && !slices.Contains(q.BroadcastIDs, e.BroadcastID) {
			continue
		}
		k := metrics.Count{Type: strings.TrimPrefix(string(e.Type), "email.")}
		if b, ok := e.Data.(*events.Bounce); ok {
			k.Detail = strings.ToLower(b.Type)
		} else if byMachine(e) {
			k.Detail = events.DetailMachine
		}
		if q.ByPeriod != nil {
			k.Period = q.ByPeriod(at)
		}
		if q.ByDomain {
			k.DomainID = e.DomainID
		}
		if q.ByEmail {
			k.EmailID = e.EmailID
		}
		if q.ByBroadcast {
			k.BroadcastID = e.BroadcastID
		}
		n := sums[k]
		n[0]++
		n[1] += w.recipients(e)
		n[2] += w.people(e)
		sums[k] = n
	}
	var out []metrics.Count
	for k, n := range sums {
		k.Events, k.Recipients, k.People = n[0], n[1], n[2]
		out = append(out, k)
	}
	return sorted(out)
}

func (w *fixture) recipients(e *events.Event) int {
	switch e.Type {
	case events.EmailSent:
		i := slices.IndexFunc(w.emails, func(x email) bool { return x.id == e.EmailID })
		n := len(w.emails[i].to)
		if n > 2 {
			n-- // the fixture suppresses the third recipient
		}
		return n
	case events.EmailOpened, events.EmailClicked:
		for i := range w.all {
			f := &w.all[i]
			if f.Type == e.Type && f.EmailID == e.EmailID && f.Recipient == e.Recipient &&
				(f.At.Before(e.At) || f.At.Equal(e.At) && f.ID < e.ID) {
				return 0
			}
		}
	}
	return 1
}

func byMachine(e *events.Event) bool {
	switch d := e.Data.(type) {
	case *events.Open:
		return d.Is
	case *events.Click:
		return d.Is
	}
	return false
}

func (w *fixture) people(e *events.Event) int {
	if e.Type != events.EmailOpened && e.Type != events.EmailClicked || byMachine(e) {
		return 0
	}
	for i := range w.all {
		f := &w.all[i]
		if f.Type == e.Type && f.EmailID == e.EmailID && f.Recipient == e.Recipient && !byMachine(f) &&
			(f.At.Before(e.At) || f.At.Equal(e.At) && f.ID < e.ID) {
			return 0
		}
	}
	return 1
}

func sorted(all []metrics.Count) []metrics.Count {
	slices.SortFunc(all, func(a, b metrics.Count) int {
		return cmp.Or(cmp.Compare(a.Period, b.Period), cmp.Compare(a.DomainID, b.DomainID), cmp.Compare(a.EmailID, b.EmailID),
			cmp.Compare(a.BroadcastID, b.BroadcastID), cmp.Compare(a.Type, b.Type), cmp.Compare(a.Detail, b.Detail))
	})
	return all
}

// queries returns one or more queries of every kind.
func (w *fixture) queries(r *rand.Rand, now time.Time) []metrics.Query {
	hourly := func(t time.Time) string { return t.UTC().Format("15") }
	span := func() (from, to time.Time) {
		from = now.Add(-time.Duration(r.Int64N(int64(8 * time.Hour))))
		return from.Truncate(time.Microsecond), from.Add(time.Duration(r.Int64N(int64(9 * time.Hour)))).Truncate(
			time.Microsecond)
	}
	all := []metrics.Query{{}, {ByDomain: true, ByBroadcast: true}, {ByEmail: true},
		{Types: []events.Type{events.EmailSent}},
		{Types: []events.Type{events.EmailOpened, events.EmailReceived}, ByDomain: true},
		{Types: []events.Type{events.EmailQueued}},
		{DomainIDs: []string{w.emails[0].domain}},
		{EmailIDs: []string{w.emails[1].id, w.emails[2].id}}, {BroadcastIDs: []string{w.emails[0].broadcast}, ByDomain: true}}
	for i := range all {
		all[i].From, all[i].To = now.Add(-24*time.Hour), now.Add(time.Hour)
	}
	for range 3 {
		from, to := span()
		all = append(all, metrics.Query{From: from, To: to, ByDomain: true})
	}
	from := now.Add(-5 * time.Hour).Truncate(time.Hour)
	return append(all, metrics.Query{From: from, To: from.Add(4 * time.Hour), ByPeriod: hourly, ByBroadcast: true},
		metrics.Query{From: now.Add(-24 * time.Hour), To: now.Add(time.Minute), ByPeriod: hourly})
}

// Query results always equal a simple recount, in any order of recording events and running RollUp.
func TestCountsAreTrue(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, r, now := newFixture(t, d), rand.New(rand.NewPCG(1, 2)), time.Now()
		for round := range 15 {
			for range 1 + r.IntN(8) {
				var all []events.Event
				for range 1 + r.IntN(4) {
					all = append(all, w.event(r, now))
				}
				w.happen(t, all...)
			}
			if round%3 > 0 {
				if err := w.s.RollUp(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if round%2 == 0 {
				w.happen(t, w.event(r, now))
			}
			for i, q := range w.queries(r, now) {
				got, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
				if err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(w.recount(q), sorted(got)); diff != "" {
					t.Fatalf("round %d, query %d, from %v to %v:\n%s", round, i, q.From, q.To, diff)
				}
			}
		}
		var rolled, left int
		if err := d.QueryRow(t.Context(), `SELECT COALESCE(SUM(events), 0) FROM email_counts`).Scan(&rolled); err != nil ||
			rolled == 0 {
			t.Errorf("%d events are in counters, %v", rolled, err)
		}
		if err := w.s.RollUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM email_counts_late`).Scan(&left); err != nil || left != 0 {
			t.Errorf("%d late events are left, %v", left, err)
		}
		if got, err := w.s.Count(t.Context(), dbtest.ID("other"), metrics.Query{From: now.Add(-24 * time.Hour),
			To: now}); err != nil ||
			len(got) != 0 {
			t.Errorf("another team: %+v, %v", got, err)
		}
	})
}

// delete deletes all rows of an email if its events are already counted.
func (w *fixture) delete(t *testing.T, e email) {
	t.Helper()
	var released []string
	w.update(t, func(tx *db.Tx) (err error) {
		if released, err = metrics.RetainCounts(t.Context(), tx, dbtest.ID("team"), []string{e.id}); len(released) > 0 {
			tx.Queue(t.Context(), `DELETE FROM email_events WHERE email_id = $1`, db.ID(e.id))
			tx.Queue(t.Context(), `DELETE FROM email_recipients WHERE email_id = $1`, db.ID(e.id))
		}
		return err
	})
	w.gone[e.id] = len(released) > 0
}

// Query results always equal a simple recount, even while emails are deleted and late events of other emails are
// recorded.
func TestCountsOutliveEmails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, r, now := newFixture(t, d), rand.New(rand.NewPCG(5, 6)), time.Now()
		w.delete(t, w.emails[0])
		if !w.gone[w.emails[0].id] {
			t.Error("an email to which nothing has happened is kept")
		}
		stays := w.emails[:3]
		for round := range 15 {
			for range 1 + r.IntN(8) {
				e := w.event(r, now)
				if !w.gone[e.EmailID] {
					w.happen(t, e)
				}
			}
			if round%3 > 0 {
				if err := w.s.RollUp(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if e := w.emails[r.IntN(len(w.emails))]; !slices.ContainsFunc(stays, func(s email) bool { return s.id == e.id }) {
				w.delete(t, e)
			}
			for i, q := range w.queries(r, now) {
				got, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
				if err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(w.recount(q), sorted(got)); diff != "" {
					t.Fatalf("round %d, query %d, from %v to %v:\n%s", round, i, q.From, q.To, diff)
				}
			}
		}
		deleted, stayed := 0, 0
		for _, e := range w.emails {
			if w.gone[e.id] {
				deleted++
			} else {
				stayed++
			}
		}
		if deleted < 3 || stayed < 3 {
			t.Errorf("%d emails were deleted, %d are left", deleted, stayed)
		}
	})
}

// RetainCounts does not allow an email to be deleted while one of its events is not yet counted.
func TestKeepRefusesWhatIsNotCounted(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, now := newFixture(t, d), time.Now()
		e := w.emails[1]
		sent := events.Event{TeamID: dbtest.ID("team"), EmailID: e.id, Type: events.EmailSent}
		for _, ago := range []time.Duration{2 * time.Hour, time.Hour} {
			sent.At = now.Add(-ago)
			w.happen(t, sent)
			if w.delete(t, e); w.gone[e.id] {
				t.Fatal("it was deleted before it was counted")
			}
		}
		if err := w.s.RollUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.happen(t, events.Event{TeamID: dbtest.ID("team"), EmailID: e.id, Type: events.EmailOpened, Recipient: e.to[0],
			At: now.Add(-90 * time.Minute)})
		if w.delete(t, e); w.gone[e.id] {
			t.Fatal("it was deleted before an event that came late was counted")
		}
		w.happen(t, events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[2].id, Type: events.EmailSent})
		if err := w.s.RollUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		if w.delete(t, e); !w.gone[e.id] {
			t.Error("it is kept although all is counted")
		}
		if w.delete(t, w.emails[2]); w.gone[w.emails[2].id] {
			t.Error("an email of this minute was deleted")
		}
	})
}

// If several nodes run RollUp at the same time while events are recorded, every event is counted once.
func TestManyCountAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, r, now := newFixture(t, d), rand.New(rand.NewPCG(3, 4)), time.Now()
		done := make(chan error, 3)
		for range cap(done) {
			go func() {
				var err error
				for range 15 {
					if err = w.s.RollUp(context.Background()); err != nil {
						break
					}
				}
				done <- err
			}()
		}
		for range 60 {
			w.happen(t, w.event(r, now), w.event(r, now))
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for _, rolled := range []bool{false, true} {
			if rolled {
				if err := w.s.RollUp(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			q := metrics.Query{From: now.Add(-24 * time.Hour), To: now.Add(time.Hour), ByDomain: true}
			got, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(w.recount(q), sorted(got)); diff != "" {
				t.Errorf("rolled %v: %s", rolled, diff)
			}
		}
	})
}

func TestUsage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, now := newFixture(t, d), time.Now()
		w.happen(t, events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[1].id, Type: events.EmailSent},
			events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[1].id, Type: events.EmailDelivered,
				Recipient: "to0@example.net"},
			events.Event{TeamID: dbtest.ID("team"), Type: events.EmailReceived, Data: &events.Received{ID: id.New()}},
			events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[2].id, Type: events.EmailSent,
				At: now.Add(-48 * time.Hour)})
		if u, err := w.s.Usage(t.Context(), dbtest.ID("team"), now.Add(-time.Hour), now.Add(time.Hour)); err != nil ||
			u != (metrics.Usage{Sent: 2, Received: 1}) {
			t.Errorf("today %+v, %v", u, err)
		}
		if u, err := w.s.Usage(t.Context(), dbtest.ID("team"), now.Add(-72*time.Hour), now.Add(time.Hour)); err != nil ||
			u != (metrics.Usage{Sent: 4, Received: 1}) {
			t.Errorf("this month %+v, %v", u, err)
		}
	})
}

// fill inserts n events directly into the database, spread evenly over a time span. Each event belongs to its own email
// with one recipient.
func fill(b testing.TB, d *db.DB, n int, from time.Time, over time.Duration) {
	b.Helper()
	types := []int64{2, 3, 5, 6} // queued, sent, delivered, opened
	const chunk = 500
	for done := 0; done < n; done += chunk {
		err := d.Update(context.Background(), func(tx *db.Tx) error {
			var emailIDs, ids, domains []db.ID
			var kinds []int64
			var times []int64
			for i := done; i < done+chunk; i++ {
				emailIDs = append(emailIDs, db.ID(dbtest.ID(fmt.Sprintf("e%09d", i/4))))
				ids = append(ids, db.ID(dbtest.ID(fmt.Sprintf("%012d", i))))
				domains, kinds = append(domains, db.ID(dbtest.ID(fmt.Sprintf("d%d", i/4%3)))), append(kinds, types[i%4])
				times = append(times, from.Add(time.Duration(float64(over)*float64(i)/float64(n))).UnixMicro())
			}
			_, err := tx.InsertRows(context.Background(), `email_events (email_id, id, team_id, domain_id, broadcast_id, type,
				detail, recipient, data,
				created_at)`, "", emailIDs, ids, db.ID(dbtest.ID("team")), domains, db.ID(""), kinds, "", "a@example.net", "",
				times)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// A breakdown by email has a maximum number of rows.
func TestTooManyEmails(t *testing.T) {
	d := dbtest.SQLite(t)
	now := time.Now()
	fill(t, d, 70_000, now.Add(-time.Hour), time.Hour)
	_, err := metrics.New(d).Count(t.Context(), dbtest.ID("team"), metrics.Query{From: now.Add(-2 * time.Hour), To: now,
		ByEmail: true})
	if fault.KindOf(err) != fault.Invalid {
		t.Errorf("%v", err)
	}
}

// If a team has more distinct counters than one step allows, RollUp counts its events in shorter steps. An error for
// one team does not delay the counting of other teams.
func TestRollOfManyCounters(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		from := time.Now().Add(-3 * time.Hour).Truncate(time.Hour)
		insert := func(team string, n int, over time.Duration) {
			t.Helper()
			const chunk = 1000
			for done := 0; done < n; done += chunk {
				var emailIDs, ids, domains []db.ID
				var times []int64
				for i := done; i < done+chunk; i++ {
					emailIDs = append(emailIDs, db.ID(dbtest.ID(fmt.Sprintf("%s%09d", team, i))))
					ids = append(ids, db.ID(dbtest.ID(fmt.Sprintf("%012d", i))))
					domains = append(domains, db.ID(dbtest.ID(fmt.Sprintf("d%d", i))))
					times = append(times, from.Add(time.Duration(float64(over)*float64(i)/float64(n))).UnixMicro())
				}
				err := d.Update(t.Context(), func(tx *db.Tx) error {
					_, err := tx.InsertRows(t.Context(), `email_events (email_id, id, team_id, domain_id, broadcast_id, type,
						detail, recipient, data,
						created_at)`, "", emailIDs, ids, db.ID(team), domains, db.ID(""), int64(5), "", "a@example.net",
						"", times)
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		insertTeam(t, d, dbtest.ID("a"), 1<<31-1)
		insertTeam(t, d, dbtest.ID("b"), 1)
		insert(dbtest.ID("a"), 60_000, time.Second)
		insert(dbtest.ID("b"), 6000, time.Hour)
		if err := metrics.New(d).RollUp(t.Context()); err == nil || !strings.Contains(err.Error(),
			"team "+dbtest.ID("a")) ||
			strings.Contains(err.Error(), "team "+dbtest.ID("b")) {
			t.Errorf("Roll returned %v, want an error of team a alone", err)
		}
		var counted int
		if err := d.QueryRow(t.Context(), `SELECT SUM(events) FROM email_counts WHERE team_id = $1`,
			db.ID(dbtest.ID("b"))).Scan(&counted); err != nil || counted != 6000 {
			t.Errorf("%d events of the other team are counted: %v", counted, err)
		}
	})
}

// BenchmarkMillion queries a month's metrics by day and domain, over a million events.
func BenchmarkMillion(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			d, now := open(b), time.Now()
			const n = 1_000_000
			insertTeam(b, d, dbtest.ID("team"), 8)
			fill(b, d, n, now.Add(-30*24*time.Hour), 30*24*time.Hour)
			s := metrics.New(d)
			start := time.Now()
			if err := s.RollUp(context.Background()); err != nil {
				b.Fatal(err)
			}
			b.Logf("counted %d events at first in %v", n, time.Since(start))
			for b.Loop() {
				got, err := s.Count(context.Background(), dbtest.ID("team"), metrics.Query{From: now.Add(-31 * 24 * time.Hour),
					To:        now,
					ByDomain:  true,
					PeriodsOf: metrics.Days, ByPeriod: func(t time.Time) string { return t.UTC().Format(time.DateOnly) }})
				if err != nil || len(got) < 3*3*30 {
					b.Fatalf("%d counts, %v", len(got), err)
				}
			}
		})
	}
}
