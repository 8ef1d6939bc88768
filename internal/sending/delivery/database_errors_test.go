package delivery

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// If the database fails at any point during a delivery, the delivery either fails before contacting a host or records
// the host's answer.
func TestDeliverWithoutDatabase(t *testing.T) {
	for name, tries := range map[string]int{"first try": 0, "later": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, proxy := dbtest.Proxied(t, 0)
			mx := smtptest.NewServer(t, smtptest.Config{})
			n := one(mx.Addr)
			f := newFixture(t, d, n.config(5), n.dns)
			handle := f.service.Kind().Handle
			var id string
			var j jobs.Job
			heard := 0
			failed := dbtest.EachTorn(t, proxy, func() {
				id = f.send(address(1))
				j = jobs.Job{Kind: emails.DeliveryKind, TeamID: f.Acme.TeamID, Attempt: 1 + tries, Tries: tries,
					CreatedAt: time.Now()}
				if err := d.Update(t.Context(), func(tx *db.Tx) error {
					return tx.QueryRow(t.Context(),
						`UPDATE jobs SET attempt = $3, holder = id WHERE kind = $1 AND payload LIKE $2
						RETURNING id, lane, payload`, j.Kind, "%"+id+"%", j.Attempt).Scan((*db.ID)(&j.ID), &j.Lane, &j.Payload)
				}); err != nil {
					t.Fatal(err)
				}
				d.Hint("domains", f.Sender.ID) // makes the cached signing keys expire
				heard = len(mx.Messages())
			}, func() error { return handle(t.Context(), j) }, func(skip int, err error) {
				var left int
				if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE id = $1`, db.ID(j.ID)).
					Scan(&left); err != nil {
					t.Fatal(err)
				}
				state, messages := f.state(id), len(mx.Messages())-heard
				done, undone := state == emails.Delivered && messages == 1 && left == 0, state == emails.Queued && messages == 0 &&
					left == 1
				if !done && (err == nil || !undone) {
					t.Errorf("answer %d torn: %v; the email is %s, the host has %d messages, %d jobs are left", skip, err, state,
						messages, left)
				}
			})
			if failed < 2 {
				t.Errorf("%d deliveries failed: the test reaches too little", failed)
			}
		})
	}
}
