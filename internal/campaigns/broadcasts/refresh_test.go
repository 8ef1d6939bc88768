package broadcasts_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// contactOf returns the id of the contact with the given address in the team Acme.
func (s *sender) contactOf(address string) string {
	s.T.Helper()
	c, err := s.Contacts.Get(s.T.Context(), s.Acme.TeamID, address)
	s.Must(err)
	return c.ID
}

// change changes a contact in the team Acme.
func (s *sender) change(contactID string, c contacts.Change) {
	s.T.Helper()
	_, err := s.Contacts.Update(s.T.Context(), s.Acme.TeamID, contactID, c)
	s.Must(err)
}

// rename changes the address of a contact in the team Acme.
func (s *sender) rename(contactID, address string) {
	s.T.Helper()
	s.change(contactID, contacts.Change{Address: &address})
}

// newcomer creates a contact in the team Acme that is in no segment.
func (s *sender) newcomer(address string, c contacts.Change) {
	s.T.Helper()
	_, created, err := s.Contacts.Upsert(s.T.Context(), s.Acme.TeamID, address, c)
	s.Must(err)
	if !created {
		s.T.Fatalf("there is a contact %s already", address)
	}
}

func (s *sender) remove(contactID string) {
	s.T.Helper()
	_, err := s.Contacts.Delete(s.T.Context(), s.Acme.TeamID, contactID)
	s.Must(err)
}

// became returns the state and reason of each recipient of a broadcast, keyed by address.
func (s *sender) became(broadcastID string) map[string]string {
	s.T.Helper()
	rows, err := s.DB.Query(s.T.Context(), `SELECT address, state, reason FROM broadcast_recipients
		WHERE broadcast_id = $1`, db.ID(broadcastID))
	found := map[string]string{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var address, reason string
		var number int16
		if err := r.Scan(&address, &number, &reason); err != nil {
			return none, err
		}
		state, err := broadcasts.StateName(number)
		found[address] = strings.TrimSpace(state + " " + reason)
		return none, err
	})
	s.Must(err)
	return found
}

