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

// If any statement of an operation fails, the operation returns an error. A message is refused temporarily, and nothing
// of it is stored.
func TestVerbsWithoutAStatement(t *testing.T) {
	sqliteTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		ctx, team := t.Context(), f.Acme.TeamID
		f.Counted(later())
		sent := f.send("jo@sender.example")
		if err := f.DB.Update(ctx, func(tx *db.Tx) error { // a reference, so that conversations are looked up
			tx.Queue(ctx, `UPDATE email_bodies SET headers = '[{"Name":"References","Value":"<x@x.example>"}]'`)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		files := fmt.Sprintf("Message-ID: <f@x.example>\nIn-Reply-To: <%s@acme.example>\nSubject: Files\nMIME-Version: 1.0\n",
			sent) +
			"Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Disposition: attachment; filename=a\n\nx\n--b--\n"
		var e receiving.Email
		var c smtpserver.Session
		one := func() {
			f.deliver(t, files, "a@in.acme.example")
			e = f.list(t, team)[0]
		}
		one()
		file, _ := f.FileURL(team, e.ID, e.Files[0].ID, time.Now())
		raw, _ := f.RawURL(team, e.ID, time.Now())
		link, err := f.Share(ctx, team, e.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		begin := func(from, to string) {
			t.Helper()
			if c, err = f.begin(t, f.Service, from, to); err != nil {
				t.Fatal(err)
			}
		}
		data := func(text string) func() error {
			return func() error {
				_, err := c.Data(ctx, strings.NewReader(crlf(text)))
				if err != nil && answer(err)[0] != '4' {
					t.Errorf("it is refused by %s: %v", answer(err), err)
				}
				return err
			}
		}
		rcpt := func(to string) func() error {
			return func() error {
				err := c.Rcpt(ctx, to)
				if err != nil && answer(err)[0] != '4' {
					t.Errorf("%s is refused by %s: %v", to, answer(err), err)
				}
				return err
			}
		}
		opened := func(d receiving.Download, err error) error {
			if err != nil {
				return err
			}
			return d.Body.Close()
		}
		a, err := erasure.Parse("jo@sender.example")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		fresh := func() {
			n++
			to := fmt.Sprintf("ann%d@gone.example", n)
			begin("", f.returnTo(f.send(to), "gone.example"))
		}
		domain := func() {
			f.DB.Hint("domains", "")
			if c, err = f.Open(ctx, smtpserver.Peer{}); err != nil {
				t.Fatal(err)
			}
			if err := c.Mail(context.WithoutCancel(ctx), "jo@sender.example", smtpserver.MailOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for _, v := range []struct {
			name    string
			prepare func()
			act     func() error
			may     []string // statements whose failure does not matter
			keeps   bool
		}{
			{"List", nil, func() error { _, _, err := f.List(ctx, team, "", page.Page{}); return err }, nil, true},
			{"a thread", nil, func() error { _, _, err := f.List(ctx, team, e.ID, page.Page{}); return err }, nil, true},
			{"Get", nil, func() error {
				_, content, err := f.Get(ctx, team, e.ID, receiving.CID)
				if err == nil {
					content.Close()
				}
				return err
			}, nil, true},
			{"Files", nil, func() error { _, _, err := f.Files(ctx, team, e.ID, page.Page{}); return err }, nil, true},
			{"File", nil, func() error { _, err := f.File(ctx, team, e.ID, e.Files[0].ID); return err }, nil, true},
			{"OpenFile", nil, func() error { return opened(f.OpenFile(ctx, token(file))) }, nil, true},
			{"OpenRaw", nil, func() error { return opened(f.OpenRaw(ctx, token(raw))) }, nil, true},
			{"SentThread", nil, func() error {
				thread, err := f.SentThread(ctx, team, sent)
				if err == nil && thread == "" {
					err = errors.New("it has no thread")
				}
				return err
			}, nil, true},
			{"Share", nil, func() error { _, err := f.Share(ctx, team, e.ID, ""); return err }, nil, true},
			{"Shared", nil, func() error {
				shared, err := f.Shared(ctx, link[strings.IndexByte(link, '=')+1:])
				if err == nil {
					shared.Close()
				}
				return err
			}, nil, true},
			{"a message", func() { begin("jo@sender.example", "a@in.acme.example") }, data(files), nil, true},
			{"a recipient", domain, rcpt("a@in.acme.example"), nil, true},
			{"a bounce", fresh, func() error {
				return data(dsn("failed", "5.1.1", fmt.Sprintf("ann%d@gone.example", n), "550 5.1.1 no such user"))()
			}, nil, true},
			{"Delete", one, func() error { return f.Delete(ctx, team, e.ID) }, nil, false},
			{"RemoveBefore", one, func() error { _, err := f.RemoveBefore(ctx, team, later(), ""); return err }, nil, false},
			{"EraseAddress", one, func() error {
				_, err := f.EraseAddress(ctx, a,
					erasure.Scope{Teams: []string{team}})
				return err
			}, nil, false},
			{"EraseTeam", one, func() error { return f.EraseTeam(ctx, team) }, nil, false},
		} {
			before := 0
			failed := trace.EachBroken(t, func() {
				if v.prepare != nil {
					v.prepare()
				}
				before = len(f.list(t, team)) + f.Count(`SELECT COUNT(*) FROM email_events`)
			}, v.act, func(err error) {
				now := len(f.list(t, team)) + f.Count(`SELECT COUNT(*) FROM email_events`)
				if err != nil && v.keeps && now != before {
					t.Errorf("%s fails and has changed something: %v", v.name, err)
				}
			}, v.may...)
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
		if to, err := f.Emails.Recipients(ctx, team, sent); err != nil || len(to) != 1 || to[0].State != emails.Queued {
			t.Errorf("%+v, %v", to, err)
		}
	})
}

// A failed deletion keeps the raw message of an email that still exists. A link to a missing attachment is a NotFound
// fault.
func TestFailedDeletionsKeepTheMessage(t *testing.T) {
	sqliteTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		ctx, team := t.Context(), f.Acme.TeamID
		f.Counted(later())
		large := "Subject: Large\n\n" + strings.Repeat("Hello, hello.\n", 10_000)
		var e receiving.Email
		kept := 0
		trace.EachBroken(t, func() {
			f.deliver(t, large, "a@in.acme.example")
			e = f.list(t, team)[0]
		}, func() error { return f.Delete(ctx, team, e.ID) }, func(err error) {
			for _, left := range f.list(t, team) {
				if left.ID == e.ID {
					kept++
					if raw := f.rawOf(t, left); err == nil || len(raw) < len(large) {
						t.Errorf("it is left, %v, with %d bytes", err, len(raw))
					}
				}
			}
		})
		if kept < 2 {
			t.Errorf("%d deletions have failed", kept)
		}
		f.deliver(t, large, "a@in.acme.example")
		e = f.list(t, team)[0]
		link, _ := f.FileURL(team, e.ID, "none", time.Now())
		if _, err := f.OpenFile(ctx, link[strings.LastIndexByte(link, '/')+1:]); fault.KindOf(err) != fault.NotFound {
			t.Errorf("an attachment that there is not: %v", err)
		}
	})
}
