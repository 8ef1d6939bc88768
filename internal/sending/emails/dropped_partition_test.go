package emails_test

import (
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// An email is loaded, and its state is recorded, although the node believes that the email is in a partition that does
// not exist, as after another node has dropped the partition and kept the email.
func TestDroppedPartition(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		emailID := f.Send(hello("a@one.example"))
		believe := func() {
			f.DB.KnowPartitions([]db.Part{{Table: "emails", Name: "emails_gone", From: db.NoID,
				To: "ffffffff-ffff-ffff-ffff-ffffffffffff"}})
		}
		believe()
		o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID,
			EmailID: emailID, Domain: "one.example"})
		if err != nil || len(o.To) != 1 {
			t.Errorf("the email is loaded as %+v, %v", o, err)
		}
		believe()
		f.end(t, emailID, events.EmailDelivered, "a@one.example")
		if e := f.Email(emailID); e.LastEvent != emails.Delivered {
			t.Errorf("the email is %s", e.LastEvent)
		}
	})
}
