package automations_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The automations of a connected app stop when the app is limited, revoked or loses its rights, and their runs are
// cancelled. Automations that a person has enabled since then continue.
func TestAutomationsOfApp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(s *fixture, user, app teams.Actor)
		later  bool // whether the automation stops only when a run is due
	}{
		"limited":        {change: func(s *fixture, _, app teams.Actor) { s.Limit(app, grants.Limits{Emails: 1000}) }},
		"needs approval": {change: func(s *fixture, _, app teams.Actor) { s.Limit(app, grants.Limits{Approval: true}) }},
		"revoked": {change: func(s *fixture, _, app teams.Actor) {
			_, err := s.Grants.Revoke(s.T.Context(), app.TeamID, app.ID, grants.FromAPI)
			s.Must(err)
		}},
		"demoted": {later: true, change: func(s *fixture, user, _ teams.Actor) { s.SetRole(user, teams.Viewer) }},
		"left": {later: true, change: func(s *fixture, user, _ teams.Actor) {
			s.Must(s.Node.Members.Leave(s.T.Context(), user.TeamID, user.ID))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *fixture) {
				s.Grants.OnStop = s.a.StopOfApp
				user := s.Member(s.Acme.TeamID, "ann@acme.example", teams.Admin)
				app, _ := s.Connect(user, "automations:write", grants.Limits{})
				steps := []string{trigger("joined"), step("wait", engine.Delay, `{"duration": "1 hour"}`), sends("mail")}
				of := s.graph(automations.NewAutomation{By: app.Ref()}, chain(steps), steps...)
				own := s.graph(automations.NewAutomation{By: s.Acme.Ref()}, chain(steps), steps...)
				s.happens("joined", s.contact("jo@reader.example"), "")
				s.work()
				c.change(s, user, app)
				wantListed(s, app, c.later, !c.later)
				s.pass(time.Hour)
				s.work()
				s.mustRun(of, "cancelled(automation_stopped): start wait=skipped(automation_stopped)")
				s.mustRun(own, "completed: start wait mail")
				wantListed(s, app, false, true)
				if n := s.Count(`SELECT COUNT(*) FROM emails`); n != 1 {
					t.Errorf("%d emails", n)
				}

				enabled := automations.Enabled
				_, err := s.a.Update(t.Context(), s.Acme.TeamID, of, automations.Change{Status: &enabled, By: s.Acme.Ref()})
				s.Must(err)
				s.happens("joined", s.contact("al@reader.example"), "")
				s.work()
				s.pass(time.Hour)
				s.work()
				if n := s.Count(`SELECT COUNT(*) FROM emails`); n != 3 {
					t.Errorf("%d emails after a person enabled the automation", n)
				}
				if all, err := s.a.OfApps(t.Context(), s.Acme.TeamID, []string{app.ID}); err != nil || len(all) != 0 {
					t.Errorf("%v, %v", all, err)
				}
			})
		})
	}
}

// wantListed checks the state of the app's only automation.
func wantListed(s *fixture, app teams.Actor, enabled, halted bool) {
	s.T.Helper()
	all, err := s.a.OfApps(s.T.Context(), s.Acme.TeamID, []string{dbtest.ID("another"), app.ID})
	s.Must(err)
	if len(all) != 1 || all[0].Enabled != enabled || all[0].Halted != halted || all[0].Name != "Test" {
		s.T.Errorf("%+v", all)
	}
}
