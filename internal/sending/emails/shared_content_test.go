package emails_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
)

// Every email that Enqueue accepts can be composed and does not exceed the size limit, whatever the values of its
// placeholders are.
func TestEnqueueValuesOfAHeader(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	html := "<p>hello</p>"
	c := content.Content{From: "Acme <news@acme.example>", Subject: "News", HTML: &html,
		Headers: []message.Field{{Name: "List-Unsubscribe", Value: "<https://acme.example/u/{{{TOKEN|x}}}>"}}}
	m := f.mailing(t, f.add(t, c))
	for _, n := range []int{1000, 17_000, 3 << 20} {
		e := f.enqueue(t, m, emails.MailingRecipient{Address: "ann@one.example",
			Values: render.Values{"TOKEN": strings.Repeat("t", n)}})[0]
		if e.Err != nil {
			continue
		}
		o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID,
			EmailID: e.ID, To: []string{"ann@one.example"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Emails.Compose(t.Context(), o); err != nil {
			t.Errorf("a value of %d bytes is accepted; then: %v", n, err)
		}
	}
	if n := f.Count(`SELECT COALESCE(MAX(LENGTH(variables)), 0) FROM emails`); n > 2<<20 {
		t.Errorf("an email has %d bytes of variables, more than a whole message may have", n)
	}
}

// If an email is not settled when its body is due for deletion, the skipped body is recorded. When the email is
// deleted, the record of the skipped body is deleted too.
func TestContentsAfterBodyRetention(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	ctx := t.Context()
	used := f.add(t, news())
	got := f.enqueue(t, f.mailing(t, used), emails.MailingRecipient{Address: "ann@one.example"})
	f.Counted(later())
	f.all(t, f.Emails.RemoveBodies, func() {}) // it waits
	emailID := f.older(t, got[0].ID, 3*time.Hour)
	f.end(t, emailID, "email.delivered", "ann@one.example")
	f.change(`UPDATE email_events SET created_at = created_at - 3600000000`)
	f.Counted(later())
	f.all(t, f.Emails.RemoveBefore, func() {}) // only email_retention applies now, as if body_retention had been unset
	if n := f.Count(`SELECT COUNT(*) FROM emails`); n != 0 {
		t.Fatalf("%d emails are left", n)
	}
	if n := f.Count(`SELECT COUNT(*) FROM email_bodies_left`); n != 0 {
		t.Errorf("%d records of deleted emails are left", n)
	}
	f.change(`UPDATE contents SET used_at = used_at - 14400000000`)
	if err := f.Emails.SweepContents(ctx); err != nil {
		t.Fatal(err)
	}
	// One of the two contents was last used before the deleted email was created, the other one afterwards. No email uses
	// either content now.
	since := f.add(t, news())
	f.change(`UPDATE contents SET used_at = used_at - 9000000000 WHERE id = $1`, db.ID(since))
	if err := f.Emails.SweepContents(ctx); err != nil {
		t.Fatal(err)
	}
	if n := f.Count(`SELECT COUNT(*) FROM contents`); n != 0 {
		t.Errorf("%d contents are kept for emails that are gone", n)
	}
}

// The size limit for content applies to its memory use, not only to its text without values.
func TestMailingOfManyPlaceholders(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	html := "<p>" + strings.Repeat("{{{a}}}", 600_000) // 4 MB as a string, but more than 25 MB once compiled
	c := content.Content{From: "Acme <news@acme.example>", Subject: "News", HTML: &html}
	m, err := f.Emails.Mailing(t.Context(), f.Acme, f.add(t, c), true)
	if err != nil {
		return
	}
	e := f.enqueue(t, m, emails.MailingRecipient{Address: "ann@one.example"})[0]
	size, err := f.Emails.Size(t.Context(), f.Acme.TeamID, e.ID)
	if e.Err != nil || err != nil {
		t.Fatal(e.Err, err)
	}
	if size < int64(len(html)) {
		t.Errorf("a content of %d bytes is accepted where a message may have 1 MB, and composing an email of it is said "+
			"to take %d bytes", len(html), size)
	}
}

// If the clock is set back, emails accepted afterwards have smaller ids than the first email recorded for the content.
// Even so, SweepContents keeps the content of emails until they are settled.
func TestContentsAfterAClockSetBack(t *testing.T) {
	path := dbtest.SQLiteFile(t)
	var acme teams.Actor
	var used string
	var before, got []emails.EnqueueResult
	deliver := func(t *testing.T, f *fixture, emailID string) {
		t.Helper()
		f.end(t, emailID, "email.delivered", "ann@one.example")
		if err := f.Emails.DeleteContent(t.Context(), acme.TeamID, emailID); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(t *testing.T, f *fixture) {
		t.Helper()
		time.Sleep(5 * time.Hour)
		if err := f.Emails.SweepContents(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.Open(t, path))
		acme, used = f.Acme, f.add(t, news())
		time.Sleep(50 * time.Minute)
		before = f.enqueue(t, f.mailing(t, used), emails.MailingRecipient{Address: "ann@one.example"})
		sweep(t, f)
		if n := f.Count(`SELECT COUNT(*) FROM contents WHERE from_id = $1`, db.ID(before[0].ID)); n != 1 {
			t.Error("the sweep did not note with which email those of the content begin")
		}
	})
	synctest.Test(t, func(t *testing.T) { // in this test, the clock starts again at midnight, so it is set back
		f := &fixture{Node: testnode.Bare(t, dbtest.Open(t, path), testnode.Options{})}
		f.Acme = acme
		got = f.enqueue(t, f.mailing(t, used), emails.MailingRecipient{Address: "ann@one.example"})
		if got[0].ID > before[0].ID {
			t.Fatal("the clock is not set back")
		}
		deliver(t, f, before[0].ID)
		sweep(t, f)
		f.compose(t, got[0].ID)
		if e, err := f.Emails.Get(t.Context(), acme.TeamID, got[0].ID); err != nil || e.HTML == nil {
			t.Errorf("the content of the email that waits was deleted: %v", err)
		}
		deliver(t, f, got[0].ID)
		sweep(t, f)
		if n := f.Count(`SELECT COUNT(*) FROM contents`); n != 0 {
			t.Errorf("%d contents are left for no email", n)
		}
	})
}

// In limited steps, a sweep searches for the first email that uses the content. As long as the email that was found
// uses the content, later sweeps do not repeat the search.
func TestSweepContentsInSteps(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d)
		used, others := f.add(t, news()), f.mailing(t, f.add(t, news()))
		var to []emails.MailingRecipient
		for i := range emails.MaxEnqueue {
			to = append(to, emails.MailingRecipient{Address: fmt.Sprintf("r%d@one.example", i)})
		}
		for range 3 {
			f.enqueue(t, others, to...)
		}
		emailID := f.enqueue(t, f.mailing(t, used), to[:1]...)[0].ID
		rows, err := d.Query(t.Context(), `SELECT id FROM emails WHERE id <> $1`, db.ID(emailID))
		earlier, err := db.Collect(rows, err, func(r db.Row) (id db.ID, err error) { err = r.Scan(&id); return id, err })
		if err != nil {
			t.Fatal(err)
		}
		f.Update(func(tx *db.Tx) error {
			for _, e := range earlier {
				tx.Queue(t.Context(), `UPDATE emails SET id = $2 WHERE id = $1`, db.ID(e),
					db.ID(id.First(tx.Now().Add(-4 * time.Hour))[:13])+e[13:])
			}
			return nil
		})
		emailID = f.older(t, emailID, 3*time.Hour)
		f.change(`UPDATE contents SET from_id = $1`, db.ID(id.First(d.Now().Add(-5*time.Hour))))
		sweep := func() (steps int) {
			t.Helper()
			trace.Take()
			if err := f.Emails.SweepContents(t.Context()); err != nil {
				t.Fatal(err)
			}
			for _, s := range trace.Take() {
				if strings.Contains(s.SQL, "WHERE x.content_id = $2") {
					steps++
				}
			}
			return steps
		}
		if n := sweep(); n != 2 {
			t.Errorf("1,501 emails are looked at in %d steps", n)
		}
		if n := f.Count(`SELECT COUNT(*) FROM contents WHERE id = $1 AND from_id = $2`, db.ID(used),
			db.ID(emailID)); n != 1 {
			t.Error("it is not noted that the emails of the content begin with the last")
		}
		if n := sweep(); n != 0 {
			t.Errorf("while that email has it, emails are looked at in %d steps", n)
		}
		f.end(t, emailID, "email.delivered", "r0@one.example")
		if err := f.Emails.DeleteContent(t.Context(), f.Acme.TeamID, emailID); err != nil {
			t.Fatal(err)
		}
		if n := sweep(); n != 1 {
			t.Errorf("the last is looked at in %d steps", n)
		}
		if n := f.Count(`SELECT COUNT(*) FROM contents WHERE id = $1`, db.ID(used)); n != 0 {
			t.Error("a content that no email has is left")
		}
	})
}

