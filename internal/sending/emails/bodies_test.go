package emails_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// On PostgreSQL, an email's own body is part of its row; on SQLite, it has a row of its own. On both engines, the body
// is read back as it was sent, lists do not read it, and the email stays when the body is deleted. A Message-ID that
// follows from the email's id and sender is not stored.
func TestBodies(t *testing.T) {
	t.Parallel()
	eachTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		ctx, team := t.Context(), f.Acme.TeamID
		sqlite := f.DB.Alone()
		inserts := map[string]int{"emails": 1, "email_bodies": 0}
		if sqlite {
			inserts["email_bodies"] = 1
		}
		s := hello("a@one.example")
		s.HTML, s.Text = new("<p>Hello, "+strings.Repeat("you. ", 2000)+"</p>"), new("")
		s.Headers = []message.Field{{Name: "X-A", Value: "b"}}
		trace.Take()
		own := f.Send(s)
		for _, statement := range trace.Take() {
			for table := range inserts {
				if strings.HasPrefix(statement.SQL, "INSERT INTO "+table+" ") {
					inserts[table]--
				}
			}
		}
		if inserts["emails"] != 0 || inserts["email_bodies"] != 0 {
			t.Errorf("the inserts that are missing are %v", inserts)
		}
		shared := f.enqueue(t, f.mailing(t, f.add(t, news())), emails.MailingRecipient{Address: "c@one.example"})[0].ID
		if n := f.Count(`SELECT COUNT(*) FROM email_bodies`); n != 1 {
			t.Errorf("%d emails have bodies of their own", n)
		}
		e := f.Email(own)
		if e.HTML == nil || *e.HTML != *s.HTML || e.Text == nil || *e.Text != "" {
			t.Errorf("the bodies are %v and %v", e.HTML, e.Text)
		}
		n := f.Count(`SELECT COUNT(*) FROM emails WHERE message_id <> ''`)
		if n != 0 || e.MessageID != "<"+own+"@acme.example>" {
			t.Errorf("%d emails have stored Message-IDs; one is shown with %s", n, e.MessageID)
		}
		if text := f.compose(t, own); !strings.Contains(text, "X-A: b") || !strings.Contains(text, "Hello, you. you.") {
			t.Errorf("composed: %.500s", text)
		}
		if size, err := f.Emails.TextSize(ctx, team, own); err != nil || size != int64(len(*s.HTML)) {
			t.Errorf("the texts have %d bytes, %v", size, err)
		}
		a, err := erasure.Parse("a@one.example")
		if err != nil {
			t.Fatal(err)
		}
		trace.Take()
		_, _, err = f.Emails.List(ctx, team, page.Page{})
		f.Must(err)
		_, _, err = f.Emails.ListPage(ctx, team, "")
		f.Must(err)
		_, _, err = f.Emails.ListPageTo(ctx, team, a, "")
		f.Must(err)
		for _, statement := range trace.Take() {
			if strings.Contains(statement.SQL, "html") || strings.Contains(statement.SQL, "*") &&
				!strings.Contains(statement.SQL, "COUNT(*)") {
				t.Errorf("a list reads bodies: %s", statement.SQL)
			}
		}
		for _, emailID := range []string{own, shared} {
			to := f.shown(t, emailID).Address
			f.Happen(events.Event{TeamID: team, EmailID: emailID, Type: events.EmailDelivered, Recipient: to})
			f.Must(f.Emails.DeleteContent(ctx, team, emailID))
			e := f.Email(emailID)
			if e.HTML != nil || e.Text != nil || e.LastEvent != emails.Delivered || e.Subject == "" {
				t.Errorf("without its content the email is %+v", e)
			}
			o, err := f.Emails.Outgoing(ctx, emails.Delivery{TeamID: f.Acme.TeamID, EmailID: emailID})
			if err != nil || !o.ContentMissing {
				t.Errorf("the content of the email is missing: %v, %v", o.ContentMissing, err)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM email_bodies`); n != 0 {
			t.Errorf("%d bodies are left", n)
		}
		f.Counted(later())
		f.all(t, f.Emails.RemoveBefore, func() {})
		if _, err := f.Emails.Get(ctx, team, own); fault.KindOf(err) != fault.NotFound {
			t.Errorf("an old email is kept: %v", err)
		}
	})
}
