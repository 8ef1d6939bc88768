package emails_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// A scheduled email fails if its domain was deleted, even if the team added a domain with the same name later. The
// email also fails if its team was suspended after the email was accepted.
func TestReleaseRefuses(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		s.ScheduledAt = "in 2 hours"
		fails := func(reason string, spoil func() error) {
			t.Helper()
			id := f.Send(s)
			if err := spoil(); err != nil {
				t.Fatal(err)
			}
			if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE id = $1`, id)
				tx.Queue(t.Context(), `UPDATE jobs SET run_at = 1 WHERE dedupe = $1`, id)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			f.release(t, func() bool { return f.state(id) != emails.Scheduled })
			timeline, _, err := f.Emails.Timeline(t.Context(), f.Acme.TeamID, id, page.Page{})
			if err != nil || f.state(id) != emails.Failed || !strings.Contains(timeline[len(timeline)-1].Data, reason) {
				t.Errorf("it is %s, and not failed by %s: %+v, %v", f.state(id), reason, timeline, err)
			}
		}
		fails("domain_not_verified", func() error {
			if err := f.Domains.Delete(t.Context(), f.Acme.TeamID, f.Sender.ID); err != nil {
				return err
			}
			_, err := f.Domains.AddVerified(t.Context(), f.Acme.TeamID, domains.NewDomain{Name: "acme.example"})
			return err
		})
		fails("account_suspended", func() error { return f.Teams.SetSuspended(t.Context(), f.Acme.TeamID, true) })
	})
}
