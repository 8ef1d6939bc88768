package emails_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is a test node with access to its stored files and its log.
type fixture struct {
	*testnode.Node
	folder string // of blobs
	logged *testnode.Logged
}

func newFixture(t testing.TB, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{folder: t.TempDir(), logged: &testnode.Logged{}}
	f.Node = testnode.New(t, d, testnode.Options{Blobs: f.folder, Guard: netguard.Options{AllowLoopback: true},
		Grace: time.Millisecond, Log: slog.New(slog.NewTextHandler(f.logged, nil))})
	return f
}

func each(t *testing.T, run func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { run(t, newFixture(t, d)) })
}

// hello returns a request from the team Acme to send an email from acme.example.
var hello = testnode.Hello

func (f *fixture) state(emailID string) emails.State {
	f.T.Helper()
	return f.Email(emailID).LastEvent
}

// release runs the jobs defined by package emails until done returns true.
func (f *fixture) release(t *testing.T, done func() bool) {
	t.Helper()
	defer f.Run(f.Emails.Kinds()...)()
	testnode.Until(t, "the release job is worked", done)
}

func TestSendWritesAJobForEachDestination(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example", "b@two.example", "A@ONE.example")
		s.Cc, s.Bcc = []string{"C <c@one.example>"}, []string{"d@three.example"}
		s.Tags = []emails.Tag{{Name: "kind", Value: "test"}}
		id := f.Send(s)
		e, err := f.Emails.Get(t.Context(), f.Acme.TeamID, id)
		if err != nil {
			t.Fatal(err)
		}
		if e.LastEvent != emails.Queued || e.MessageID != "<"+id+"@acme.example>" || len(e.To) != 3 ||
			e.Tags[0].Value != "test" ||
			e.Text == nil || *e.Text != "Hello." || e.HTML != nil {
			t.Errorf("stored %+v", e)
		}
		if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 3 {
			t.Errorf("%d delivery jobs, want one for each of 3 destinations", n)
		}
		to, err := f.Emails.Recipients(t.Context(), f.Acme.TeamID, id)
		if err != nil || len(to) != 4 {
			t.Fatalf("recipients %+v, %v: want each address once", to, err)
		}
		o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID, EmailID: id, Domain: "one.example"})
		if err != nil || len(o.To) != 2 {
			t.Fatalf("outgoing %+v, %v", o, err)
		}
		raw, err := f.Emails.Compose(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := f.Emails.Compose(t.Context(), o); string(again) != string(raw) {
			t.Error("composing twice gives different bytes")
		}
		if strings.Contains(string(raw), "three.example") {
			t.Error("a hidden recipient stands in the message")
		}
		if _, err := f.Emails.Get(t.Context(), dbtest.ID("another team"), id); fault.KindOf(err) != fault.NotFound {
			t.Errorf("another team reads it: %v", err)
		}
	})
}

func TestStatesAdvanceByRank(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		id := f.Send(hello("a@one.example", "b@one.example"))
		happen := func(typ events.Type, to string, data any) {
			f.Happen(events.Event{TeamID: f.Acme.TeamID, EmailID: id, DomainID: f.Sender.ID, Type: typ, Recipient: to,
				Data: data})
		}
		for _, step := range []struct {
			typ  events.Type
			to   string
			want emails.State
		}{
			{events.EmailSent, "", emails.Sent},
			{events.EmailDelayed, "a@one.example", emails.Delayed},
			{events.EmailSent, "", emails.Delayed},
			{events.EmailDelivered, "a@one.example", emails.Delivered},
			{events.EmailClicked, "a@one.example", emails.Clicked},
			{events.EmailOpened, "a@one.example", emails.Clicked},
			{events.EmailSuppressed, "b@one.example", emails.Clicked},
			{events.EmailComplained, "a@one.example", emails.Complained},
			{events.EmailDelivered, "a@one.example", emails.Complained},
		} {
			happen(step.typ, step.to, nil)
			if got := f.state(id); got != step.want {
				t.Errorf("after %s: %s, want %s", step.typ, got, step.want)
			}
		}
		timeline, _, err := f.Emails.Timeline(t.Context(), f.Acme.TeamID, id, page.Page{})
		if err != nil || len(timeline) != 10 || timeline[0].Type != "queued" {
			t.Errorf("timeline of %d, %v: %+v", len(timeline), err, timeline)
		}
	})
}

