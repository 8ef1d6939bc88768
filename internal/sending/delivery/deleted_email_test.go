package delivery

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The delivery job for a deleted email ends without sending a message.
func TestDeliverWhatIsGone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(1), n.dns)
		id := f.send(address(1))
		j := jobs.Job{Kind: emails.DeliveryKind, TeamID: f.Acme.TeamID, Attempt: 1}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			for _, table := range []string{"email_bodies", "email_recipients"} {
				tx.Queue(t.Context(), `DELETE FROM `+table+` WHERE email_id = $1`, db.ID(id))
			}
			tx.Queue(t.Context(), `DELETE FROM emails WHERE id = $1`, db.ID(id))
			return tx.QueryRow(t.Context(),
				`UPDATE jobs SET attempt = 1, holder = id WHERE kind = $1 RETURNING id, lane, payload`,
				j.Kind).Scan((*db.ID)(&j.ID), &j.Lane, &j.Payload)
		}); err != nil {
			t.Fatal(err)
		}
		if err := f.service.Kind().Handle(t.Context(), j); err != nil || f.jobsLeft() != 0 || mx.Connections() != 0 {
			t.Errorf("%v; %d jobs are left, %d connections", err, f.jobsLeft(), mx.Connections())
		}
	})
}

// An email without stored content fails with the reason content_missing. In normal operation, content is never missing.
func TestDeliverWithoutContent(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := one("127.0.0.1:1")
		f := newFixture(t, d, n.config(1), n.dns)
		emailID := f.send("a@"+destination, "b@"+destination)
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `DELETE FROM email_bodies WHERE email_id = $1`, db.ID(emailID))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		f.run()
		f.wait(emailID, events.EmailFailed)
		e, err := f.Emails.Get(t.Context(), f.Acme.TeamID, emailID)
		if err != nil || e.LastEvent != emails.Failed {
			t.Errorf("the email is %s, %v", e.LastEvent, err)
		}
		timeline, _, err := f.Emails.Timeline(t.Context(), f.Acme.TeamID, emailID, page.Page{})
		if err != nil || !strings.Contains(timeline[len(timeline)-1].Data, "content_missing") {
			t.Errorf("its timeline is %+v, %v", timeline, err)
		}
	})
}
