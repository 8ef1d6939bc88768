package emails_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// twins are two emails to the same address. One has no other recipient, and the other does, so that the first recipient
// of the other has a row.
type twins struct{ one, other, to string }

func (f *fixture) twins(t *testing.T, scheduledAt string) (w twins) {
	t.Helper()
	w.to = fmt.Sprintf("a%d@one.example", f.Count(`SELECT COUNT(*) FROM emails`)) // a new one may not be suppressed
	s := hello("Ann <" + w.to + ">")
	s.ScheduledAt = scheduledAt
	w.one = f.Send(s)
	s.To = append(s.To, "b@two.example")
	w.other = f.Send(s)
	return w
}

// happen records the same events for both emails.
func (f *fixture) happen(w twins, all ...events.Event) {
	f.T.Helper()
	f.Update(func(tx *db.Tx) error {
		for _, emailID := range []string{w.one, w.other} {
			if emailID == "" {
				continue
			}
			some := make([]events.Event, len(all))
			for i, e := range all {
				e.TeamID, e.EmailID, e.Recipient = f.Acme.TeamID, emailID, strings.Replace(e.Recipient, "to", w.to, 1)
				if some[i] = e; e.Type == events.EmailSent {
					if _, err := emails.MarkSent(f.T.Context(), tx, f.Acme.TeamID, emailID); err != nil {
						return err
					}
				}
			}
			if err := f.Recorder.Record(f.T.Context(), tx, some...); err != nil {
				return err
			}
		}
		return nil
	})
}

// shown returns the first recipient of an email as exports show it.
func (f *fixture) shown(t *testing.T, emailID string) emails.Recipient {
	t.Helper()
	for after := ""; ; {
		some, next, err := f.Emails.ListPage(t.Context(), f.Acme.TeamID, after)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range some {
			if e.ID != emailID {
				continue
			}
			to, err := f.Emails.Recipients(t.Context(), f.Acme.TeamID, emailID)
			if err != nil || fmt.Sprint(to) != fmt.Sprint(e.Recipients) {
				t.Fatalf("the email's recipients are %v, %v; the list shows %v", to, err, e.Recipients)
			}
			if e.Recipients[0].UpdatedAt.Equal(e.CreatedAt) {
				e.Recipients[0].UpdatedAt = time.Time{} // the emails were not accepted at the same time
			}
			return e.Recipients[0]
		}
		if after = next; next == "" {
			t.Fatalf("email %s is not in the list", emailID)
		}
	}
}

func (f *fixture) alike(t *testing.T, w twins, after any) {
	t.Helper()
	if one, other := f.shown(t, w.one), f.shown(t, w.other); one != other {
		t.Fatalf("after %v the only recipient is shown as %v, and its row would be %v", after, one, other)
	}
}

// The only recipient of an email has no row. Its state and the time of its last change are shown as a row would show
// them, whatever happens to the email and in whatever order.
func TestOneRecipient(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		const to = "to" // stands for the address
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		at := time.Now().Truncate(time.Microsecond)
		kinds := map[string][]events.Event{
			"withheld":  {{Type: events.EmailDelayed, Data: &events.Delayed{Reason: emails.ReasonDomain}}},
			"delayed":   {{Type: events.EmailSent}, {Type: events.EmailDelayed, Recipient: to}},
			"delivered": {{Type: events.EmailSent}, {Type: events.EmailDelivered, Recipient: to}},
			"bounced": {{Type: events.EmailSent},
				{Type: events.EmailBounced, Recipient: to, Data: &events.Bounce{Type: "Permanent"}}},
			"bounced later": {{Type: events.EmailBounced, Recipient: to, Data: &events.Bounce{Type: "Transient"}}},
			"complained":    {{Type: events.EmailComplained, Recipient: to, Data: &events.Complaint{}}},
			"opened":        {{Type: events.EmailOpened, Recipient: to, Data: &events.Open{}}},
			"clicked":       {{Type: events.EmailClicked, Recipient: to, Data: &events.Click{}}},
			"both": {{Type: events.EmailOpened, Recipient: to, Data: &events.Open{}},
				{Type: events.EmailClicked, Recipient: to, Data: &events.Click{}}},
			"simulated": {{Type: events.EmailSent}, {Type: events.EmailDelivered, Recipient: to},
				{Type: events.EmailComplained, Recipient: to, Data: &events.Complaint{Simulated: true}}},
			"unsubscribed": {{Type: events.EmailUnsubscribed, Recipient: to}},
		}
		last := map[string][]events.Event{ // only an email that waits has these
			"failed":     {{Type: events.EmailFailed, Data: &events.Failed{Reason: "invalid_message"}}},
			"refused":    {{Type: events.EmailFailed, Recipient: to, Data: &events.Failed{Reason: "x", Unmailed: true}}},
			"deleted":    {{Type: events.EmailCanceled, Recipient: to, Data: &events.Canceled{Reason: "contact_deleted"}}},
			"suppressed": {{Type: events.EmailSuppressed, Recipient: to, Data: &events.Suppressed{}}},
		}
		names := []string{"withheld", "delayed", "delivered", "bounced", "bounced later", "complained", "opened", "clicked",
			"both", "simulated", "unsubscribed"}
		for _, end := range []string{"", "failed", "refused", "deleted", "suppressed"} {
			for range 8 {
				w := f.twins(t, "")
				f.alike(t, w, "it was accepted")
				var done []string
				for range r.IntN(6) {
					name := names[r.IntN(len(names))]
					if end != "" {
						name = names[r.IntN(2)]
					}
					some := append([]events.Event(nil), kinds[name]...)
					for i := range some {
						at = at.Add(time.Second)
						some[i].At = at
					}
					f.happen(w, some...)
					done = append(done, name)
					f.alike(t, w, done)
				}
				if end == "" {
					continue
				}
				some := append([]events.Event(nil), last[end]...)
				at = at.Add(time.Second)
				some[0].At = at
				if r.IntN(2) == 0 {
					f.happen(w, some...)
				} else { // the recorder of the event knows that the email has one recipient
					f.happen(twins{w.other, "", w.to}, some...)
					some[0].OneRecipient = true
					f.happen(twins{w.one, "", w.to}, some...)
				}
				f.alike(t, w, append(done, end))
				if e := f.Email(w.one); string(e.LastEvent) != string(f.shown(t, w.one).State) {
					t.Errorf("seed %d: after %v and %s the email is %s", seed, done, end, e.LastEvent)
				}
			}
		}
	})
}

