package emails_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
)

// A scheduled email is of the domain that it was accepted for, and not of one that the team added by that name later.
// It fails, too, when its team is suspended meanwhile.
func TestReleaseRefuses(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s := hello("a@one.example")
		s.ScheduledAt = "in 2 hours"
		fails := func(reason string, spoil func() error) {
			t.Helper()
			id := w.send(t, s)
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if err := w.d.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE id = $1`, id)
				tx.Queue(t.Context(), `UPDATE jobs SET run_at = 1 WHERE dedupe = $1`, id)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			w.release(t, func() bool { return w.state(t, id) != emails.Scheduled })
			timeline, err := w.emails.Timeline(t.Context(), w.who.TeamID, id)
			if err != nil || w.state(t, id) != emails.Failed || !strings.Contains(timeline[len(timeline)-1].Data, reason) {
				t.Errorf("it is %s, and not failed by %s: %+v, %v", w.state(t, id), reason, timeline, err)
			}
		}
		fails("domain_not_verified", func() error {
			if err := w.domains.Delete(t.Context(), w.who.TeamID, w.domainID); err != nil {
				return err
			}
			_, err := w.domains.AddVerified(t.Context(), w.who.TeamID, domains.NewDomain{Name: "acme.example"})
			return err
		})
		fails("account_suspended", func() error { return w.teams.SetSuspended(t.Context(), w.who.TeamID, true) })
	})
}
