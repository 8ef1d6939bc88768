package emails_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// topical is a test node on which a team has two topics. Contacts are subscribed by default to the topic news but not
// to the topic beta.
type topical struct {
	*testnode.Node
	t          *testing.T
	news, beta contacts.Topic
	seen       testnode.Seen
}

func eachTopical(t *testing.T, f func(t *testing.T, w *topical)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		w := &topical{Node: n, t: t}
		for topic, byDefault := range map[*contacts.Topic]contacts.Subscription{&w.news: contacts.OptIn,
			&w.beta: contacts.OptOut} {
			made, err := n.Contacts.CreateTopic(t.Context(), n.Acme.TeamID, contacts.NewTopic{Name: "n", Default: byDefault})
			if err != nil {
				t.Fatal(err)
			}
			*topic = made
		}
		n.Recorder.Listen(&w.seen)
		f(t, w)
	})
}

// about returns a request to send an email with a topic.
func about(topic contacts.Topic, to ...string) emails.Send {
	e := testnode.Hello(to...)
	e.TopicID = topic.ID
	return e
}

// leave unsubscribes an address from a topic, as the unsubscribe link in an email does.
func (w *topical) leave(topic contacts.Topic, address string) {
	w.t.Helper()
	_, _, err := w.Contacts.Unsubscribe(w.t.Context(), contacts.Link{TeamID: w.Acme.TeamID, EmailID: id.New(),
		TopicID: topic.ID, Address: address})
	if err != nil {
		w.t.Fatal(err)
	}
}

// states returns the states of an email and of its recipients.
func (w *topical) states(emailID string) string {
	w.t.Helper()
	e, err := w.Emails.Get(w.t.Context(), w.Acme.TeamID, emailID)
	if err != nil {
		w.t.Fatal(err)
	}
	text := string(e.LastEvent)
	to, err := w.Emails.Recipients(w.t.Context(), w.Acme.TeamID, emailID)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range to {
		text += " " + r.Address[:strings.IndexByte(r.Address, '@')] + ":" + string(r.State)
	}
	return text
}

// failed returns the recipients that have failed since the last call, with the reasons.
func (w *topical) failed() (all []string) {
	for _, e := range w.seen.Take() {
		if d, ok := e.Data.(*events.Failed); ok {
			all = append(all, e.Recipient[:strings.IndexByte(e.Recipient, '@')]+" "+d.Reason)
		}
	}
	return all
}

// deliveries returns the delivery jobs for an email.
func (w *topical) deliveries(emailID string) []emails.Delivery {
	w.t.Helper()
	rows, err := w.DB.Query(w.t.Context(), `SELECT payload, lane FROM jobs WHERE kind = 'delivery' ORDER BY id`)
	all, err := db.Collect(rows, err, func(r db.Row) (d emails.Delivery, err error) {
		var payload, lane string
		if err := r.Scan(&payload, &lane); err != nil {
			return d, err
		}
		return emails.DecodeDelivery(payload, lane)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(d emails.Delivery) bool { return d.EmailID != emailID })
}

// composed returns an email's composed messages, one per delivery job, keyed by recipient.
func (w *topical) composed(emailID string) map[string]string {
	w.t.Helper()
	all := map[string]string{}
	for _, d := range w.deliveries(emailID) {
		for _, first := range []bool{true, false} { // a retry must produce the same message
			d.First = first
			o, err := w.Emails.Outgoing(w.t.Context(), d)
			if err != nil {
				w.t.Fatal(err)
			}
			text, err := w.Emails.Compose(w.t.Context(), o)
			if err != nil {
				w.t.Fatal(err)
			}
			to := strings.Join(o.To, " ")
			if before, ok := all[to]; ok && before != string(text) {
				w.t.Errorf("another try composes %s\nand the first %s", text, before)
			}
			all[to] = string(text)
		}
	}
	return all
}

// The subscription of each recipient is looked up. For each recipient to whom the email may not be sent, a failure with
// the reason is recorded. Every other recipient gets a separate message.
func TestTopicOfEachRecipient(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		w.leave(w.news, "out@x.example")
		if _, _, err := w.Contacts.Upsert(t.Context(), w.Acme.TeamID, "left@x.example",
			contacts.Change{Unsubscribed: new(true)}); err != nil {
			t.Fatal(err)
		}
		w.seen.Take()
		e := about(w.news, "In <in@x.example>", "Out@x.example")
		e.Cc, e.Bcc = []string{"left@x.example", "also@x.example"}, []string{"bcc@y.example"}
		emailID := w.Send(e)
		if got := w.states(emailID); got != "queued in:queued Out:failed left:failed also:queued bcc:queued" {
			t.Error(got)
		}
		if got := w.failed(); !slices.Equal(got, []string{"Out topic_opted_out", "left contact_unsubscribed"}) {
			t.Errorf("%q", got)
		}
		var to []string
		for _, d := range w.deliveries(emailID) {
			if d.Only || len(d.To) != 1 || !strings.HasSuffix(d.To[0], "@"+d.Domain) {
				t.Errorf("%+v", d)
			}
			to = append(to, d.To...)
		}
		if want := []string{"in@x.example", "also@x.example", "bcc@y.example"}; !slices.Equal(to, want) {
			t.Errorf("jobs for %q", to)
		}
		shown, err := w.Emails.Get(t.Context(), w.Acme.TeamID, emailID)
		if err != nil || shown.TopicID != w.news.ID {
			t.Errorf("the topic shown is %q, %v", shown.TopicID, err)
		}
		// The state of the email depends on the results for the other recipients.
		happen := func(kind events.Type, to string) {
			w.Happen(events.Event{TeamID: w.Acme.TeamID, EmailID: emailID, Type: kind, Recipient: to})
		}
		happen(events.EmailDelivered, "in@x.example")
		if got := w.states(emailID); got != "delivered in:delivered Out:failed left:failed also:queued bcc:queued" {
			t.Error(got)
		}
	})
}