// The only recipient of a scheduled email is shown as a row would show it when the email is canceled and when it is
// due.
func TestOneRecipientOfAScheduledEmail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		state := func(emailID string) emails.State { return f.shown(t, emailID).State }
		w := f.twins(t, "in 2 hours")
		f.alike(t, w, "it was scheduled")
		for _, emailID := range []string{w.one, w.other} {
			if err := f.Emails.Cancel(t.Context(), f.Acme.TeamID, emailID); err != nil {
				t.Fatal(err)
			}
			if to := f.shown(t, emailID); to.State != emails.Canceled || to.UpdatedAt.IsZero() {
				t.Errorf("a canceled email has the recipient %v", to)
			}
		}
		w = f.twins(t, "in 2 hours")
		for _, emailID := range []string{w.one, w.other} {
			f.makeDue(t, emailID)
			if to := f.shown(t, emailID); to.State != emails.Queued || to.UpdatedAt.IsZero() {
				t.Errorf("an email that is due has the recipient %v", to)
			}
		}
		// The email of a canceled broadcast has one recipient, and waits no longer.
		f.Update(func(tx *db.Tx) error { emails.MarkCanceled(t.Context(), tx, f.Acme.TeamID, w.one); return nil })
		if state(w.one) != emails.Canceled {
			t.Errorf("the recipient of a canceled email is %s", state(w.one))
		}
		if err := f.Emails.DeleteContent(t.Context(), f.Acme.TeamID, w.one); err != nil {
			t.Errorf("the content of a canceled email: %v", err)
		}
		f.Counted(later())
		f.all(t, f.Emails.RemoveBefore, func() {})
		if _, err := f.Emails.Get(t.Context(), f.Acme.TeamID, w.one); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a canceled email is kept: %v", err)
		}
	})
}

// The address and the kind of an only recipient are shown as a row would show them, however the sender wrote them.
func TestOneRecipientAsWritten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		ctx, team := t.Context(), f.Acme.TeamID
		plain := message.Address{Local: "a", Domain: "one.example"}
		for written, want := range map[string]string{
			"a@one.example":                "a@one.example",
			"A@One.Example":                "A@one.example",
			"Ann <a@one.example>":          "a@one.example",
			`"a b"@one.example`:            `"a b"@one.example`,
			"a@bücher.example":             "a@xn--bcher-kva.example",
			"=?utf-8?q?J=C3=B6?= <a@x.de>": "a@x.de",
		} {
			s := hello(written)
			alone := f.Send(s)
			s.Cc, s.ReplyTo = []string{written}, []string{"r@one.example"}
			twice := f.Send(s)
			s.Cc = append(s.Cc, "b@two.example")
			several := f.Send(s)
			for _, emailID := range []string{alone, twice, several} {
				to, err := f.Emails.Recipients(ctx, team, emailID)
				if err != nil || to[0].Kind != "to" || to[0].Address != want {
					t.Errorf("%s: %v, %v", written, to, err)
				}
				if e := f.Email(emailID); len(e.To) != 1 || e.To[0] != written || len(e.Cc) != 0 && e.Cc[0] != written {
					t.Errorf("%s is shown as %q and %q", written, e.To, e.Cc)
				}
			}
		}
		for kind, lists := range map[string][2]string{"to": {"A@one.example", "a@one.example"},
			"cc": {"b@two.example", "Ann <a@one.example>"}, "bcc": {"b@two.example", "c@two.example"}} {
			in := composed(plain)
			in.To, in.Cc = lists[:1], lists[1:]
			emailID, err := f.Emails.SendRaw(ctx, f.Acme, in, emails.Idempotency{})
			if err != nil {
				t.Fatal(err)
			}
			if to, err := f.Emails.Recipients(ctx, team, emailID); err != nil || len(to) != 1 || to[0].Kind != kind ||
				to[0].Address != plain.Addr() {
				t.Errorf("%s: %v, %v", lists, to, err)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM email_recipients r JOIN emails e ON e.id = r.email_id WHERE e.recipient <> ''`); n !=
			0 {
			t.Errorf("emails with one recipient have %d rows of recipients", n)
		}
		some, _, err := f.Emails.List(ctx, team, page.Page{})
		if err != nil || len(some) != 21 {
			t.Errorf("%d emails, %v", len(some), err)
		}
	})
}