// To find out whether content is used, a sweep reads a limited number of the team's emails, and the next sweep
// continues after them.
func TestSweepContentsGoesOn(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	f.add(t, news())
	emailID := f.older(t, f.Send(hello("ann@one.example")), 3*time.Hour)
	f.change(`INSERT INTO emails (id, team_id, actor_id, domain_id, message_id, sender, subject, recipients, tags,
		topic_id, template_id, broadcast_id, last_event, rank, scheduled_at, created_at, actor_kind)
		WITH RECURSIVE more (n) AS (SELECT 100000 UNION ALL SELECT n + 1 FROM more WHERE n < 210000)
		SELECT CAST(SUBSTR(e.id, 1, 13) || UNHEX(n) AS BLOB), team_id, NULL, NULL, '', '', '', '', '', NULL, NULL, NULL,
		last_event, rank, NULL, 0, 1 FROM emails e, more WHERE e.id = $1 AND SUBSTR(e.id, 14) <> UNHEX(n)`, db.ID(emailID))
	f.change(`UPDATE contents SET used_at = $1, from_id = $2`, f.DB.Now().Add(-3*time.Hour).UnixMicro(),
		db.ID(emailID[:30]+"000000"))
	for i, want := range []int{1, 0} {
		if err := f.Emails.SweepContents(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM contents WHERE from_id > $1 AND from_id < $2`,
			db.ID(emailID[:30]+"000000"), db.ID(emailID[:30]+"ffffff")); n != want {
			t.Errorf("after sweep %d, %d contents are left that were looked for up to an email", i, n)
		}
	}
	if n := f.Count(`SELECT COUNT(*) FROM contents`); n != 0 {
		t.Errorf("%d contents are left", n)
	}
}

// A part of the sweep deletes the contents of the teams whose short ids are in its range, and no others.
func TestSweepContentsInParts(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.add(t, news())
		f.change(`UPDATE contents SET used_at = 1`)
		short := int64(f.Count(`SELECT short_id FROM teams WHERE id = $1`, db.ID(f.Acme.TeamID)))
		own := jobs.Part{Of: 4}
		for after, last := own.Range(); short <= after || short > last; after, last = own.Range() {
			own.N++
		}
		for n := range own.Of {
			if p := (jobs.Part{N: n, Of: own.Of}); p != own {
				f.Must(f.Emails.SweepContentsPart(t.Context(), p))
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM contents`); n != 1 {
			t.Errorf("after the parts of other teams, %d contents are left", n)
		}
		f.Must(f.Emails.SweepContentsPart(t.Context(), own))
		if n := f.Count(`SELECT COUNT(*) FROM contents`); n != 0 {
			t.Errorf("after the part of the team, %d contents are left", n)
		}
	})
}
