package exportruns

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The record of an export counts its items, says how far back it reaches, and ends as complete or stopped, also if the
// client has gone. Other members and teams do not see it.
func TestRuns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, team, r := t.Context(), dbtest.ID("team"), New(d)
		by := teams.ActorRef{Kind: teams.UserActor, ID: dbtest.ID("user")}
		now := d.Now()
		list := func(of teams.ActorRef, teamID string) []Run {
			t.Helper()
			all, err := r.List(ctx, of, teamID)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		x, err := r.Begin(ctx, by, team, "emails", 2, now.Add(-10*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		x.run.UpdatedAt = now.Add(-time.Minute) // so that the next count is recorded
		if err := x.Advance(ctx, 500, x.run.StartedAt.Add(-5*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if err := x.Advance(ctx, 20, x.run.StartedAt.Add(-6*time.Hour)); err != nil {
			t.Fatal(err)
		}
		all := list(by, team)
		if len(all) != 1 || all[0].State != Running || all[0].Items != 500 || all[0].Filters != 2 || all[0].List != "emails" {
			t.Fatalf("while it runs: %+v", all)
		}
		if p := all[0].Progress(); p < 0.49 || p > 0.51 {
			t.Errorf("half of the time is covered, but the progress is %v", p)
		}
		if others := append(list(teams.ActorRef{Kind: by.Kind, ID: dbtest.ID("other")}, team),
			list(by, dbtest.ID("other"))...); len(others) != 0 {
			t.Errorf("others see %+v", others)
		}
		gone, stop := context.WithCancel(ctx)
		stop()
		if err := x.End(gone, true); err != nil {
			t.Fatal(err)
		}
		if all := list(by, team); all[0].State != Complete || all[0].Items != 520 || all[0].Progress() != 1 {
			t.Errorf("at the end: %+v", all)
		}

		change := func(set string, args ...any) {
			t.Helper()
			if err := d.Update(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, "UPDATE export_runs SET "+set, args...)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		change("state = 1, updated_at = $1", now.Add(-3*time.Minute).UnixMicro())
		if all := list(by, team); all[0].State != Stopped {
			t.Errorf("an export whose node has ended is %s", all[0].State)
		}
		change("started_at = $1", now.Add(-25*time.Hour).UnixMicro())
		if all := list(by, team); len(all) != 0 {
			t.Errorf("after a day: %+v", all)
		}
		for range most + 3 {
			if _, err := r.Begin(ctx, by, team, "logs", 0, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		var rows int
		if err := d.QueryRow(ctx, `SELECT COUNT(*) FROM export_runs`).Scan(&rows); err != nil || rows != most {
			t.Errorf("%d runs are kept, want %d: %v", rows, most, err)
		}
		if err := d.Update(ctx, func(tx *db.Tx) error {
			return r.OnMemberRemoved(ctx, tx, dbtest.ID("other"), by.ID)
		}); err != nil {
			t.Fatal(err)
		}
		if err := r.EraseTeam(ctx, dbtest.ID("other")); err != nil || len(list(by, team)) != most {
			t.Errorf("another team's runs were deleted: %v", err)
		}
		if err := r.EraseTeam(ctx, team); err != nil || len(list(by, team)) != 0 {
			t.Errorf("runs of a deleted team are left: %v", err)
		}
	})
}
