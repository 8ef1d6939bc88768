package delivery

import (
	"testing"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

// The job of an email that is gone ends, and nothing is sent.
func TestDeliverWhatIsGone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		h := newHouse(t, d, n.config(1), n.dns)
		id := h.send(address(1))
		j := jobs.Job{Kind: emails.DeliveryKind, TeamID: h.by.TeamID, Attempt: 1}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			for _, table := range []string{"email_bodies", "email_recipients"} {
				tx.Queue(t.Context(), `DELETE FROM `+table+` WHERE email_id = $1`, id)
			}
			tx.Queue(t.Context(), `DELETE FROM emails WHERE id = $1`, id)
			return tx.QueryRow(t.Context(), `UPDATE jobs SET attempt = 1, holder = 'a worker' WHERE kind = $1 RETURNING id, lane, payload`,
				j.Kind).Scan(&j.ID, &j.Lane, &j.Payload)
		}); err != nil {
			t.Fatal(err)
		}
		if err := h.service.Kind().Handle(t.Context(), j); err != nil || h.jobsLeft() != 0 || mx.Connections() != 0 {
			t.Errorf("%v; %d jobs are left, %d connections", err, h.jobsLeft(), mx.Connections())
		}
	})
}
