package emails_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
)

// news returns content with placeholders in every part.
func news() content.Content {
	html := `<p>Dear {{{NAME|reader}}}, <a href="https://acme.example/{{{CODE}}}">read this</a>.</p>`
	return content.Content{From: "{{{FROM|Acme}}} <news@acme.example>", Subject: "News for {{{NAME|you}}}",
		ReplyTo: []string{"answers+{{{CODE|none}}}@acme.example"}, HTML: &html,
		Headers: []message.Field{{Name: "X-Campaign", Value: "spring {{{CODE}}}"}}}
}

// add stores content and returns its id.
func (f *fixture) add(t testing.TB, c content.Content) string {
	t.Helper()
	c.TeamID = f.Acme.TeamID
	if err := f.DB.Update(t.Context(), func(tx *db.Tx) error { return f.Contents.Add(t.Context(), tx, &c) }); err != nil {
		t.Fatal(err)
	}
	return c.ID
}

func (f *fixture) mailing(t testing.TB, contentID string) *emails.Mailing {
	t.Helper()
	m, err := f.Emails.Mailing(t.Context(), f.Acme, contentID, true)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (f *fixture) enqueue(t testing.TB, m *emails.Mailing,
	to ...emails.MailingRecipient) (entered []emails.EnqueueResult) {
	t.Helper()
	err := f.DB.Update(t.Context(), func(tx *db.Tx) (err error) {
		entered, err = f.Emails.Enqueue(t.Context(), tx, m, to)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return entered
}

// Each email in a mailing has its own values and is identical to an email that was sent separately. Emails in a mailing
// do not store copies of the text.
func TestEnqueue(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, team := t.Context(), f.Acme.TeamID
		m := f.mailing(t, f.add(t, news()))
		m.Tags, m.BroadcastID = []emails.Tag{{Name: "kind", Value: "news"}}, dbtest.ID("broadcast")
		got := f.enqueue(t, m,
			emails.MailingRecipient{Address: "Ann <Ann@one.example>", Values: render.Values{"NAME": "Ann", "CODE": "a1",
				"OTHER": "unused"}},
			emails.MailingRecipient{Address: "bob@two.example"},
			emails.MailingRecipient{Address: "nobody"},
			emails.MailingRecipient{Address: "eve@one.example", Values: render.Values{"NAME": "Eve\r\nBcc: x@one.example"}})
		for i, e := range got {
			if (e.ID == "") != (i == 2) || (e.Err == nil) != (i != 2) {
				t.Errorf("recipient %d: %+v", i, e)
			}
		}
		ann, err := f.Emails.Get(ctx, team, got[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if *ann.HTML != `<p>Dear Ann, <a href="https://acme.example/a1">read this</a>.</p>` || ann.Text != nil ||
			ann.Subject != "News for Ann" || ann.From != "Acme <news@acme.example>" || ann.LastEvent != emails.Queued ||
			ann.ReplyTo[0] != "answers+a1@acme.example" || ann.To[0] != "Ann <Ann@one.example>" ||
			ann.BroadcastID != dbtest.ID("broadcast") ||
			ann.Tags[0].Value != "news" || ann.Actor != f.Acme.Ref() || ann.DomainID != f.Sender.ID {
			t.Errorf("the email to Ann is %+v, %q", ann, *ann.HTML)
		}
		text := f.compose(t, ann.ID)
		for _, part := range []string{"From: Acme <news@acme.example>\r\n", "To: Ann <Ann@one.example>\r\n",
			"Subject: News for Ann\r\n",
			"X-Campaign: spring a1\r\n", "Reply-To: answers+a1@acme.example\r\n", "Message-ID: " + ann.MessageID + "\r\n",
			"Dear Ann, read this [https://acme.example/a1]."} {
			if !strings.Contains(text, part) {
				t.Errorf("%q is not in\n%s", part, text)
			}
		}
		bob, err := f.Emails.Get(ctx, team, got[1].ID)
		if err != nil || bob.Subject != "News for you" || !strings.Contains(*bob.HTML, "Dear reader,") {
			t.Errorf("the email to Bob is %+v, %v", bob, err)
		}
		if head, _, _ := strings.Cut(f.compose(t, got[3].ID), "\r\n\r\n"); strings.Contains(head, "\nBcc:") {
			t.Errorf("a value began a field:\n%s", head)
		}
		brief, err := emails.EventSummary(ctx, f.DB.Reader, team, ann.ID)
		if err != nil || len(brief.Headers) != 1 || brief.Headers[0].Value != "spring a1" {
			t.Errorf("what is told of it is %+v, %v", brief, err)
		}
		if list, _, err := f.Emails.List(ctx, team, page.Page{}); err != nil || len(list) != 3 ||
			list[0].Subject != "News for Eve  Bcc: x@one.example" {
			t.Errorf("the list is %+v, %v", list, err)
		}
		if stored := f.Count(`SELECT COUNT(*) FROM email_bodies`) + f.Count(`SELECT COUNT(*) FROM emails
			WHERE variables LIKE '%unused%'`); stored != 0 {
			t.Errorf("%d rows have what nobody needs", stored)
		}
		for lane, n := range map[string]int{"one.example": 2, "two.example": 1} {
			if jobs := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND lane = $1`,
				emails.Lane(lane, team, true)); jobs != n {
				t.Errorf("%d jobs for %s, want %d", jobs, lane, n)
			}
		}
		if events, _, err := f.Emails.Timeline(ctx, team, ann.ID, page.Page{}); err != nil || len(events) != 1 ||
			events[0].Type != "queued" {
			t.Errorf("its timeline is %+v, %v", events, err)
		}
		if size, err := f.Emails.Size(ctx, f.Acme.TeamID, ann.ID); err != nil || size < int64(len(*ann.HTML)) {
			t.Errorf("composing it takes %d bytes, %v", size, err)
		}
	})
}

// For a suppressed recipient, Enqueue writes an email in the state suppressed and no job.
func TestEnqueueSuppressed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if _, err := f.Suppressions.Add(t.Context(), f.Acme.TeamID, []string{"ann@one.example"}); err != nil {
			t.Fatal(err)
		}
		got := f.enqueue(t, f.mailing(t, f.add(t, news())), emails.MailingRecipient{Address: "Ann@one.example"})
		if s := f.state(got[0].ID); s != emails.Suppressed || f.Count(`SELECT COUNT(*) FROM jobs`) != 0 {
			t.Errorf("the email is %s, and there are %d jobs", s, f.Count(`SELECT COUNT(*) FROM jobs`))
		}
	})
}

func TestMailingRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		empty := ""
		for name, c := range map[string]struct {
			change func(*content.Content)
			who    func(*teams.Actor)
			kind   fault.Kind
		}{
			"no such content":   {func(c *content.Content) { c.TeamID = dbtest.ID("another") }, nil, fault.NotFound},
			"of another domain": {func(c *content.Content) { c.From = "a@elsewhere.example" }, nil, fault.Forbidden},
			"no sender":         {func(c *content.Content) { c.From = "{{{FROM}}}" }, nil, fault.Invalid},
			"no text":           {func(c *content.Content) { c.HTML = &empty }, nil, fault.Missing},
			"too large": {func(c *content.Content) { s := strings.Repeat("x", 2<<20); c.HTML = &s }, nil,
				fault.Invalid},
			"a field of ours": {func(c *content.Content) { c.Headers[0].Name = "DKIM-Signature" }, nil,
				fault.Invalid},
			"a long subject": {func(c *content.Content) { c.Subject = strings.Repeat("x", 1000) }, nil,
				fault.Invalid},
			"of a suspended team":        {nil, func(a *teams.Actor) { a.Suspended = true }, fault.Suspended},
			"by a key of another domain": {nil, func(a *teams.Actor) { a.DomainID = "other" }, fault.Forbidden},
		} {
			one, who := news(), f.Acme
			if c.change != nil {
				c.change(&one)
			}
			if c.who != nil {
				c.who(&who)
			}
			if one.TeamID == "" {
				one.TeamID = f.Acme.TeamID
			}
			err := f.DB.Update(t.Context(), func(tx *db.Tx) error { return f.Contents.Add(t.Context(), tx, &one) })
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Emails.Mailing(t.Context(), who, one.ID, true); err == nil || fault.KindOf(err) != c.kind {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// If one recipient's email is refused, the other recipients' emails are still enqueued.
func TestEnqueueRefused(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		c := news()
		c.From = "Acme <news@{{{HOST|acme.example}}}>"
		c.Subject = "{{{SUBJECT|News}}}"
		m := f.mailing(t, f.add(t, c))
		var to []emails.MailingRecipient
		for _, one := range []struct {
			to     string
			values render.Values
		}{
			{"", nil},
			{"ann@example.com", nil},
			{"ann@one.example", render.Values{"HOST": "other.example"}},
			{"ann@one.example", render.Values{"HOST": ""}},
			{"ann@one.example", render.Values{"SUBJECT": strings.Repeat("x", 999)}},
			{"ann@one.example", render.Values{"NAME": "a\x00b"}},
			{"ann@one.example", render.Values{"NAME": "\xff"}},
			{"ann@one.example", render.Values{"NAME": strings.Repeat("x", 1<<20)}},
		} {
			to = append(to, emails.MailingRecipient{Address: one.to, Values: one.values})
		}
		refused := len(to)
		to = append(to, emails.MailingRecipient{Address: "ann@one.example", Values: render.Values{"UNUSED": "\x00"}})
		for i, e := range f.enqueue(t, m, to...) {
			if i < refused && (e.ID != "" || fault.KindOf(e.Err) != fault.Invalid) || i == refused && e.Err != nil {
				t.Errorf("recipient %d: %+v", i, e)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != 1 {
			t.Errorf("there are %d emails", n)
		}
		err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := f.Emails.Enqueue(t.Context(), tx, m, make([]emails.MailingRecipient, emails.MaxEnqueue+1))
			return err
		})
		if err == nil {
			t.Error("more than the limit are entered at once")
		}
	})
}

// If the transaction fails, no email is enqueued.
func TestEnqueueWholly(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		m, failed := f.mailing(t, f.add(t, news())), errors.New("failed")
		err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			if _, err := f.Emails.Enqueue(t.Context(), tx, m,
				[]emails.MailingRecipient{{Address: "ann@one.example"}}); err != nil {
				return err
			}
			return failed
		})
		n := f.Count(`SELECT COUNT(*) FROM emails`) + f.Count(`SELECT COUNT(*) FROM jobs`) +
			f.Count(`SELECT COUNT(*) FROM email_recipients`) + f.Count(`SELECT COUNT(*) FROM email_events`)
		if !errors.Is(err, failed) || n != 0 {
			t.Errorf("%v, and %d rows", err, n)
		}
	})
}

// older changes an email, its content and all rows that refer to them, so that they appear older.
func (f *fixture) older(t *testing.T, emailID string, by time.Duration) string {
	t.Helper()
	at, ok := id.Time(emailID)
	if !ok {
		t.Fatalf("%s has no time", emailID)
	}
	aged := id.First(at.Add(-by))[:13] + emailID[13:]
	f.change(`UPDATE contents SET used_at = $2, from_id = $3 WHERE id = (SELECT content_id FROM emails WHERE id = $1)`,
		db.ID(emailID), at.Add(-by).UnixMicro(), db.ID(id.First(at.Add(-by-time.Hour))))
	for _, column := range []string{"emails.id", "email_recipients.email_id", "email_events.email_id",
		"email_bodies_left.email_id", "email_bodies_until.email_id"} {
		table, column, _ := strings.Cut(column, ".")
		f.change(`UPDATE `+table+` SET `+column+` = $2 WHERE `+column+` = $1`, db.ID(emailID), db.ID(aged))
	}
	return aged
}

// Shared content is deleted when no email uses it, unless it is marked as kept.
func TestContentsGo(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		kept := news()
		kept.Kept = true
		used, unused, keptID := f.add(t, news()), f.add(t, news()), f.add(t, kept)
		got := f.enqueue(t, f.mailing(t, used), emails.MailingRecipient{Address: "ann@one.example"},
			emails.MailingRecipient{Address: "bob@one.example"})
		left := func() string {
			t.Helper()
			if err := f.Emails.SweepContents(t.Context()); err != nil {
				t.Fatal(err)
			}
			s := ""
			for _, c := range []struct{ name, id string }{{"used", used}, {"unused", unused}, {"kept", keptID}} {
				if f.Count(`SELECT COUNT(*) FROM contents WHERE id = $1`, db.ID(c.id)) == 1 {
					s += c.name + " "
				}
			}
			return s
		}
		if s := left(); s != "used unused kept " {
			t.Errorf("at once there are %q", s)
		}
		f.change(`UPDATE contents SET used_at = 1`) // long before the emails, as if their use had not been recorded
		f.change(`UPDATE contents SET used_at = $2 WHERE id = $1`, db.ID(used), f.DB.Now().UnixMicro())
		if s := left(); s != "used kept " {
			t.Errorf("after a while there are %q", s)
		}
		f.Counted(later())
		f.end(t, got[0].ID, "email.delivered", "ann@one.example")
		f.all(t, f.Emails.RemoveBodies, func() {})
		if e, err := f.Emails.Get(t.Context(), f.Acme.TeamID, got[0].ID); err != nil || e.HTML != nil ||
			e.Subject != "News for you" {
			t.Errorf("an email whose content was deleted is %+v, %v", e, err)
		}
		if o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID,
			EmailID: got[0].ID}); err != nil || !o.ContentMissing ||
			len(o.To) > 0 {
			t.Errorf("an email whose content was deleted can be sent: %+v, %v", o, err)
		}
		for i := range got {
			got[i].ID = f.older(t, got[i].ID, 3*time.Hour)
		}
		f.compose(t, got[1].ID) // that still waits
		if s := left(); s != "used kept " {
			t.Errorf("while an email waits there are %q", s)
		}
		f.end(t, got[1].ID, "email.delivered", "bob@one.example")
		f.all(t, f.Emails.RemoveSkippedBodies, func() {})
		if s := left(); s != "kept " {
			t.Errorf("without emails there are %q", s)
		}
		err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			f.Contents.Release(t.Context(), tx, f.Acme.TeamID,
				keptID)
			return nil
		})
		if s := left(); err != nil || s != "" {
			t.Errorf("when nobody keeps it there are %q, %v", s, err)
		}
	})
}

// Enqueue returns an error if the content was deleted after the Mailing was prepared.
func TestEnqueueWithoutContent(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		contentID := f.add(t, news())
		f.change(`UPDATE contents SET used_at = 1`)
		m := f.mailing(t, contentID)
		if err := f.Emails.SweepContents(t.Context()); err != nil {
			t.Fatal(err)
		}
		err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := f.Emails.Enqueue(t.Context(), tx, m, []emails.MailingRecipient{{Address: "ann@one.example"}})
			return err
		})
		if n := f.Count(`SELECT COUNT(*) FROM emails`); fault.KindOf(err) != fault.NotFound || err == nil || n != 0 {
			t.Errorf("%v, and there are %d emails", err, n)
		}
	})
}

// BenchmarkEnqueue enqueues emails that share content, with MaxEnqueue emails per transaction.
func BenchmarkEnqueue(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			f := newFixture(b, open(b))
			m := f.mailing(b, f.add(b, news()))
			n := 0
			for b.Loop() {
				to := make([]emails.MailingRecipient, emails.MaxEnqueue)
				for i := range to {
					n++
					to[i] = emails.MailingRecipient{Address: fmt.Sprintf("r%d@d%d.example", n, n%1000),
						Values: render.Values{"NAME": fmt.Sprint("Reader ", n), "CODE": fmt.Sprint(n)}}
				}
				if err := f.DB.Update(context.Background(), func(tx *db.Tx) error {
					_, err := f.Emails.Enqueue(context.Background(), tx, m, to)
					return err
				}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "recipients/s")
		})
	}
}
