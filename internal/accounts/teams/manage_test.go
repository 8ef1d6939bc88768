package teams_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestFind(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, acme := oneTeam(t, d)
		twins := make([]teams.Team, 2)
		for i := range twins {
			var err error
			if twins[i], err = s.Create(t.Context(), " Twin ", ""); err != nil {
				t.Fatal(err)
			}
		}
		for _, give := range []string{"Acme", " Acme ", acme.ID, strings.ToUpper(acme.ID)} {
			if got, err := s.Find(t.Context(), give); err != nil || got.ID != acme.ID {
				t.Errorf("%q finds %+v, %v", give, got, err)
			}
		}
		for give, kind := range map[string]fault.Kind{"acme": fault.NotFound, "Acm": fault.NotFound, "%": fault.NotFound,
			id.New(): fault.NotFound,
			"":       fault.Missing, "\x00": fault.Invalid, "\xff": fault.Invalid, "Twin": fault.Invalid} {
			if got, err := s.Find(t.Context(), give); fault.KindOf(err) != kind || got.ID != "" {
				t.Errorf("%q finds %+v, %v", give, got, err)
			}
		}
		if _, err := s.Find(t.Context(), "Twin"); err == nil || !strings.Contains(err.Error(), twins[0].ID+", "+twins[1].ID) {
			t.Errorf("a name of two teams: %v", err)
		}
		all, err := s.List(t.Context(), acme.ID, 10)
		if err != nil || len(all) != 2 || all[0] != twins[0] {
			t.Errorf("listed %+v, %v", all, err)
		}
	})
}

// For an unknown team name, CreateKeyFor creates both the team and the key, or neither.
func TestCreateKeyFor(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, acme := oneTeam(t, d)
		taken := "re_taken"
		for _, x := range []struct {
			team, email string
			give        teams.NewKey
			teams       int // number of teams after the call; 0 if the call fails and creates no team
		}{
			{"Acme", "", teams.NewKey{Name: "k", Token: taken}, 1},
			{"Acme", "OWNER@example.org", teams.NewKey{Name: "k"}, 1},
			{"Acme", "other@example.org", teams.NewKey{Name: "k"}, 0},
			{"New", "new@example.org", teams.NewKey{Name: "k"}, 2},
			{"New", "", teams.NewKey{Name: "k"}, 2},
			{"Newer", "", teams.NewKey{Name: "k", Token: taken}, 0},
			{"Newer", "", teams.NewKey{Name: ""}, 0},
			{"Newer", "nobody", teams.NewKey{Name: "k"}, 0},
			{"Newer", "", teams.NewKey{Name: "k", Permission: teams.SendingAccess, DomainID: ownDomain}, 0},
			{id.New(), "", teams.NewKey{Name: "k"}, 0},
			{"", "", teams.NewKey{Name: "k"}, 0},
		} {
			before, err := s.List(t.Context(), "", 100)
			if err != nil {
				t.Fatal(err)
			}
			k, token, err := s.CreateKeyFor(t.Context(), x.team, x.email, x.give)
			after, errList := s.List(t.Context(), "", 100)
			if errList != nil {
				t.Fatal(errList)
			}
			if x.teams == 0 {
				if err == nil || token != "" || len(after) != len(before) {
					t.Errorf("%+v: token %q, error %v, %d teams and before %d", x, token, err, len(after), len(before))
				}
				if _, ours := errors.AsType[*fault.Error](err); !ours {
					t.Errorf("%+v: %v is no fault", x, err)
				}
				continue
			}
			p, errKey := s.Authenticate(t.Context(), token)
			if err != nil || errKey != nil || len(after) != x.teams || p.TeamID != k.TeamID ||
				x.team == "Acme" != (p.TeamID == acme.ID) {
				t.Errorf("%+v: %+v, error %v, %v, %d teams", x, p, err, errKey, len(after))
			}
		}
	})
}