// If an email may not be sent to any of its recipients, it fails. If suppressions are the only reason why an email is
// sent to nobody, its state becomes suppressed.
func TestEmailForNobody(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		w.leave(w.news, "out@x.example")
		if _, err := w.Suppressions.Add(t.Context(), w.Acme.TeamID, []string{"no@x.example"}); err != nil {
			t.Fatal(err)
		}
		w.seen.Take()
		for _, c := range []struct {
			e          emails.Send
			want, fail string
		}{
			{about(w.news, "out@x.example"), "failed out:failed", "[out topic_opted_out]"},
			{about(w.beta, "new@x.example"), "failed new:failed", "[new topic_not_opted_in]"},
			{about(w.news, "out@x.example", "no@x.example"), "failed out:failed no:suppressed", "[out topic_opted_out]"},
			{about(w.news, "no@x.example", "out@x.example"), "failed no:suppressed out:failed", "[out topic_opted_out]"},
			{about(w.news, "no@x.example"), "suppressed no:suppressed", "[]"},
		} {
			emailID := w.Send(c.e)
			if got := w.states(emailID); got != c.want {
				t.Errorf("%v: %s", c.e.To, got)
			}
			if got := fmt.Sprint(w.failed()); got != c.fail {
				t.Errorf("%v: %s", c.e.To, got)
			}
			if all := w.deliveries(emailID); len(all) != 0 {
				t.Errorf("%v: there are jobs %+v", c.e.To, all)
			}
		}
	})
}

// An unknown topic_id is refused. In a batch, the error names the index of the email.
func TestUnknownTopic(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		ctx := t.Context()
		unknown := func(topicID string) emails.Send {
			e := testnode.Hello("a@x.example")
			e.TopicID = topicID
			return e
		}
		for _, topicID := range []string{id.New(), "newsletter", "\x00"} {
			_, err := w.Emails.Send(ctx, w.Acme, unknown(topicID), emails.Idempotency{})
			if f, ok := err.(*fault.Error); !ok || f.Kind != fault.Invalid || f.Field != "topic_id" {
				t.Errorf("%q: %v", topicID, err)
			}
		}
		batch := []emails.Send{about(w.news, "a@x.example"), unknown(id.New()), about(w.beta, "a@x.example")}
		_, err := w.Emails.SendBatch(ctx, w.Acme, batch, false, emails.Idempotency{})
		if f, ok := err.(*fault.Error); !ok || f.Kind != fault.Invalid || f.Field != "[1].topic_id" {
			t.Errorf("strict: %v", err)
		}
		got, err := w.Emails.SendBatch(ctx, w.Acme, batch, true, emails.Idempotency{})
		if err != nil || len(got.IDs) != 2 || len(got.Errors) != 1 || got.Errors[0].Index != 1 {
			t.Fatalf("permissive: %+v, %v", got, err)
		}
		for i, want := range []string{"queued a:queued", "failed a:failed"} {
			if got := w.states(got.IDs[i]); got != want {
				t.Errorf("email %d: %s", i, got)
			}
		}
	})
}

