package broadcasts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// An email for a contact that was deleted while the email waited is canceled with the reason contact_deleted. The
// contact counts as left out. The email is not sent if a new contact has the address, even if the new contact is in the
// segment and subscribed.
func TestDeletedContactIsLeftOut(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		ctx, team := t.Context(), s.Acme.TeamID
		const n = 12
		id := s.entered(n)
		s.Must(s.b.Pause(ctx, team, id))
		stop := s.runAll()
		s.held(n, id)
		stop()
		gone := []string{"r0@reader.example", "r1@reader.example", "r2@reader.example"}
		var ids []string
		for _, address := range gone {
			at := s.contactOf(address)
			s.change(at, contacts.Change{Unsubscribed: new(true)})
			s.remove(at)
			ids = append(ids, s.emailTo(id, address))
		}
		s.join(gone[0])
		s.newcomer(gone[1], contacts.Change{Unsubscribed: new(false)})
		s.runAll()
		s.Must(s.b.Resume(ctx, s.Acme, id))
		s.until(id, broadcasts.Sent)

		for i, emailID := range ids {
			if e := s.Email(emailID); e.LastEvent != "canceled" {
				t.Errorf("the email to %s is %s", gone[i], e.LastEvent)
			}
			timeline, _, err := s.Emails.Timeline(ctx, team, emailID, page.Page{})
			s.Must(err)
			last := timeline[len(timeline)-1]
			if last.Type != "canceled" || last.Recipient != gone[i] || !strings.Contains(last.Data, `"contact_deleted"`) {
				t.Errorf("the timeline ends with %+v", last)
			}
		}
		s.mustCount(len(gone), `SELECT COUNT(*) FROM emails WHERE last_event = 11 /* canceled */`)
		s.mustCount(n-len(gone), `SELECT COUNT(*) FROM email_events WHERE outcome IS NOT NULL`)
		s.mustCount(n-len(gone), `SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`)
		r, err := s.b.Results(ctx, team, id)
		s.Must(err)
		if want := (broadcasts.Tally{Entered: 9, Sent: 9, Delivered: 9}); r.Tally != want {
			t.Errorf("results %+v", r.Tally)
		}
		if !maps.Equal(r.LeftOut, map[string]int64{"contact_deleted": 3}) {
			t.Errorf("left out %v", r.LeftOut)
		}
		all, _, _, err := s.b.Recipients(ctx, team, id, broadcasts.RecipientQuery{Type: "left_out"}, page.Page{Limit: 10})
		s.Must(err)
		var listed []string
		for _, one := range all {
			if one.Reason != "contact_deleted" || !one.Deleted {
				t.Errorf("%+v", one)
			}
			listed = append(listed, one.Address)
		}
		if slices.Sort(listed); !slices.Equal(listed, gone) {
			t.Errorf("listed are %v", listed)
		}
	})
}

// emailTo returns the id of a broadcast's email to an address.
func (s *sender) emailTo(broadcastID, address string) (emailID string) {
	s.T.Helper()
	s.Must(s.DB.QueryRow(s.T.Context(), `SELECT email_id FROM broadcast_recipients WHERE broadcast_id = $1
		AND address = $2`, db.ID(broadcastID), address).Scan((*db.ID)(&emailID)))
	return emailID
}