// In a batch of large emails, whose rows do not fit in one statement, each email to a suppressed address has the state
// suppressed.
func TestLargeSuppressedEmails(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if _, err := f.Suppressions.Add(t.Context(), f.Acme.TeamID, []string{"gone@one.example"}); err != nil {
			t.Fatal(err)
		}
		batch, large := make([]emails.Send, 3), strings.Repeat("large ", 100_000)
		for i := range batch {
			batch[i] = hello("gone@one.example")
			batch[i].Text = &large
		}
		if _, err := f.Emails.SendBatch(t.Context(), f.Acme, batch, false, emails.Idempotency{}); err != nil {
			t.Fatal(err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails WHERE last_event = 10 /* suppressed */`); n != len(batch) {
			t.Errorf("%d emails are suppressed", n)
		}
	})
}

func TestSuppressedRecipients(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if _, err := f.Suppressions.Add(t.Context(), f.Acme.TeamID, []string{"Gone@One.example"}); err != nil {
			t.Fatal(err)
		}
		all := f.Send(hello("gone@one.example"))
		if got := f.state(all); got != emails.Suppressed {
			t.Errorf("all suppressed: %s", got)
		}
		if n := f.Count(`SELECT COUNT(*) FROM jobs`); n != 0 {
			t.Errorf("%d jobs for a suppressed recipient", n)
		}
		some := f.Send(hello("gone@one.example", "here@one.example"))
		if got := f.state(some); got != emails.Queued {
			t.Errorf("one of two suppressed: %s", got)
		}
		o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID,
			EmailID: some, Domain: "one.example"})
		if err != nil || len(o.To) != 1 || o.To[0] != "here@one.example" {
			t.Errorf("outgoing to %v, %v", o.To, err)
		}
		// A hard bounce suppresses the address in the transaction that records it. A bounce from a test address does not
		// suppress the address.
		for address, b := range map[string]*events.Bounce{"hard@one.example": {Type: "Permanent", Suppress: true},
			"soft@one.example": {Type: "Transient"}, "play@one.example": {Type: "Permanent", Suppress: true, Simulated: true}} {
			f.Happen(events.Event{TeamID: f.Acme.TeamID, EmailID: some, Type: events.EmailBounced, Recipient: address,
				Data: b})
		}
		found, err := f.Suppressions.Suppressed(t.Context(), f.DB.Reader, f.Acme.TeamID, []string{"hard@one.example",
			"soft@one.example", "play@one.example"})
		if err != nil || len(found) != 1 || found["hard@one.example"].SourceID != some {
			t.Errorf("suppressed %+v, %v", found, err)
		}
	})
}

func TestScheduleRescheduleCancel(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		s.ScheduledAt = "in 2 hours"
		id := f.Send(s)
		if got := f.state(id); got != emails.Scheduled {
			t.Fatalf("state %s", got)
		}
		if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 0 {
			t.Error("a scheduled email is being delivered")
		}
		if err := f.Emails.Reschedule(t.Context(), f.Acme.TeamID, id,
			time.Now().Add(time.Second).Format(time.RFC3339)); err != nil {
			t.Fatal(err)
		}
		f.release(t, func() bool { return f.state(id) == emails.Queued })
		if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 1 {
			t.Errorf("%d delivery jobs after the release, want 1", n)
		}
		if err := f.Emails.Cancel(t.Context(), f.Acme.TeamID, id); fault.KindOf(err) != fault.Invalid {
			t.Errorf("canceling a released email: %v", err)
		}
		id = f.Send(s)
		if err := f.Emails.Cancel(t.Context(), f.Acme.TeamID, id); err != nil {
			t.Fatal(err)
		}
		if got := f.state(id); got != emails.Canceled {
			t.Errorf("canceled: %s", got)
		}
		if err := f.Emails.Reschedule(t.Context(), f.Acme.TeamID, id, "in 1 hour"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("rescheduling a canceled email: %v", err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'emails.release'`); n != 0 {
			t.Errorf("%d release jobs are left", n)
		}
	})
}

