package retention_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/retention"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const day = 24 * time.Hour

// The longest retention of any team is known from one statement, however many teams there are.
func TestLongestRetention(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		all := testnode.Bare(t, d, testnode.Options{}).Teams
		set := func(values ...time.Duration) {
			t.Helper()
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE teams SET deleted_at = 1 WHERE deleted_at = 0`)
				for i, own := range values {
					tx.Queue(t.Context(), `INSERT INTO teams (id, short_id, name, email, rate_limit, suspended, created_at,
						email_retention) VALUES ($1, $2, 'team', '', 0, FALSE, 0, $3)`,
						db.ID(dbtest.ID(fmt.Sprint(own, i, len(values)))), int64(i*1000+len(values)), own.Microseconds())
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			most   time.Duration
			own    []time.Duration
			wanted time.Duration
		}{
			{30 * day, nil, 30 * day}, {0, nil, 0}, {30 * day, []time.Duration{2 * day, 9 * day, 3 * day}, 9 * day},
			{30 * day, []time.Duration{2 * day, 0}, 30 * day}, {5 * day, []time.Duration{2 * day, 9 * day, day, day}, 5 * day},
			{0, []time.Duration{2 * day, 9 * day, day, day, day}, 9 * day},
			{0, []time.Duration{2 * day, 0, day, day, day, day}, 0},
		} {
			set(c.own...)
			trace.Take()
			got, err := retention.New(teams.Retention{Emails: c.most}, all, time.Now).LongestOfEmails(t.Context())
			if n := len(trace.Take()); err != nil || got != c.wanted || n != 1 {
				t.Errorf("%v of %v: %v by %d statements, %v", c.own, c.most, got, n, err)
			}
		}
	})
}

// A team keeps rows for the installation's retention period, or for a shorter period of its own. Run processes teams in
// turn, and an error for one team does not delay others.
func TestRun(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, now := t.Context(), time.Now()
		all := testnode.Bare(t, d, testnode.Options{}).Teams
		names := map[string]string{}
		most := teams.Retention{Emails: 30 * day, Events: 0}
		for name, own := range map[string]teams.Retention{"none": {}, "shorter": {Emails: 2 * day, Received: 9 * day},
			"broken": {}, "gone": {}} {
			team, err := all.Create(ctx, name, "")
			if err == nil {
				names[team.ID] = name
				err = all.SetRetention(ctx, team.ID, most, func(r *teams.Retention) { *r = own })
			}
			if err != nil {
				t.Fatal(err)
			}
			if name == "gone" {
				err = d.Update(ctx, func(tx *db.Tx) error {
					_, err := tx.Exec(ctx, `UPDATE teams SET deleted_at = 1 WHERE id = $1`, db.ID(team.ID))
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		var steps []string
		failed := errors.New("not this one")
		step := func(what string) retention.Step {
			left := map[string]int{"none": 120, "shorter": 70, "broken": 10}
			return func(_ context.Context, teamID string, before time.Time, after string) (string, error) {
				name := names[teamID]
				steps = append(steps, fmt.Sprintf("%s of %s from before %d days", what, name, now.Sub(before)/day))
				if (after == "") != (len(steps) == 1 || !slices.Contains(steps[:len(steps)-1], steps[len(steps)-1])) {
					t.Errorf("step %d of %s goes on at %q", len(steps), name, after)
				}
				if name == "broken" {
					return "", failed
				}
				if left[name]--; left[name] == 0 {
					return "", nil
				}
				return "more", nil
			}
		}
		s := retention.New(most, all, func() time.Time { return now },
			retention.Rule{Name: "emails", Period: func(r teams.Retention) time.Duration { return r.Emails },
				Step: step("emails")},
			retention.Rule{Name: "received", Period: func(r teams.Retention) time.Duration { return r.Received },
				Step: step("received")},
			retention.Rule{Name: "events", Period: func(r teams.Retention) time.Duration { return r.Events },
				Step: step("events")})
		if err := s.Run(ctx); !errors.Is(err, failed) || strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("it ended with %v", err)
		}
		counts := map[string]int{}
		longest, run := 0, 0
		for i, what := range steps {
			counts[what]++
			if run++; i > 0 && steps[i-1] != what {
				run = 1
			}
			if counts["emails of shorter from before 2 days"] < 70 {
				longest = max(longest, run)
			}
		}
		want := map[string]int{"emails of none from before 30 days": 120, "emails of shorter from before 2 days": 70,
			"received of shorter from before 9 days": 70, "emails of broken from before 30 days": 1}
		if fmt.Sprint(counts) != fmt.Sprint(want) {
			t.Errorf("it did %v, want %v", counts, want)
		}
		if longest > 50 {
			t.Errorf("another had %d batches before the team had its turn", longest)
		}
		stopped, stop := context.WithCancel(ctx)
		stop()
		if err := s.Run(stopped); !errors.Is(err, context.Canceled) {
			t.Errorf("stopped, it ended with %v", err)
		}
	})
}

// The parts of Run visit each team once.
func TestParts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		all := testnode.Bare(t, d, testnode.Options{}).Teams
		const n, parts = 40, 3
		want := map[string]int{}
		for range n {
			team, err := all.Create(t.Context(), "team", "")
			if err != nil {
				t.Fatal(err)
			}
			want[team.ID] = 1
		}
		visits := map[string]int{}
		s := retention.New(teams.Retention{Emails: day}, all, d.Now, retention.Rule{Name: "emails",
			Period: func(r teams.Retention) time.Duration { return r.Emails },
			Step: func(_ context.Context, teamID string, _ time.Time, _ string) (string, error) {
				visits[teamID]++
				return "", nil
			}})
		var before int
		for part := range parts {
			if err := s.RunPart(t.Context(), jobs.Part{N: part, Of: parts}); err != nil {
				t.Fatal(err)
			}
			if len(visits) == before {
				t.Errorf("part %d visits no team", part)
			}
			before = len(visits)
		}
		if !maps.Equal(visits, want) {
			t.Errorf("teams were visited so often: %v", visits)
		}
	})
}

// Run spends at most half of its time deleting, even if each team has only one batch.
func TestPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		all := testnode.Bare(t, d, testnode.Options{}).Teams
		for range 5 {
			if _, err := all.Create(t.Context(), "team", ""); err != nil {
				t.Fatal(err)
			}
		}
		s := retention.New(teams.Retention{Emails: day}, all, time.Now, retention.Rule{Name: "emails",
			Period: func(r teams.Retention) time.Duration { return r.Emails },
			Step: func(context.Context, string, time.Time, string) (string, error) {
				time.Sleep(time.Second)
				return "", nil
			}})
		start := time.Now()
		if err := s.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("five batches of a second took %v", took)
		}
	})
}