// A waiting email is not sent if its contact has opted out, even if the contact's address has changed. The email is
// also not sent if another contact that now has the recipient's address has opted out. If the email's contact was
// deleted, the email is never sent, even if a new contact has the address.
func TestContactThatChangesWhileItsEmailWaits(t *testing.T) {
	t.Parallel()
	in, out := contacts.OptIn, contacts.OptOut
	for _, topic := range []struct {
		byDefault contacts.Subscription // "" for a broadcast without a topic
		left      string                // expected outcome if the contact has unsubscribed
	}{
		{"", "failed contact_unsubscribed"},
		{in, "failed topic_opted_out"},
		{out, "failed topic_opted_out"},
	} {
		t.Run("default "+string(topic.byDefault), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				to := s.readers(8)
				at := make([]string, len(to))
				draft, leave, none := s.news(), contacts.Change{Unsubscribed: new(true)}, contacts.Change{}
				var join contacts.Change
				if topic.byDefault != "" {
					made, err := s.Contacts.CreateTopic(t.Context(), s.Acme.TeamID, contacts.NewTopic{Name: "News",
						Default: topic.byDefault})
					s.Must(err)
					draft.TopicID = made.ID
					leave = contacts.Change{Topics: []contacts.Choice{{TopicID: made.ID, Subscription: out}}}
					join = contacts.Change{Topics: []contacts.Choice{{TopicID: made.ID, Subscription: in}}}
				}
				for i, address := range to {
					at[i] = s.contactOf(address)
					s.change(at[i], join)
				}
				id := s.draft(draft)
				s.send(id)
				s.enqueued(id, len(to))
				s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
				s.runAll()
				s.held(len(to), id)

				want := map[string]string{}
				for i, change := range []struct {
					do   func(contactID, address string)
					want string
				}{
					{func(string, string) {}, "delivered"},
					{func(c, a string) { s.rename(c, "new-"+a) }, "delivered"},
					{func(c, a string) { s.rename(c, "new-"+a); s.change(c, leave) }, topic.left},
					{func(c, a string) { s.rename(c, "new-"+a); s.newcomer(a, leave) }, topic.left},
					{func(c, a string) { s.rename(c, "new-"+a); s.newcomer(a, none) }, "delivered"},
					{func(c, _ string) { s.remove(c) }, "left_out contact_deleted"},
					{func(c, a string) { s.remove(c); s.newcomer(a, leave) }, "left_out contact_deleted"},
					{func(c, a string) { s.remove(c); s.newcomer(a, join) }, "left_out contact_deleted"},
				} {
					change.do(at[i], to[i])
					want[to[i]] = change.want
				}
				s.Must(s.b.Resume(t.Context(), s.Acme, id))
				s.until(id, broadcasts.Sent)
				if diff := cmp.Diff(want, s.became(id)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// A contact that is deleted after its page has been read gets no email and no row. If a contact's address changes after
// its page has been read, the email goes to the new address.
func TestContactThatChangesAfterItsPageWasRead(t *testing.T) {
	t.Parallel()
	for _, withTopic := range []bool{false, true} {
		t.Run(fmt.Sprint("topic ", withTopic), func(t *testing.T) {
			t.Parallel()
			dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
				s := newSender(t, testnode.New(t, d, testnode.Options{}))
				_, err := s.Contacts.CreateProperty(t.Context(), s.Acme.TeamID, contacts.NewProperty{Name: "plan",
					Type: scalar.String})
				s.Must(err)
				to := s.readers(8)
				var at []string
				for _, address := range to {
					at = append(at, s.contactOf(address))
				}
				draft, leave, reason := s.news(), contacts.Change{Unsubscribed: new(true)}, "contact_unsubscribed"
				draft.HTML = new(`<p>{{{plan}}} to {{{EMAIL}}}</p>`)
				if withTopic {
					made, err := s.Contacts.CreateTopic(t.Context(), s.Acme.TeamID, contacts.NewTopic{Name: "News",
						Default: contacts.OptIn})
					s.Must(err)
					draft.TopicID, reason = made.ID, "topic_opted_out"
					leave = contacts.Change{Topics: []contacts.Choice{{TopicID: made.ID, Subscription: contacts.OptOut}}}
				}
				id := s.draft(draft)
				s.send(id)
				trace.Before("FROM contact_texts v", func() { // by now, the page's contacts have been read
					s.remove(at[0])
					a, err := erasure.Parse(to[1])
					s.Must(err)
					_, err = contacts.EraseAddress(t.Context(), d, a, erasure.Scope{Teams: []string{s.Acme.TeamID}}, true)
					s.Must(err)
					s.rename(at[2], "new-"+to[2])
					s.rename(at[3], "new-"+to[3])
					s.change(at[3], leave)
					s.change(at[4], leave)
					s.rename(at[5], "new-"+to[5])
					_, err = s.Suppressions.Add(t.Context(), s.Acme.TeamID, []string{to[5], "new-" + to[6]})
					s.Must(err)
					s.rename(at[6], "new-"+to[6])
				})
				s.Run(s.b.Kinds()...)
				testnode.Until(t, "all are entered", func() bool {
					return s.Count(`SELECT COUNT(*) FROM broadcasts WHERE phase = 'settle'`) == 1
				})
				want := map[string]string{"new-" + to[2]: "waiting", "new-" + to[3]: "left_out " + reason,
					to[4]: "left_out " + reason, "new-" + to[5]: "waiting", "new-" + to[6]: "left_out suppressed",
					to[7]: "waiting"}
				if diff := cmp.Diff(want, s.became(id)); diff != "" {
					t.Error(diff)
				}
				s.mustCount(3, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1`, db.ID(id))
				s.mustCount(3, `SELECT COUNT(*) FROM contact_engagement WHERE mailed = 1`)
				r, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
				s.Must(err)
				if r.Entered != 3 || !maps.Equal(r.LeftOut, map[string]int64{reason: 2, "suppressed": 1}) {
					t.Errorf("left out are %v", r.LeftOut)
				}
				var emailID string
				s.Must(s.DB.QueryRow(t.Context(), `SELECT email_id FROM broadcast_recipients WHERE broadcast_id = $1
					AND contact_id = $2`, db.ID(id), db.ID(at[2])).Scan((*db.ID)(&emailID)))
				if e := s.Email(emailID); e.To[0] != "new-"+to[2] || !strings.Contains(*e.HTML, "to new-"+to[2]) {
					t.Errorf("the email to who has another address is to %s: %s", e.To, *e.HTML)
				}
			})
		})
	}
}

// A held-out contact that is deleted after its page has been read gets no row. A held-out contact whose address has
// changed gets a row with the new address.
func TestHeldOutAfterItsPageWasRead(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newSender(t, testnode.New(t, d, testnode.Options{}))
		_, err := s.Contacts.CreateProperty(t.Context(), s.Acme.TeamID, contacts.NewProperty{Name: "plan",
			Type: scalar.String})
		s.Must(err)
		const n = 40
		to := s.readers(n)
		draft := s.news()
		draft.HTML = new(`<p>{{{plan}}}`)
		draft.Options.HoldOut = 50
		id := s.draft(draft)
		s.send(id)
		trace.Before("FROM contact_texts v", func() {
			for i, address := range to {
				if at := s.contactOf(address); i%2 == 0 {
					s.remove(at)
				} else {
					s.rename(at, "new-"+address)
				}
			}
		})
		s.Run(s.b.Kinds()...)
		testnode.Until(t, "all are entered", func() bool {
			return s.Count(`SELECT COUNT(*) FROM broadcasts WHERE phase = 'settle'`) == 1
		})
		s.mustCount(n/2, `SELECT COUNT(*) FROM broadcast_recipients WHERE broadcast_id = $1 AND address LIKE 'new-%'`,
			db.ID(id))
		s.mustCount(n/2, `SELECT COUNT(*) FROM broadcast_recipients WHERE broadcast_id = $1`, db.ID(id))
		b := s.broadcast(id)
		if held := s.Count(`SELECT COUNT(*) FROM broadcast_recipients WHERE reason = 'hold_out'`); held == 0 ||
			b.LeftOut != int64(held) || b.Entered != int64(n/2-held) {
			t.Errorf("%d are held out, and the broadcast has entered %d and left out %d", held, b.Entered, b.LeftOut)
		}
	})
}
