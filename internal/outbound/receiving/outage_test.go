package receiving_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// If the database fails at any point while a message is accepted, the message is either refused temporarily or stored
// completely. If the outcome of the commit is unknown, the message may be both refused and stored.
func TestTakeWithoutDatabase(t *testing.T) {
	for name, text := range map[string]string{"small": "Hello.\n", "large": strings.Repeat("Hello, hello.\n", 10_000)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, proxy := dbtest.Proxied(t, 0)
			f := newFixture(t, d)
			var c smtpserver.Session
			before := 0
			failed := dbtest.EachTorn(t, proxy, func() {
				before = len(f.list(t, f.Acme.TeamID))
				var err error
				if c, err = f.begin(t, f.Service, "jo@sender.example", "a@in.acme.example"); err != nil {
					t.Fatal(err)
				}
			}, func() error {
				_, err := c.Data(t.Context(), strings.NewReader(crlf("Subject: Hi\nReferences: <a@b.example>\n\n"+text)))
				return err
			}, func(skip int, err error) {
				all := f.list(t, f.Acme.TeamID)
				if n := len(all) - before; n != 1 && (err == nil || n != 0) {
					t.Errorf("answer %d torn: %v; %d emails", skip, err, n)
				}
				if len(all) > before && !strings.HasSuffix(f.rawOf(t, all[0]), crlf(text)) {
					t.Errorf("answer %d torn: half an email is kept", skip)
				}
				if err != nil && answer(err)[0] != '4' {
					t.Errorf("answer %d torn: %v", skip, err)
				}
			})
			if failed < 1 {
				t.Errorf("%d messages failed: the test reaches too little", failed)
			}
		})
	}
}

// If only the answer to the commit of a message is lost, the message is accepted and stored once.
func TestAnswerOfCommitLost(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	f := newFixture(t, d)
	c, err := f.begin(t, f.Service, "jo@sender.example", "a@in.acme.example")
	if err != nil {
		t.Fatal(err)
	}
	proxy.LoseAnswers(1)
	if _, err := c.Data(t.Context(), strings.NewReader(crlf("Subject: Hi\n\nHello.\n"))); err != nil || proxy.Lost() != 1 {
		t.Errorf("%d answers were lost: %v", proxy.Lost(), err)
	}
	if all := f.list(t, f.Acme.TeamID); len(all) != 1 {
		t.Errorf("%d emails are stored", len(all))
	}
}

// If the database fails at any point while a bounce is accepted, the bounce is either refused temporarily or recorded
// completely.
func TestReportWithoutDatabase(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	f := newFixture(t, d)
	var c smtpserver.Session
	var id string
	n := 0
	dbtest.EachTorn(t, proxy, func() {
		n++
		id = f.send(fmt.Sprintf("ann%d@gone.example", n))
		var err error
		if c, err = f.begin(t, f.Service, "", f.returnTo(id, "gone.example")); err != nil {
			t.Fatal(err)
		}
	}, func() error {
		_, err := c.Data(t.Context(), strings.NewReader(crlf(dsn("failed", "5.1.1", fmt.Sprintf("ann%d@gone.example", n),
			"550 5.1.1 no such user"))))
		return err
	}, func(skip int, err error) {
		to, getErr := f.Emails.Recipients(t.Context(), f.Acme.TeamID, id)
		if getErr != nil {
			t.Fatal(getErr)
		}
		_, getErr = f.Suppressions.Get(t.Context(), f.Acme.TeamID, fmt.Sprintf("ann%d@gone.example", n))
		if bounced := to[0].State == emails.Bounced; !bounced && err == nil || bounced != (getErr == nil) {
			t.Errorf("answer %d torn: %v; the recipient is %s, its suppression: %v", skip, err, to[0].State, getErr)
		}
		if err != nil && answer(err)[0] != '4' {
			t.Errorf("answer %d torn: %v", skip, err)
		}
	})
	if n < 4 {
		t.Errorf("%d reports: the test reaches too little", n)
	}
}

// While the database is unavailable, no operation reports success, and none reports that an email is missing.
func TestVerbsWithoutDatabase(t *testing.T) {
	d := dbtest.SQLite(t)
	f := newFixture(t, d)
	f.deliver(t, "Subject: Files\nMIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n"+
		"Content-Disposition: attachment; filename=a\n\nx\n--b--\n", "a@in.acme.example")
	e := f.list(t, f.Acme.TeamID)[0]
	file, _ := f.FileURL(e.TeamID, e.ID, e.Files[0].ID, time.Now())
	raw, _ := f.RawURL(e.TeamID, e.ID, time.Now())
	d.Close()
	ctx := t.Context()
	for name, f := range map[string]func() error{
		"List":       func() error { _, _, err := f.List(ctx, e.TeamID, "", page.Page{}); return err },
		"a thread":   func() error { _, _, err := f.List(ctx, e.TeamID, e.ID, page.Page{}); return err },
		"Get":        func() error { _, _, err := f.Get(ctx, e.TeamID, e.ID, receiving.CID); return err },
		"Files":      func() error { _, _, err := f.Files(ctx, e.TeamID, e.ID, page.Page{}); return err },
		"File":       func() error { _, err := f.File(ctx, e.TeamID, e.ID, e.Files[0].ID); return err },
		"OpenFile":   func() error { _, err := f.OpenFile(ctx, token(file)); return err },
		"OpenRaw":    func() error { _, err := f.OpenRaw(ctx, token(raw)); return err },
		"SentThread": func() error { _, err := f.SentThread(ctx, e.TeamID, e.ID); return err },
		"EraseTeam":  func() error { return f.EraseTeam(ctx, e.TeamID) },
	} {
		if err := f(); !fault.Ours(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
