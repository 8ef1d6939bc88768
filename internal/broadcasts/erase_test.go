package broadcasts_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/broadcasts"
	"github.com/postrider/postrider/internal/erasure"
	"github.com/postrider/postrider/internal/events"
)

// An address is erased from the recipients, of the teams that are meant; old recipients go, and the broadcast keeps its
// numbers; a team takes all of it along.
func TestErasing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		id := s.entered(700)
		s.Happen(events.Event{TeamID: s.Acme.TeamID, EmailID: s.emailsOf(id)[1], BroadcastID: id, Type: events.EmailClicked,
			Data: &events.Click{Link: "https://acme.example/"}})
		a, err := erasure.Parse("R1@reader.example")
		s.Must(err)
		for _, c := range []struct {
			scope       erasure.Scope
			found, left int
		}{{erasure.Scope{Teams: []string{s.Other.TeamID}}, 0, 1},
			{erasure.Scope{Teams: []string{s.Acme.TeamID}, DryRun: true}, 1, 1},
			{erasure.Scope{Teams: []string{s.Acme.TeamID}}, 1, 0}} {
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