// Two concurrent changes to different columns of a team do not undo each other.
func TestChangesOfATeamAtTheSameTime(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		for i := range 10 {
			var wg sync.WaitGroup
			var errs [3]error
			wg.Go(func() { errs[0] = s.SetSuspended(t.Context(), team.ID, i%2 == 0) })
			wg.Go(func() { errs[1] = s.SetRateLimit(t.Context(), team.ID, i) })
			wg.Go(func() { errs[2] = s.Rename(t.Context(), team.ID, strings.Repeat("x", i+1)) })
			wg.Wait()
			got, err := s.Get(t.Context(), team.ID)
			if errors.Join(append(errs[:], err)...) != nil || got.Suspended != (i%2 == 0) || got.RateLimit != i ||
				len(got.Name) != i+1 {
				t.Fatalf("%d: %+v, %v, %v", i, got, errs, err)
			}
		}
	})
}

// A deleted team can no longer be looked up. Rows written after the team's data was deleted are deleted an hour later;
// the team's own row is deleted last.
func TestDelete(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, operator := oneTeam(t, d)
		team, err := s.Create(t.Context(), "Gone", "")
		if err != nil {
			t.Fatal(err)
		}
		k, token := newKey(t, s, team.ID, "k")
		if _, err := s.Authenticate(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		q := jobs.NewQueue(d)
		if err := s.Delete(t.Context(), q, team.ID); err != nil {
			t.Fatal(err)
		}
		for what, err := range map[string]error{
			"again":    s.Delete(t.Context(), q, team.ID),
			"rename":   s.Rename(t.Context(), team.ID, "x"),
			"suspend":  s.SetSuspended(t.Context(), team.ID, true),
			"limit":    s.SetRateLimit(t.Context(), team.ID, 1),
			"get":      second(s.Get(t.Context(), team.ID)),
			"by id":    second(s.Find(t.Context(), team.ID)),
			"by name":  second(s.Find(t.Context(), "Gone")),
			"operator": second(s.Operator(t.Context(), team.ID)),
		} {
			if fault.KindOf(err) != fault.NotFound || err == nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := s.Authenticate(t.Context(), token); fault.KindOf(err) != fault.BadCredential {
			t.Errorf("its key: %v", err)
		}
		by := teams.ActorRef{Kind: teams.KeyActor, ID: k.ID}
		if active, err := s.Active(t.Context(), s.DB.Reader, team.ID, by); err != nil ||
			active {
			t.Errorf("its key is active: %v, %v", active, err)
		}
		if got, err := s.Operator(t.Context(), ""); err != nil || got.ID != operator.ID {
			t.Errorf("the operator is %+v, %v", got, err)
		}

		erased := 0
		kind := s.EraseJobs(q, func(_ context.Context, teamID string) error {
			if erased++; teamID != team.ID {
				t.Errorf("team %s is erased", teamID)
			}
			return nil
		})
		work := func() (left int) {
			t.Helper()
			var j jobs.Job
			err := d.QueryRow(t.Context(), `SELECT id, attempt, payload FROM jobs WHERE kind = $1`, kind.Name).
				Scan((*db.ID)(&j.ID),
					&j.Attempt, &j.Payload)
			if err == nil {
				err = kind.Handle(t.Context(), j)
			}
			if err == nil {
				err = d.QueryRow(t.Context(), `SELECT COUNT(*) FROM teams WHERE id = $1`, db.ID(team.ID)).Scan(&left)
			}
			if err != nil {
				t.Fatal(err)
			}
			return left
		}
		if left := work(); left != 1 || erased != 1 {
			t.Errorf("after the first pass %d rows, %d passes", left, erased)
		}
		if keys, _, err := s.ListKeys(t.Context(), team.ID, page.Page{}); err != nil || len(keys) > 0 {
			t.Errorf("%d keys are left, %v", len(keys), err)
		}
		err = d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE teams SET deleted_at = $1 WHERE id = $2`, tx.Now().Add(-2*time.Hour).UnixMicro(),
				db.ID(team.ID))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if left := work(); left != 0 || erased != 2 {
			t.Errorf("after the second pass %d rows, %d passes", left, erased)
		}
		var waiting int
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs`).Scan(&waiting); err != nil || waiting > 0 {
			t.Errorf("%d jobs wait, %v", waiting, err)
		}
		if err := kind.Handle(t.Context(), jobs.Job{Payload: operator.ID}); err == nil || erased != 2 {
			t.Errorf("a team that is not deleted: %v, %d passes", err, erased)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// A node notices another process's changes before its cache expires.
func TestCommandReachesTheNode(t *testing.T) {
	t.Parallel()
	for engine, url := range map[string]string{"sqlite": dbtest.SQLiteFile(t), "postgres": dbtest.PostgresURL(t)} {
		t.Run(engine, func(t *testing.T) {
			d := dbtest.Open(t, url)
			s, team := oneTeam(t, d)
			_, token := newKey(t, s, team.ID, "k")
			heard := make(chan string, 100)
			d.OnHint(teams.HintTopic, func(teamID string) { heard <- teamID })
			ctx, stop := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() { d.Run(ctx) })
			defer wg.Wait()
			defer stop()
			tick := time.NewTicker(200 * time.Millisecond)
			defer tick.Stop()
			for {
				if _, err := s.Authenticate(t.Context(), token); err != nil {
					t.Fatal(err)
				}
				beside, err := db.Open(t.Context(), db.Options{URL: url, Beside: true})
				if err != nil {
					t.Fatal(err)
				}
				err = testTeams(beside, slog.New(slog.DiscardHandler), noDomain).SetSuspended(t.Context(), team.ID, true)
				beside.Close()
				if err != nil {
					t.Fatal(err)
				}
				select {
				case teamID := <-heard:
					if teamID != team.ID { // the hint about the creation of the teams
						continue
					}
					if p, err := s.Authenticate(t.Context(), token); err != nil || !p.Suspended {
						t.Errorf("%+v, %v after a hint", p, err)
					}
					return
				case <-tick.C: // on PostgreSQL the hint is lost, because the listener was not running yet
				}
			}
		})
	}
}

// Concurrent commands create only one team with a given name.
func TestOneTeamOfANameIsMade(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := oneTeam(t, d)
		for i := range 5 {
			name := fmt.Sprint("Same", i)
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if _, _, err := s.CreateKeyFor(t.Context(), name, "", teams.NewKey{Name: "k"}); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if _, err := s.Find(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A team's retention must be at least a day and at most the installation's retention.
func TestRetention(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s := testTeams(d, slog.New(slog.DiscardHandler), noDomain)
		team, err := s.Create(ctx, "Acme", "")
		if err != nil {
			t.Fatal(err)
		}
		const day = 24 * time.Hour
		most := teams.Retention{Emails: 30 * day, Events: 10 * day}
		own := teams.Retention{Emails: 7 * day, Received: 90 * day}
		if err := s.SetRetention(ctx, team.ID, most, func(r *teams.Retention) { *r = own }); err != nil {
			t.Fatal(err)
		}
		for field, change := range map[string]func(r *teams.Retention){
			"email_retention":    func(r *teams.Retention) { r.Emails = 31 * day },
			"body_retention":     func(r *teams.Retention) { r.Bodies = day - time.Second },
			"received_retention": func(r *teams.Retention) { r.Received = -day },
			"event_retention":    func(r *teams.Retention) { r.Events = 11 * day },
		} {
			err := s.SetRetention(ctx, team.ID, most, func(r *teams.Retention) { r.Emails = day; change(r) })
			if f, ok := errors.AsType[*fault.Error](err); !ok || f.Kind != fault.Invalid || f.Field != field {
				t.Errorf("%s: %v", field, err)
			}
		}
		if got, err := s.Retention(ctx, team.ID); err != nil || got != own {
			t.Errorf("it has %+v, %v", got, err)
		}
		if got, want := own.Effective(most), (teams.Retention{Emails: 7 * day, Received: 90 * day,
			Events: 10 * day}); got != want {
			t.Errorf("what holds is %+v, want %+v", got, want)
		}
		if got := own.Effective(teams.Retention{Emails: 2 * day}); got.Emails != 2*day {
			t.Errorf("where the installation keeps less, emails are kept for %v", got.Emails)
		}
		if _, err := s.Retention(ctx, "01990000-0000-7000-8000-000000000001"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("of no team: %v", err)
		}
		err = s.SetRetention(ctx, "01990000-0000-7000-8000-000000000001", most, func(*teams.Retention) {})
		if fault.KindOf(err) != fault.NotFound {
			t.Errorf("set for no team: %v", err)
		}
	})
}
