package automations_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// dayPasses simulates that the runs have waited for their sender's domain for a day.
func (s *fixture) dayPasses() {
	s.T.Helper()
	s.Update(func(tx *db.Tx) error {
		tx.Queue(s.T.Context(), `UPDATE jobs SET run_at = 0, payload = SUBSTR(payload, 1, 36) || ' 1 ' || 'x'
			WHERE kind = 'automations.run' AND held <> ''`)
		return nil
	})
}

// A run waits at a step whose sender's domain was lost, and continues as soon as the domain is back. After a day, or if
// another team may send from the domain, the step fails.
func TestRunWaitsForDomain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		sending := func(enabled bool) {
			s.Must(s.Domains.Update(ctx, team, s.Sender.ID, domains.Change{Capabilities: domains.Capabilities{
				Sending: new(enabled), Receiving: new(true)}}))
		}
		two := domains.NewDomain{Name: "two.example"}
		remove := func(teamID string) {
			d, err := s.Domains.AddVerified(ctx, teamID, two)
			s.Must(err)
			s.Must(s.Domains.Delete(ctx, teamID, d.ID))
		}
		wake := func() {
			stop := s.Run(s.Emails.Kinds()...)
			testnode.Until(t, "the runs are released", func() bool {
				return s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'emails.wake' OR held <> ''`) == 0
			})
			stop()
		}
		s.Verified(team, two)
		fromTwo := step("x", engine.SendEmail, `{"template": {"id": "hello"}, "from": "a@two.example"}`)
		for i, c := range []struct {
			name, step string
			lose, then func()
			want       string
		}{
			{"deleted and back", fromTwo, func() { remove(team) }, func() { s.Verified(team, two); wake() },
				"completed: start x"},
			{"disabled and back", sends("x"), func() { sending(false) }, func() {
				sending(true)
				s.Verified(team, domains.NewDomain{Name: testnode.Domain})
				wake()
			}, "completed: start x"},
			{"deleted for a day", fromTwo, func() { remove(team) }, s.dayPasses,
				"failed(domain_not_found): start x=failed(domain_not_found)"},
			{"disabled for a day", sends("x"), func() { sending(false) }, func() {
				s.dayPasses()
				s.work()
				sending(true)
				s.Verified(team, domains.NewDomain{Name: testnode.Domain})
			}, "failed(domain_sending_disabled): start x=failed(domain_sending_disabled)"},
			{"taken over", fromTwo, func() { remove(team) }, func() { s.Verified(s.Other.TeamID, two); wake() },
				"failed(domain_not_found): start x=failed(domain_not_found)"},
		} {
			if c.name == "deleted for a day" || c.name == "taken over" {
				s.Verified(team, two)
			}
			id := s.automation(trigger(fmt.Sprint("event", i)), c.step)
			c.lose()
			s.happens(fmt.Sprint("event", i), ann, "")
			s.work()
			s.mustRun(id, "running: start")
			if n := s.Count(`SELECT COUNT(*) FROM jobs WHERE held <> '' AND run_at > $1`,
				s.DB.Now().Add(23*time.Hour).UnixMicro()); n != 1 {
				t.Errorf("%s: %d runs wait for a day", c.name, n)
			}
			c.then()
			s.work()
			s.mustRun(id, c.want)
		}
		s.consistent()
	})
}
