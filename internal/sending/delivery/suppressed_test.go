package delivery

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
)

// due makes the delivery job for a delayed email due now.
func (f *fixture) due(emailID string) {
	f.T.Helper()
	var jobID string
	err := f.DB.Update(f.T.Context(), func(tx *db.Tx) error {
		return tx.QueryRow(f.T.Context(), `UPDATE jobs SET parked = $2 WHERE kind = $3 AND payload LIKE $1 RETURNING id`,
			"%"+emailID+"%", true, emails.DeliveryKind).Scan((*db.ID)(&jobID))
	})
	if err == nil {
		err = f.Queue.Unpark(f.T.Context(), jobID)
	}
	if err != nil {
		f.T.Fatal(err)
	}
}

// A recipient that is suppressed between two tries receives no email, whether the cause is a manual entry, a bounce or
// a complaint. The other recipients receive the email.
func TestSuppressedBetweenTries(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"manual", "bounce", "complaint"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				to, other := way+"@"+destination, "other@"+destination
				var mu sync.Mutex
				open, heard := false, 0
				mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, rcpt string) string {
					mu.Lock()
					defer mu.Unlock()
					if rcpt == to {
						heard++
					}
					switch {
					case !open:
						return "451 4.3.0 later"
					case strings.HasPrefix(rcpt, "bounce@"):
						return "550 5.1.1 no such user"
					}
					return ""
				}})
				n := one(mx.Addr)
				cfg := n.config(1)
				cfg.Schedule = []time.Duration{time.Hour, time.Hour}
				f := newFixture(t, d, cfg, n.dns).run()
				alone, both := f.send(to), f.send(other, to)
				f.wait(alone, events.EmailDelayed)
				f.wait(both, events.EmailDelayed, events.EmailDelayed)
				mu.Lock()
				open = true
				mu.Unlock()
				reason := f.suppress(way, to)
				mu.Lock()
				asked := heard
				mu.Unlock()
				f.due(alone)
				if diff := cmp.Diff([]string{"sent", "delivery_delayed " + to, "suppressed " + to},
					f.wait(alone, events.EmailSuppressed)); diff != "" {
					t.Error(diff)
				}
				if data := f.event(alone, events.EmailSuppressed).Data.(*events.Suppressed); data.Reason != reason ||
					data.Type != "OnAccountSuppressionList" {
					t.Errorf("suppressed because of %+v", data)
				}
				f.due(both)
				f.wait(both, events.EmailSuppressed, events.EmailDelivered)
				mu.Lock()
				defer mu.Unlock()
				if heard != asked {
					t.Errorf("the host heard of a suppressed address %d times", heard-asked)
				}
				if f.state(alone) != emails.Suppressed || f.state(both) != emails.Delivered || f.jobsLeft() != 0 {
					t.Errorf("states %s and %s, %d jobs", f.state(alone), f.state(both), f.jobsLeft())
				}
				if a := f.attempts(both); len(a) != 2 || !slices.Equal(a[1].Recipients, []string{other}) {
					t.Errorf("attempts %+v", a)
				}
			})
		})
	}
}

// suppress adds an address to the suppression list in the given way: manual, bounce or complaint. The returned string
// is the reason that the event must contain.
func (f *fixture) suppress(way, to string) (reason string) {
	f.T.Helper()
	switch way {
	case "manual":
		if _, err := f.Suppressions.Add(f.T.Context(), f.Acme.TeamID, []string{strings.ToUpper(to)}); err != nil {
			f.T.Fatal(err)
		}
	case "bounce":
		f.wait(f.send(to), events.EmailBounced)
	case "complaint":
		x := f.send(to)
		f.wait(x, events.EmailDelivered)
		if err := f.DB.Update(f.T.Context(), func(tx *db.Tx) error {
			return f.service.p.Recorder.Record(f.T.Context(), tx, events.Event{TeamID: f.Acme.TeamID, EmailID: x,
				DomainID: f.Sender.ID,
				Type:     events.EmailComplained, Recipient: to, Data: &events.Complaint{}})
		}); err != nil {
			f.T.Fatal(err)
		}
		return "previous_complaint"
	}
	return "previous_bounce"
}