// Subscriptions to a topic are checked when a scheduled email is accepted and again at its scheduled time.
func TestScheduledEmailKeepsToItsTopic(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		w.leave(w.news, "out@x.example")
		w.seen.Take()
		schedule := func(topic contacts.Topic, to ...string) string {
			e := about(topic, to...)
			e.ScheduledAt = time.Now().Add(time.Hour).Format(time.RFC3339)
			return w.Send(e)
		}
		some := schedule(w.news, "in@x.example", "out@x.example", "later@x.example")
		if got := w.states(some); got != "scheduled in:scheduled out:failed later:scheduled" {
			t.Error(got)
		}
		none := schedule(w.news, "out@x.example")
		if got := w.states(none); got != "failed out:failed" {
			t.Error(got)
		}
		gone, err := w.Contacts.CreateTopic(t.Context(), w.Acme.TeamID,
			contacts.NewTopic{Name: "n", Default: contacts.OptIn})
		if err != nil {
			t.Fatal(err)
		}
		of := schedule(gone, "in@x.example")
		w.leave(w.news, "later@x.example")
		if err := w.Contacts.DeleteTopic(t.Context(), w.Acme.TeamID, gone.ID); err != nil {
			t.Fatal(err)
		}
		if got := w.failed(); !slices.Equal(got, []string{"out topic_opted_out", "out topic_opted_out"}) {
			t.Errorf("%q", got)
		}
		w.Update(func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE last_event = 1 /* scheduled */`)
			tx.Queue(t.Context(), `UPDATE jobs SET run_at = 1 WHERE kind = $1`, emails.ReleaseKind)
			return nil
		})
		stop := w.Run(w.Emails.Kinds()...)
		testnode.Until(t, "they are released", func() bool {
			return !strings.HasPrefix(w.states(some), "scheduled") && !strings.HasPrefix(w.states(of), "scheduled")
		})
		stop()
		if got := w.states(some); got != "queued in:queued out:failed later:failed" {
			t.Error(got)
		}
		if got := w.states(of); got != "failed in:failed" {
			t.Error(got)
		}
		got := w.failed()
		slices.Sort(got)
		if !slices.Equal(got, []string{"in topic_deleted", "later topic_opted_out"}) {
			t.Errorf("%q", got)
		}
		timeline, _, err := w.Emails.Timeline(t.Context(), w.Acme.TeamID, of, page.Page{})
		if err != nil || len(timeline) == 0 || timeline[len(timeline)-1].Type != "failed" {
			t.Errorf("the timeline ends with something else: %+v, %v", timeline, err)
		}
		if all := w.deliveries(some); len(all) != 1 || all[0].To[0] != "in@x.example" {
			t.Errorf("%+v", all)
		}
	})
}

// A recipient who unsubscribes before a retry does not get the email.
func TestDropSuppressedByTopic(t *testing.T) {
	t.Parallel()
	eachTopical(t, func(t *testing.T, w *topical) {
		emailID := w.Send(about(w.news, "in@x.example", "out@x.example"))
		w.leave(w.news, "out@x.example")
		for _, d := range w.deliveries(emailID) {
			o, err := w.Emails.Outgoing(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			skipped, err := w.Emails.DropSuppressed(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if d.To[0] == "in@x.example" {
				if len(skipped) != 0 || len(o.To) != 1 {
					t.Errorf("who is in the topic is left out: %+v", skipped)
				}
				continue
			}
			if len(o.To) != 0 || len(skipped) != 1 || skipped[0].Data.(*events.Failed).Reason != "topic_opted_out" {
				t.Errorf("left are %q, skipped %+v", o.To, skipped)
			}
			if brief, err := skipped[0].Email(); err != nil || brief.ID != emailID {
				t.Errorf("%+v, %v", brief, err)
			}
		}
	})
}

// If two concurrent transactions each settle one of the last two recipients, the email is settled, even though neither
// transaction sees the other's changes.
func TestLastRecipientsAtTheSameTime(t *testing.T) {
	n := testnode.New(t, dbtest.Postgres(t), testnode.Options{})
	emailID := n.Send(testnode.Hello("a@one.example", "b@one.example"))
	left := func(tx *db.Tx, to string) error {
		return n.Recorder.Record(t.Context(), tx, events.Event{TeamID: n.Acme.TeamID, EmailID: emailID,
			Type: events.EmailFailed, Recipient: to, Data: &events.Failed{Reason: "topic_opted_out", Unmailed: true}})
	}
	var second sync.WaitGroup
	ended := make(chan error, 1)
	n.Update(func(tx *db.Tx) error {
		if err := left(tx, "a@one.example"); err != nil {
			return err
		}
		var one int
		if err := tx.QueryRow(t.Context(), `SELECT 1`).Scan(&one); err != nil { // sends the queued statements
			return err
		}
		second.Go(func() {
			ended <- n.DB.Update(t.Context(), func(tx *db.Tx) error { return left(tx, "b@one.example") })
		})
		// Wait until this transaction blocks the second one, or until the second one has ended.
		for waits := 0; waits == 0 && len(ended) == 0; {
			if err := n.DB.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
				AND datname = current_database()`).Scan(&waits); err != nil {
				return err
			}
		}
		return nil
	})
	second.Wait()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if e, err := n.Emails.Get(t.Context(), n.Acme.TeamID, emailID); err != nil || e.LastEvent != emails.Failed {
		t.Errorf("the email is %s, %v", e.LastEvent, err)
	}
}
