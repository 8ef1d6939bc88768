package receiving_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// operations holds the received emails and the SMTP session that the operations under test use.
type operations struct {
	*fixture
	t       *testing.T
	files   string // a reply, with an attachment, to the sent email
	sent    string // id of a sent email
	n       int    // number of the last bounced recipient
	email   receiving.Email
	session smtpserver.Session
}

func newOperations(t *testing.T, f *fixture) *operations {
	f.Counted(later())
	o := &operations{fixture: f, t: t, sent: f.send("jo@sender.example")}
	// This reference makes SentThread look up threads.
	if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `UPDATE email_bodies SET headers = '[{"Name":"References","Value":"<x@x.example>"}]'`)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	o.files = fmt.Sprintf("Message-ID: <f@x.example>\nIn-Reply-To: <%s@acme.example>\nSubject: Files\nMIME-Version: 1.0\n",
		o.sent) +
		"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Disposition: attachment; filename=a\n\nx\n--b--\n"
	o.receive()
	return o
}

// receive delivers an email with an attachment.
func (o *operations) receive() {
	o.deliver(o.t, o.files, "a@in.acme.example")
	o.email = o.list(o.t, o.Acme.TeamID)[0]
}

// begin begins an SMTP transaction.
func (o *operations) begin(from, to string) {
	o.t.Helper()
	var err error
	if o.session, err = o.fixture.begin(o.t, o.Service, from, to); err != nil {
		o.t.Fatal(err)
	}
}

// beginBounce sends an email and begins an SMTP transaction to its return path.
func (o *operations) beginBounce() {
	o.n++
	o.begin("", o.returnTo(o.send(fmt.Sprintf("ann%d@gone.example", o.n)), "gone.example"))
}

// beginSession begins a session without recipients on a node with an empty domain cache.
func (o *operations) beginSession() {
	o.DB.Hint("domains", "")
	var err error
	if o.session, err = o.Open(o.t.Context(), smtpserver.Peer{}); err != nil {
		o.t.Fatal(err)
	}
	ctx := context.WithoutCancel(o.t.Context())
	if err := o.session.Mail(ctx, "jo@sender.example", smtpserver.MailOptions{}); err != nil {
		o.t.Fatal(err)
	}
}

// temporary checks that an error from the session is a temporary SMTP failure, and returns the error.
func (o *operations) temporary(err error) error {
	if err != nil && answer(err)[0] != '4' {
		o.t.Errorf("it is refused by %s: %v", answer(err), err)
	}
	return err
}

// data sends the content of a message in the session.
func (o *operations) data(text string) error {
	_, err := o.session.Data(o.t.Context(), strings.NewReader(crlf(text)))
	return o.temporary(err)
}

// opened closes a download that was opened without an error.
func opened(d receiving.Download, err error) error {
	if err != nil {
		return err
	}
	return d.Body.Close()
}

// rows counts the received emails and the events.
func (o *operations) rows() int {
	return len(o.list(o.t, o.Acme.TeamID)) + o.Count(`SELECT COUNT(*) FROM email_events`)
}

// operation is an operation under test and its preparation, which may be nil. The field keeps is true if a failed
// operation must not change rows.
type operation struct {
	name    string
	prepare func()
	act     func() error
	keeps   bool
}

// reads returns the operations under test that only read.
func (o *operations) reads() []operation {
	ctx, team, e := o.t.Context(), o.Acme.TeamID, o.email
	file, _ := o.FileURL(team, e.ID, e.Files[0].ID, time.Now())
	raw, _ := o.RawURL(team, e.ID, time.Now())
	link, err := o.Share(ctx, team, e.ID, "")
	if err != nil {
		o.t.Fatal(err)
	}
	return []operation{
		{"List", nil, func() error { _, _, err := o.List(ctx, team, "", page.Page{}); return err }, true},
		{"a thread", nil, func() error { _, _, err := o.List(ctx, team, e.ID, page.Page{}); return err }, true},
		{"Get", nil, func() error {
			_, content, err := o.Get(ctx, team, e.ID, receiving.CID)
			if err == nil {
				content.Close()
			}
			return err
		}, true},
		{"Files", nil, func() error { _, _, err := o.Files(ctx, team, e.ID, page.Page{}); return err }, true},
		{"File", nil, func() error { _, err := o.File(ctx, team, e.ID, e.Files[0].ID); return err }, true},
		{"OpenFile", nil, func() error { return opened(o.OpenFile(ctx, token(file))) }, true},
		{"OpenRaw", nil, func() error { return opened(o.OpenRaw(ctx, token(raw))) }, true},
		{"SentThread", nil, func() error {
			thread, err := o.SentThread(ctx, team, o.sent)
			if err == nil && thread == "" {
				err = errors.New("it has no thread")
			}
			return err
		}, true},
		{"Share", nil, func() error { _, err := o.Share(ctx, team, e.ID, ""); return err }, true},
		{"Shared", nil, func() error {
			shared, err := o.Shared(ctx, link[strings.IndexByte(link, '=')+1:])
			if err == nil {
				shared.Close()
			}
			return err
		}, true},
	}
}