// If an email is successfully rescheduled while its release job runs, it is not sent before the new time.
func TestRescheduleDuringRelease(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		release := f.Emails.Kinds()[0]
		for i := range 40 {
			s := hello("a@one.example")
			s.ScheduledAt = "in 2 hours"
			id := f.Send(s)
			j := jobs.Job{Kind: emails.ReleaseKind, Lane: f.Acme.TeamID, TeamID: f.Acme.TeamID, Payload: id, Attempt: 1}
			if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE id = $1`, db.ID(id))
				return tx.QueryRow(t.Context(),
					`UPDATE jobs SET run_at = $2, attempt = 1, holder = id WHERE dedupe = $1 RETURNING id`, id,
					time.Now().Add(time.Minute).UnixMicro()).Scan((*db.ID)(&j.ID))
			}); err != nil {
				t.Fatal(err)
			}
			var released error
			ended := make(chan struct{})
			work := func() { released = release.Handle(t.Context(), j); close(ended) }
			if i > 0 { // in the first iteration, the job runs only after Reschedule
				go work()
			}
			err := f.Emails.Reschedule(t.Context(), f.Acme.TeamID, id, "in 1 hour")
			if i == 0 {
				work()
			}
			<-ended
			if released != nil {
				t.Fatal(released)
			}
			want, deliveries, waiting := emails.Queued, 1, 0
			if err == nil {
				want, deliveries, waiting = emails.Scheduled, 0, 1
			} else if fault.KindOf(err) != fault.Invalid {
				t.Fatal(err)
			}
			n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND payload LIKE '%` + id + `%'`)
			left := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'emails.release' AND holder IS NULL AND dedupe = '` + id +
				`' AND run_at > ` +
				fmt.Sprint(time.Now().Add(time.Minute*30).UnixMicro()))
			if got := f.state(id); got != want || n != deliveries || left != waiting {
				t.Fatalf("after Reschedule returned %v the email is %s, with %d deliveries and %d releases that wait", err, got, n,
					left)
			}
		}
	})
}

func TestReleaseChecksAgain(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func(t *testing.T, f *fixture)
		reason string
	}{
		"key deleted": {func(t *testing.T, f *fixture) {
			if err := f.Teams.DeleteKey(t.Context(), f.Acme.TeamID, f.Acme.ID); err != nil {
				t.Fatal(err)
			}
		}, "invalid_api_key"},
		"domain taken over": {func(t *testing.T, f *fixture) {
			if err := f.Domains.Delete(t.Context(), f.Acme.TeamID, f.Sender.ID); err != nil {
				t.Fatal(err)
			}
			f.Verified(f.Other.TeamID, domains.NewDomain{Name: testnode.Domain})
		}, "domain_not_verified"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f *fixture) {
				s := hello("a@one.example")
				s.ScheduledAt = time.Now().Add(2 * time.Second).Format(time.RFC3339)
				id := f.Send(s)
				c.spoil(t, f)
				f.release(t, func() bool { return f.state(id) != emails.Scheduled })
				timeline, _, err := f.Emails.Timeline(t.Context(), f.Acme.TeamID, id, page.Page{})
				if err != nil {
					t.Fatal(err)
				}
				last := timeline[len(timeline)-1]
				if f.state(id) != emails.Failed || !strings.Contains(last.Data, c.reason) {
					t.Errorf("state %s, last event %+v", f.state(id), last)
				}
			})
		})
	}
}

func TestBatch(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		good, bad := hello("a@one.example"), hello("nonsense")
		if _, err := f.Emails.SendBatch(t.Context(), f.Acme, []emails.Send{good, bad}, false,
			emails.Idempotency{}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a strict batch: %v", err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != 0 {
			t.Errorf("%d emails of a refused batch", n)
		}
		b, err := f.Emails.SendBatch(t.Context(), f.Acme, []emails.Send{good, bad, good}, true, emails.Idempotency{})
		if err != nil || len(b.IDs) != 2 || len(b.Errors) != 1 || b.Errors[0].Index != 1 {
			t.Errorf("a permissive batch: %+v, %v", b, err)
		}
	})
}

func TestSenderRules(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		s.From = "x@mail.acme.example"
		if _, err := f.Emails.Send(t.Context(), f.Acme, s, emails.Idempotency{}); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("a domain below the verified one: %v", err)
		}
		s.From = "onboarding@resend.dev"
		if _, err := f.Emails.Send(t.Context(), f.Acme, s, emails.Idempotency{}); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("the sandbox sender to a stranger: %v", err)
		}
		s.To = []string{"Owner@acme.example", "delivered@resend.dev"}
		if _, err := f.Emails.Send(t.Context(), f.Acme, s, emails.Idempotency{}); err != nil {
			t.Errorf("the sandbox sender to the owner: %v", err)
		}
		who := f.Acme
		who.DomainID = "another"
		if _, err := f.Emails.Send(t.Context(), who, hello("a@one.example"), emails.Idempotency{}); fault.KindOf(
			err) != fault.Forbidden {
			t.Errorf("a key of another domain: %v", err)
		}
		who = f.Acme
		who.Suspended = true
		if _, err := f.Emails.Send(t.Context(), who, hello("a@one.example"), emails.Idempotency{}); fault.KindOf(
			err) != fault.Suspended {
			t.Errorf("a suspended team: %v", err)
		}
	})
}