// The statement that loads an email finds suppressions by their index. Only if it finds one does delivery make another
// look-up. The age of the email does not matter.
func TestSuppressionsOfAFirstTry(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(1), n.dns)
		const load = "FROM suppressions s WHERE s.team_id = e.team_id"
		asked := func() (all []db.Statement) { // the look-ups that have a statement of their own
			for _, s := range trace.Take() {
				if strings.Contains(s.SQL, "FROM suppressions") && !strings.Contains(s.SQL, load) {
					all = append(all, s)
				}
			}
			return all
		}
		late := f.send(address(1), address(2))
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET created_at = created_at - $1`, time.Hour.Microseconds())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		f.suppress("manual", address(2))
		f.suppressMany(1000)
		asked()
		f.run()
		f.wait(late, events.EmailSuppressed, events.EmailDelivered)
		all := asked()
		if len(all) != 1 {
			t.Fatalf("the suppressions were asked %d times for an email that waited", len(all))
		}
		if plan := trace.Plan(t, all[0]); !strings.Contains(plan, "suppressions_address") {
			t.Errorf("the look does not go by its index:\n%s", plan)
		}
		f.service.suppressionsMaxAge = time.Hour // a slow machine must not cause a look-up
		fresh := f.send(address(3))
		f.wait(fresh, events.EmailDelivered)
		if all := asked(); len(all) != 1 { // the only look-up was made when the email was accepted
			t.Errorf("the suppressions were asked %d times for an email that went out at once", len(all))
		}
		if got := mx.Messages(); len(got) != 2 || !slices.Equal(got[0].To, []string{address(1)}) {
			t.Errorf("messages %+v", got)
		}
		loads := 0
		f.wait(f.send(address(4)), events.EmailDelivered)
		for _, s := range trace.Take() {
			if !strings.Contains(s.SQL, load) {
				continue
			}
			loads++
			if plan := trace.Plan(t, s); !strings.Contains(plan, "suppressions_address") ||
				strings.Contains(plan, "contacts") {
				t.Errorf("the load does not go by its index, or reads contacts:\n%s", plan)
			}
		}
		if loads != 1 {
			t.Errorf("the email was loaded %d times", loads)
		}
	})
}

// toContact enqueues an email to a contact in the same way as a broadcast; topicID may be "".
func (f *fixture) toContact(address, topicID string) (contactID, emailID string) {
	f.T.Helper()
	ctx := f.T.Context()
	at, _, err := f.Contacts.Upsert(ctx, f.Acme.TeamID, address, contacts.Change{})
	f.Must(err)
	of := content.Content{TeamID: f.Acme.TeamID, From: "hello@" + from, Subject: "Hi", HTML: new("<p>Hello</p>")}
	f.Update(func(tx *db.Tx) error { return f.Contents.Add(ctx, tx, &of) })
	m, err := f.Emails.Mailing(ctx, f.Acme, of.ID, false)
	f.Must(err)
	m.TopicID = topicID
	f.Update(func(tx *db.Tx) error {
		got, err := f.Emails.Enqueue(ctx, tx, m, []emails.MailingRecipient{{Address: at.Address, ContactID: at.ID}})
		if err == nil {
			emailID, err = got[0].ID, got[0].Err
		}
		return err
	})
	return at.ID, emailID
}

// An email is not sent if its recipient has refused it by the time when the email is loaded, even a moment after the
// email was enqueued: the contact was deleted, has unsubscribed or opted out, or the address was suppressed.
func TestRefusedJustAfterTheEmailWasEnqueued(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(1), n.dns)
		ctx, team := t.Context(), f.Acme.TeamID
		topic := func(byDefault contacts.Subscription) string {
			made, err := f.Contacts.CreateTopic(ctx, team, contacts.NewTopic{Name: "News", Default: byDefault})
			f.Must(err)
			return made.ID
		}
		choose := func(idOrAddress, topicID string, s contacts.Subscription) {
			_, _, err := f.Contacts.Upsert(ctx, team, idOrAddress, contacts.Change{Topics: []contacts.Choice{
				{TopicID: topicID, Subscription: s}}})
			f.Must(err)
		}
		news, beta, gone := topic(contacts.OptIn), topic(contacts.OptOut), topic(contacts.OptIn)
		remove := func(contactID string) {
			_, err := f.Contacts.Delete(ctx, team, contactID)
			f.Must(err)
		}
		change := func(contactID string, c contacts.Change) {
			_, err := f.Contacts.Update(ctx, team, contactID, c)
			f.Must(err)
		}
		type sent struct{ id, want string }
		var all []sent
		i := 0
		contact := func(topicID, want string, act func(contactID, address string)) {
			i++
			to := address(i)
			at, x := f.toContact(to, topicID)
			act(at, to)
			all = append(all, sent{x, strings.TrimSuffix(want+" "+to, " ")})
		}
		single := func(topicID, want string, act func(address string)) {
			i++
			to := address(i)
			e := testnode.Hello(to)
			e.TopicID = topicID
			x := f.Send(e)
			act(to)
			all = append(all, sent{x, want + " " + to})
		}
		contact("", "delivered", func(string, string) {})
		contact("", "canceled contact_deleted", func(at, _ string) { remove(at) })
		contact("", "canceled contact_deleted", func(at, to string) { remove(at); f.toContact(to, "") })
		contact("", "failed contact_unsubscribed", func(at, _ string) {
			change(at, contacts.Change{Unsubscribed: new(true)})
		})
		contact("", "suppressed", func(_, to string) { f.suppress("manual", to) })
		contact(news, "delivered", func(string, string) {})
		contact(news, "failed topic_opted_out", func(_, to string) { choose(to, news, contacts.OptOut) })
		contact(gone, "failed topic_deleted", func(string, string) {})
		contact(news, "canceled contact_deleted", func(at, _ string) { remove(at) })
		contact("", "failed contact_unsubscribed", func(at, to string) { // the address belongs to another contact now
			change(at, contacts.Change{Address: new("moved-" + to)})
			_, _, err := f.Contacts.Upsert(ctx, team, to, contacts.Change{Unsubscribed: new(true)})
			f.Must(err)
		})
		single("", "delivered", func(string) {})
		single("", "suppressed", func(to string) { f.suppress("manual", to) })
		single(news, "delivered", func(string) {})
		single(news, "failed topic_opted_out", func(to string) { choose(to, news, contacts.OptOut) })
		single(news, "failed contact_unsubscribed", func(to string) {
			_, _, err := f.Contacts.Upsert(ctx, team, to, contacts.Change{Unsubscribed: new(true)})
			f.Must(err)
		})
		choose(address(i+1), beta, contacts.OptIn)
		single(beta, "delivered", func(string) {})
		choose(address(i+1), beta, contacts.OptIn)
		single(beta, "failed topic_opted_out", func(to string) { choose(to, beta, contacts.OptOut) })
		f.Must(f.Contacts.DeleteTopic(ctx, team, gone))
		f.run()
		testnode.Until(t, "all emails are settled", func() bool {
			return !slices.ContainsFunc(all, func(s sent) bool { return strings.HasPrefix(f.last(s.id), "queued") })
		})
		for i, s := range all {
			if got := f.last(s.id); got != s.want {
				t.Errorf("email %d: %s, not %s", i+1, got, s.want)
			}
		}
	})
}

// last returns an email's last event, with its reason and recipient.
func (f *fixture) last(emailID string) (text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.seen {
		if e.EmailID != emailID {
			continue
		}
		text = strings.TrimPrefix(string(e.Type), "email.")
		switch d := e.Data.(type) {
		case *events.Failed:
			text += " " + d.Reason
		case *events.Canceled:
			text += " " + d.Reason
		}
		text += " " + e.Recipient
	}
	return text
}

// suppressMany adds n addresses to the team's suppression list, so that the query planner chooses the right index.
func (f *fixture) suppressMany(n int) {
	f.T.Helper()
	err := f.DB.Update(f.T.Context(), func(tx *db.Tx) error {
		for i := range n {
			tx.Queue(f.T.Context(), `INSERT INTO suppressions (id, team_id, address, origin, source_id, created_at)
				VALUES ($1, $2, $3, 'manual', NULL, 0)`, db.ID(id.New()), db.ID(f.Acme.TeamID),
				fmt.Sprintf("filler%d@%s", i, destination))
		}
		_, err := tx.Exec(f.T.Context(), `ANALYZE suppressions`)
		return err
	})
	if err != nil {
		f.T.Fatal(err)
	}
}

// notifyingDNS is a DNS resolver that sends on a channel for each MX query.
type notifyingDNS struct {
	resolve.Fake
	asked chan struct{}
}

func (r notifyingDNS) MX(ctx context.Context, domain string) ([]resolve.MX, error) {
	r.asked <- struct{}{}
	return r.Fake.MX(ctx, domain)
}

// After a job has waited for its turn, it checks the suppressions again before it sends the message.
func TestSuppressedWhileItWaitsForATurn(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		n := one("")
		cfg := n.config(1)
		cfg.Dial = refuseDial(t)
		dns := notifyingDNS{n.dns, make(chan struct{}, 1)}
		f := newFixture(t, d, cfg, dns)
		f.service.suppressionsMaxAge = 0
		permits := int64(f.service.c.MaxConnections)
		if err := f.service.pool.permits.Acquire(t.Context(), "another", permits); err != nil {
			t.Fatal(err)
		}
		f.run()
		x := f.send(address(1), address(2))
		<-dns.asked
		f.suppress("manual", address(1))
		f.suppress("manual", address(2))
		f.service.pool.permits.Release("another", permits)
		if diff := cmp.Diff([]string{"suppressed " + address(1), "suppressed " + address(2)},
			f.wait(x, events.EmailSuppressed, events.EmailSuppressed)); diff != "" {
			t.Error(diff)
		}
		if f.jobsLeft() != 0 || len(f.attempts(x)) != 0 {
			t.Errorf("%d jobs are left, attempts %+v", f.jobsLeft(), f.attempts(x))
		}
	})
}
