package automations_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/platform/db"
)

// days replaces an automation's graph with one that has a delay of one day and n seconds.
func (s *fixture) days(id string, n int, status automations.Status) error {
	s.T.Helper()
	c := automations.Change{Steps: []byte("[" + trigger("go") + "," + step("day", engine.Delay,
		fmt.Sprintf(`{"duration": "%d seconds"}`, 86400+n)) + "]"), Connections: []byte(links("start day"))}
	if status != "" {
		c.Status = &status
	}
	_, err := s.a.Update(s.T.Context(), s.Acme.TeamID, id, c)
	return err
}

// versions returns the numbers of the stored versions of an automation.
func (s *fixture) versions(id string) string {
	s.T.Helper()
	rows, err := s.DB.Query(s.T.Context(), `SELECT number FROM automation_versions WHERE automation_id = $1 ORDER BY
		number`, db.ID(id))
	all, err := db.Collect(rows, err, func(r db.Row) (n int, err error) {
		err = r.Scan(&n)
		return n, err
	})
	s.Must(err)
	return strings.Trim(fmt.Sprint(all), "[]")
}

// A new version replaces the previous version if no run can have used the previous one. A version that was ever enabled
// is kept.
func TestVersionsThatBeganNothing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"))
		for i, c := range []struct {
			status automations.Status
			want   string
		}{{"", "1 2"}, {automations.Disabled, "1 2 3"}, {"", "1 2 4"}, {"", "1 2 5"}, {automations.Enabled, "1 2 6"},
			{"", "1 2 6 7"}} {
			s.Must(s.days(id, i, c.status))
			if got := s.versions(id); got != c.want {
				t.Errorf("after change %d there are the versions %s, not %s", i, got, c.want)
			}
		}
		for _, status := range []automations.Status{automations.Disabled, automations.Enabled, automations.Disabled,
			automations.Enabled, automations.Disabled} {
			_, err := s.a.Update(t.Context(), s.Acme.TeamID, id, automations.Change{Status: &status})
			s.Must(err)
		}
		s.Must(s.days(id, 100, ""))
		s.Must(s.days(id, 101, ""))
		if got := s.versions(id); got != "1 2 6 7 9" {
			t.Errorf("there are the versions %s", got)
		}
		for _, status := range []automations.Status{automations.Enabled, automations.Disabled} {
			_, err := s.a.Update(t.Context(), s.Acme.TeamID, id, automations.Change{Status: &status})
			s.Must(err)
		}
		s.Must(s.days(id, 102, ""))
		if got := s.versions(id); got != "1 2 6 7 9 10" {
			t.Errorf("in the end there are the versions %s", got)
		}
		a, err := s.a.Get(t.Context(), s.Acme.TeamID, id)
		if s.Must(err); a.Version != 10 {
			t.Errorf("the version is %d", a.Version)
		}
	})
}

// Each change to a graph deletes a batch of versions that were replaced before the oldest run began. Versions that are
// used by existing runs are kept.
func TestVersionsWithoutRuns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"))
		for i := range 13 {
			s.Must(s.days(id, i, ""))
		}
		if got := s.versions(id); got != "1 2 3 4 5 6 7 8 9 10 11 12 13 14" {
			t.Errorf("at first there are the versions %s", got)
		}
		s.Update(func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE automation_versions SET created_at = created_at - $1`,
				(2 * time.Hour).Microseconds())
			return nil
		})
		s.happens("go", ann, "")
		for i, want := range []string{"11 12 13 14 15", "14 15 16", "14 15 16 17"} {
			s.Must(s.days(id, 20+i, ""))
			if got := s.versions(id); got != want {
				t.Errorf("then there are the versions %s, not %s", got, want)
			}
		}
		s.mustRun(id, "running: start")
		if v := s.runs(id)[0].Version; v != 14 {
			t.Errorf("the run has the version %d", v)
		}
	})
}

// The number of versions per automation is limited. If the limit is reached, the error advises the user to duplicate
// the automation.
func TestTooManyVersions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"))
		s.Update(func(tx *db.Tx) error {
			versionID := `CAST('ffffffff-ffff-7fff-8fff-ffffff' || (100000 + n.i) AS UUID)`
			if tx.OneWriter() { // SQLite
				versionID = `CAST('zzzzzzzzzz' || (100000 + n.i) AS BLOB)`
			}
			tx.Queue(t.Context(), `INSERT INTO automation_versions (id, automation_id, team_id, number, used, created_at, steps,
				connections) WITH RECURSIVE n (i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
				SELECT `+versionID+`, v.automation_id, v.team_id, n.i - 1000, 1, v.created_at, v.steps, v.connections
				FROM n JOIN automation_versions v ON v.automation_id = $1`, db.ID(id))
			return nil
		})
		s.Must(s.days(id, 1, ""))
		err := s.days(id, 2, "")
		refused(t, err, "steps", "1000 versions")
		refused(t, err, "steps", "/duplicate")
		if n := s.Count(`SELECT COUNT(*) FROM automation_versions`); n != 1000 {
			t.Errorf("%d versions", n)
		}
		a, err := s.a.Duplicate(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		s.Must(s.days(a.ID, 2, automations.Enabled))
	})
}
