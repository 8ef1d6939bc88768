package emails_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/content"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/render"
)

// Whatever the values: an email that was entered can be composed, and is not larger than the limit.
func TestEnqueueValuesOfAHeader(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	html := "<p>hello</p>"
	c := content.Content{From: "Acme <news@acme.example>", Subject: "News", HTML: &html,
		Headers: []message.Field{{Name: "List-Unsubscribe", Value: "<https://acme.example/u/{{{TOKEN|x}}}>"}}}
	m := f.mailing(t, f.add(t, c))
	for _, n := range []int{1000, 17_000, 3 << 20} {
		e := f.enqueue(t, m, emails.To{Address: "ann@one.example", Values: render.Values{"TOKEN": strings.Repeat("t", n)}})[0]
		if e.Err != nil {
			continue
		}
		o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{EmailID: e.ID, To: []string{"ann@one.example"}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Emails.Compose(t.Context(), o); err != nil {
			t.Errorf("a value of %d octets is accepted; then: %v", n, err)
		}
	}
	if n := f.Count(`SELECT COALESCE(MAX(LENGTH(variables)), 0) FROM emails`); n > 2<<20 {
		t.Errorf("an email has %d octets of variables, more than a whole message may have", n)
	}
}

// The record that an email was not settled when its body was due goes with the email.
func TestContentsAfterBodyRetention(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	ctx := t.Context()
	used := f.add(t, news())
	got := f.enqueue(t, f.mailing(t, used), emails.To{Address: "ann@one.example"})
	f.Counted(later())
	f.all(t, f.Emails.RemoveBodies, func() {}) // it waits
	emailID := f.older(t, got[0].ID, 3*time.Hour)
	f.end(t, emailID, "email.delivered", "ann@one.example")
	f.change(`UPDATE email_events SET created_at = created_at - 3600000000`)
	f.Counted(later())
	f.all(t, f.Emails.RemoveBefore, func() {}) // body_retention was set to none meanwhile; email_retention stays
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
	// A content that was used, and released, before that email, and one since: both without emails.
	since := f.add(t, news())
	f.change(`UPDATE contents SET used_at = used_at - 9000000000 WHERE id = $1`, since)
	if err := f.Emails.SweepContents(ctx); err != nil {
		t.Fatal(err)
	}
	if n := f.Count(`SELECT COUNT(*) FROM contents`); n != 0 {
		t.Errorf("%d contents are kept for emails that are gone", n)
	}
}

// A content is bounded by what it takes to hold it, not only by what is left of it without values.
func TestMailingOfManyPlaceholders(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	html := "<p>" + strings.Repeat("{{{a}}}", 600_000) // 4 MB, and more than 25 MB once compiled
	c := content.Content{From: "Acme <news@acme.example>", Subject: "News", HTML: &html}
	m, err := f.Emails.Mailing(t.Context(), f.Acme, f.add(t, c), true)
	if err != nil {
		return
	}
	e := f.enqueue(t, m, emails.To{Address: "ann@one.example"})[0]
	size, err := f.Emails.Size(t.Context(), e.ID)
	if e.Err != nil || err != nil {
		t.Fatal(e.Err, err)
	}
	if size < int64(len(html)) {
		t.Errorf("a content of %d octets is accepted where a message may have 1 MB, and composing an email of it is said "+
			"to take %d octets", len(html), size)
	}
}

// After the clock was set back to before the time up to which bodies were deleted, a content stays for the emails that
// are accepted then and wait.
func TestContentsAfterAClockSetBack(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	before := f.enqueue(t, f.mailing(t, f.add(t, news())), emails.To{Address: "ann@one.example"})
	f.Counted(later())
	f.end(t, before[0].ID, "email.delivered", "ann@one.example")
	f.all(t, f.Emails.RemoveBodies, func() {}) // all bodies up to that email are deleted
	used := f.add(t, news())
	got := f.enqueue(t, f.mailing(t, used), emails.To{Address: "bob@one.example"})
	emailID := f.older(t, got[0].ID, 3*time.Hour) // it was accepted by a clock set back, and waits for three hours now
	if err := f.Emails.SweepContents(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := f.Count(`SELECT COUNT(*) FROM contents WHERE id = $1`, used); n != 1 {
		_, err := content.New(f.DB).Get(t.Context(), f.Acme.TeamID, used) // as after a restart
		t.Errorf("the content of email %s, which is %s, was deleted: %v", emailID, f.state(emailID), err)
	}
}