func TestShare(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		id := f.Send(hello("a@one.example"))
		link, err := f.Emails.Share(t.Context(), f.Acme.TeamID, id, "2 hours")
		if err != nil {
			t.Fatal(err)
		}
		e, _, err := f.Emails.Shared(t.Context(), strings.TrimPrefix(link, testnode.PublicURL+"/shared?token="))
		if err != nil || e.ID != id {
			t.Errorf("shared %s, %v", e.ID, err)
		}
		for _, d := range []string{"3 days", "soon", "0 minutes"} {
			if _, err := f.Emails.Share(t.Context(), f.Acme.TeamID, id, d); fault.KindOf(err) != fault.Invalid {
				t.Errorf("shared for %q: %v", d, err)
			}
		}
	})
}

func TestHeaderInjection(t *testing.T) {
	d := dbtest.SQLite(t)
	f := newFixture(t, d)
	for _, evil := range []string{"x\r\nBcc: v@evil.example", "x\nEvil: 1", "x\rEvil: 1", "x\x00y"} {
		for field, spoil := range map[string]func(*emails.Send){
			"from":     func(s *emails.Send) { s.From = evil + " <hello@acme.example>" },
			"to":       func(s *emails.Send) { s.To = []string{evil + " <a@one.example>"} },
			"cc":       func(s *emails.Send) { s.Cc = []string{"a@one.example" + evil} },
			"bcc":      func(s *emails.Send) { s.Bcc = []string{"\"" + evil + "\"@one.example"} },
			"reply_to": func(s *emails.Send) { s.ReplyTo = []string{evil + " <a@one.example>"} },
			"subject":  func(s *emails.Send) { s.Subject = evil },
			"headers":  func(s *emails.Send) { s.Headers = []message.Field{{Name: "X-A", Value: evil}} },
			"headers ": func(s *emails.Send) { s.Headers = []message.Field{{Name: evil, Value: "a"}} },
			"filename": func(s *emails.Send) {
				s.Attachments = []emails.Upload{{Filename: evil, Content: []byte("x"), HasContent: true}}
			},
			"content_id": func(s *emails.Send) {
				s.Attachments = []emails.Upload{{Filename: "a.png", ContentID: evil, Content: []byte("x"), HasContent: true}}
			},
			"content_type": func(s *emails.Send) {
				s.Attachments = []emails.Upload{{Filename: "a.png", ContentType: "image/png; a=\"" + evil + "\"",
					Content: []byte("x"), HasContent: true}}
			},
		} {
			s := hello("a@one.example")
			spoil(&s)
			_, err := f.Emails.Send(t.Context(), f.Acme, s, emails.Idempotency{})
			if k := fault.KindOf(err); k != fault.Invalid && k != fault.BadAttachment {
				t.Errorf("%q in %s: %v", evil, field, err)
			}
		}
	}
	if n := f.Count(`SELECT COUNT(*) FROM emails`); n != 0 {
		t.Errorf("%d emails were stored", n)
	}
}

// An email's id contains the time of the transaction that accepted it, according to the clock that all nodes share.
func TestIDIsOfTheTransaction(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		e, err := f.Emails.Get(t.Context(), f.Acme.TeamID, f.Send(hello("a@one.example")))
		if err != nil {
			t.Fatal(err)
		}
		if at, ok := id.Time(e.ID); !ok || !at.Equal(e.CreatedAt.Truncate(time.Millisecond)) {
			t.Errorf("the id is of %v, the email of %v", at, e.CreatedAt)
		}
		later := f.schedule(t)
		events, _, err := f.Emails.Timeline(t.Context(), f.Acme.TeamID, later, page.Page{})
		if err != nil || len(events) != 1 || events[0].ID <= later {
			t.Errorf("the email %s has the events %v, %v", later, events, err)
		}
	})
}