// writes returns the operations under test that write.
func (o *operations) writes() []operation {
	ctx, team := o.t.Context(), o.Acme.TeamID
	a, err := erasure.Parse("jo@sender.example")
	if err != nil {
		o.t.Fatal(err)
	}
	return []operation{
		{"a message", func() { o.begin("jo@sender.example", "a@in.acme.example") },
			func() error { return o.data(o.files) }, true},
		{"a recipient", o.beginSession,
			func() error { return o.temporary(o.session.Rcpt(ctx, "a@in.acme.example")) }, true},
		{"a bounce", o.beginBounce, func() error {
			return o.data(dsn("failed", "5.1.1", fmt.Sprintf("ann%d@gone.example", o.n), "550 5.1.1 no such user"))
		}, true},
		{"Delete", o.receive, func() error { return o.Delete(ctx, team, o.email.ID) }, false},
		{"RemoveBefore", o.receive, func() error {
			_, err := o.RemoveBefore(ctx, team, later(), "")
			return err
		}, false},
		{"EraseAddress", o.receive, func() error {
			_, err := o.EraseAddress(ctx, a, erasure.Scope{Teams: []string{team}})
			return err
		}, false},
		{"EraseTeam", o.receive, func() error { return o.EraseTeam(ctx, team) }, false},
	}
}

// If any SQL statement in an operation fails, the operation returns an error. If a statement fails while a message is
// received, the message is refused temporarily and no part of it is stored.
func TestOperationsWithoutAStatement(t *testing.T) {
	sqliteTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		o, team := newOperations(t, f), f.Acme.TeamID
		for _, v := range append(o.reads(), o.writes()...) {
			before := 0
			failed := trace.EachBroken(t, func() {
				if v.prepare != nil {
					v.prepare()
				}
				before = o.rows()
			}, v.act, func(err error) {
				if now := o.rows(); err != nil && v.keeps && now != before {
					t.Errorf("%s fails and has changed something: %v", v.name, err)
				}
			})
			if failed < 1 {
				t.Errorf("%s never fails", v.name)
			}
			if t.Failed() {
				t.Fatalf("at %s", v.name)
			}
		}
		if all := f.list(t, team); len(all) > 0 {
			t.Errorf("%d emails are left", len(all))
		}
		to, err := f.Emails.Recipients(t.Context(), team, o.sent)
		if err != nil || len(to) != 1 || to[0].State != emails.Queued {
			t.Errorf("%+v, %v", to, err)
		}
	})
}

// A failed deletion does not delete the raw message of an email that still exists. A link to a missing attachment fails
// with a NotFound fault.
func TestFailedDeletionsKeepTheMessage(t *testing.T) {
	sqliteTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		ctx, team := t.Context(), f.Acme.TeamID
		f.Counted(later())
		large := "Subject: Large\n\n" + strings.Repeat("Hello, hello.\n", 10_000)
		var e receiving.Email
		remaining := 0
		trace.EachBroken(t, func() {
			f.deliver(t, large, "a@in.acme.example")
			e = f.list(t, team)[0]
		}, func() error { return f.Delete(ctx, team, e.ID) }, func(err error) {
			for _, left := range f.list(t, team) {
				if left.ID == e.ID {
					remaining++
					if raw := f.rawOf(t, left); err == nil || len(raw) < len(large) {
						t.Errorf("it is left, %v, with %d bytes", err, len(raw))
					}
				}
			}
		})
		if remaining < 2 {
			t.Errorf("%d deletions have failed", remaining)
		}
		f.deliver(t, large, "a@in.acme.example")
		e = f.list(t, team)[0]
		link, _ := f.FileURL(team, e.ID, "none", time.Now())
		if _, err := f.OpenFile(ctx, link[strings.LastIndexByte(link, '/')+1:]); fault.KindOf(err) != fault.NotFound {
			t.Errorf("an attachment that there is not: %v", err)
		}
	})
}
