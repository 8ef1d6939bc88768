package emails_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// later returns a time two days from now, at which all rows in a test count as old.
func later() time.Time { return time.Now().Add(48 * time.Hour) }

func (f *fixture) change(text string, args ...any) {
	f.T.Helper()
	f.Update(func(tx *db.Tx) error { tx.Queue(f.T.Context(), text, args...); return nil })
}

// end records an event of the given type, which settles the given recipients of an email.
func (f *fixture) end(t *testing.T, emailID string, typ events.Type, recipients ...string) {
	t.Helper()
	for _, to := range recipients {
		f.Happen(events.Event{TeamID: f.Acme.TeamID, EmailID: emailID, Type: typ, Recipient: to,
			Attempt: &events.Attempt{Destination: "one.example", Recipients: recipients, Outcome: "delivered",
				Conversation: "250 ok"}})
	}
}

// step is a function that deletes one batch of rows.
type step = func(ctx context.Context, teamID string, before time.Time, after string) (string, error)

// all calls the function do until all old rows are deleted. After each batch, all calls the function check.
func (f *fixture) all(t *testing.T, do step, check func()) (batches int) {
	t.Helper()
	for after := ""; ; {
		var err error
		if after, err = do(t.Context(), f.Acme.TeamID, later(), after); err != nil {
			t.Fatal(err)
		}
		check()
		if batches++; after == "" {
			return batches
		}
		if batches > 1000 {
			t.Fatal("it does not come to an end")
		}
	}
}

// perEmail lists the tables in which each test email has rows, each with a condition that selects the rows for one
// email.
var perEmail = map[string]string{"email_bodies": "TRUE", "email_recipients": "e.recipient = ''",
	"email_events": "e.last_event <> 2 /* queued */"}

// whole fails the test if an email has no rows in one of the tables, or if rows exist without their email.
func (f *fixture) whole(t *testing.T) {
	t.Helper()
	for table, when := range perEmail {
		if n := f.Count(`SELECT COUNT(*) FROM emails e WHERE ` + when + ` AND NOT EXISTS (SELECT 1 FROM ` + table + ` x WHERE
			x.email_id = e.id)`); n > 0 {
			t.Errorf("%d emails have nothing in %s", n, table)
		}
	}
	for _, table := range []string{"email_bodies", "email_recipients", "email_events", "email_attachments",
		"email_messages"} {
		if n := f.Count(`SELECT COUNT(*) FROM ` + table + ` x WHERE NOT EXISTS (SELECT 1 FROM emails e WHERE e.id =
			x.email_id)`); n > 0 {
			t.Errorf("%d rows of %s have no email", n, table)
		}
	}
}

// sent creates emails of every kind and returns the ids of those that are settled and of those that are not.
func (f *fixture) sent(t *testing.T) (settled, waiting []string) {
	t.Helper()
	with := hello("a@one.example", "b@two.example")
	with.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("file"), HasContent: true}}
	large := composed(message.Address{Local: "a", Domain: "one.example"})
	large.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000))
	for i := range 4 {
		delivered := f.Send(with)
		f.end(t, delivered, events.EmailDelivered, "a@one.example")
		if i%2 == 0 {
			waiting = append(waiting, delivered) // the other recipient is not settled yet
		} else {
			f.end(t, delivered, events.EmailBounced, "b@two.example")
			settled = append(settled, delivered)
		}
		raw, err := f.Emails.SendRaw(t.Context(), f.Acme, large, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			waiting = append(waiting, raw)
			continue
		}
		f.end(t, raw, events.EmailComplained, "a@one.example")
		settled = append(settled, raw)
	}
	s := hello("a@one.example")
	s.ScheduledAt = "in 1 hour"
	scheduled, canceled := f.Send(s), f.Send(s)
	if err := f.Emails.Cancel(t.Context(), f.Acme.TeamID, canceled); err != nil {
		t.Fatal(err)
	}
	return append(settled, canceled), append(waiting, scheduled)
}

// sendable fails the test if an email that waits for delivery cannot be composed.
func (f *fixture) sendable(t *testing.T, emailID string) {
	t.Helper()
	o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID, EmailID: emailID})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := f.Emails.Compose(t.Context(), o); err != nil || !strings.Contains(string(text), "Hello.") {
		t.Errorf("email %s has %d bytes, %v", emailID, len(text), err)
	}
}

// RemoveBefore deletes all emails that are old and settled, with all their rows and files, and no others.
func TestRemoveBefore(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, team := t.Context(), f.Acme.TeamID
		other, err := f.Teams.Create(ctx, "Other", "")
		if err != nil {
			t.Fatal(err)
		}
		settled, waiting := f.sent(t)
		file, _, err := f.Emails.Attachments(ctx, team, settled[0], page.Page{})
		if err != nil || len(file) != 1 {
			t.Fatalf("%d attachments, %v", len(file), err)
		}
		link, _ := f.Emails.DownloadURL(&file[0], time.Now())
		if _, err := f.Emails.RemoveBefore(ctx, team, later(), ""); err != nil {
			t.Fatal(err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != len(settled)+len(waiting) {
			t.Errorf("%d emails are left of which nothing was counted yet", n)
		}
		f.Counted(later())
		for _, x := range []struct {
			team   string
			before time.Time
		}{{other.ID, later()}, {team, time.Now().Add(-time.Minute)}} {
			if next, err := f.Emails.RemoveBefore(ctx, x.team, x.before, ""); next != "" || err != nil {
				t.Errorf("it goes on at %q, %v", next, err)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != len(settled)+len(waiting) {
			t.Errorf("%d emails are left of those that are young", n)
		}
		f.all(t, f.Emails.RemoveBefore, func() { f.whole(t) })
		for _, emailID := range settled {
			if _, err := f.Emails.Get(ctx, team, emailID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("email %s: %v", emailID, err)
			}
			if err := f.Emails.Cancel(ctx, team, emailID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("cancel email %s: %v", emailID, err)
			}
			if _, err := f.Emails.Outgoing(ctx, emails.Delivery{TeamID: f.Acme.TeamID,
				EmailID: emailID}); err != emails.ErrGone {
				t.Errorf("deliver email %s: %v", emailID, err)
			}
			if _, err := f.Emails.BounceTarget(ctx, tokens.Ref{EmailID: emailID}); fault.KindOf(err) != fault.NotFound {
				t.Errorf("a report about email %s: %v", emailID, err)
			}
		}
		_, _, err = f.Emails.Download(ctx, strings.TrimPrefix(link, testnode.PublicURL+"/download/"))
		if fault.KindOf(err) != fault.NotFound {
			t.Errorf("a download of what is deleted: %v", err)
		}
		for _, emailID := range waiting {
			f.sendable(t, emailID)
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != len(waiting) {
			t.Errorf("%d emails are left, want %d", n, len(waiting))
		}
		if keys := f.keys(t); len(keys) != 4 {
			t.Errorf("left are the files %v", keys)
		}
	})
}

// RemoveBodies deletes only an email's content and keeps its other rows. RemoveSkippedBodies later deletes the content
// of emails that were not settled before. While content is deleted, no email is read twice.
func TestRemoveBodies(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d)
		ctx, team := t.Context(), f.Acme.TeamID
		settled, waiting := f.sent(t)
		rows := func(table string) int { return f.Count(`SELECT COUNT(*) FROM ` + table) }
		recipients, happened := rows("email_recipients"), rows("email_events")
		file, _, err := f.Emails.Attachments(ctx, team, settled[0], page.Page{})
		if err != nil || len(file) != 1 {
			t.Fatalf("%d attachments, %v", len(file), err)
		}
		link, _ := f.Emails.DownloadURL(&file[0], time.Now())
		f.all(t, f.Emails.RemoveBodies, func() {})
		for _, emailID := range settled {
			e, err := f.Emails.Get(ctx, team, emailID)
			if err != nil || e.HTML != nil || e.Text != nil || e.Subject != "Hi" {
				t.Errorf("email %s: %+v, %v", emailID, e, err)
			}
			if files, _, err := f.Emails.Attachments(ctx, team, emailID, page.Page{}); err != nil || len(files) > 0 {
				t.Errorf("email %s has %d attachments, %v", emailID, len(files), err)
			}
			if attempts, _, err := f.Emails.Attempts(ctx, team, emailID, page.Page{}); err != nil ||
				len(attempts) == 0 && e.LastEvent != emails.Canceled {
				t.Errorf("email %s has %d attempts, %v", emailID, len(attempts), err)
			}
			if _, err := f.Emails.Share(ctx, team, emailID, ""); err != nil {
				t.Errorf("share email %s: %v", emailID, err)
			}
			f.Happen(events.Event{TeamID: team, EmailID: emailID, Type: events.EmailOpened, Recipient: "a@one.example"})
			happened++
		}
		_, err = f.Emails.Attachment(ctx, team, settled[0], file[0].ID)
		_, _, downloading := f.Emails.Download(ctx, strings.TrimPrefix(link, testnode.PublicURL+"/download/"))
		if fault.KindOf(err) != fault.NotFound || fault.KindOf(downloading) != fault.NotFound {
			t.Errorf("an attachment that is deleted: %v; its download: %v", err, downloading)
		}
		for _, emailID := range waiting {
			f.sendable(t, emailID)
		}
		if len(f.keys(t)) != 4 || rows("email_recipients") != recipients || rows("email_events") != happened {
			t.Errorf("left are the files %v, %d recipients, %d events", f.keys(t), rows("email_recipients"),
				rows("email_events"))
		}
		f.all(t, f.Emails.RemoveSkippedBodies, func() {})
		if rows("email_bodies") != len(waiting) || rows("email_bodies_left") != len(waiting) {
			t.Errorf("%d bodies and %d notes are left, want %d", rows("email_bodies"), rows("email_bodies_left"), len(waiting))
		}
		for _, emailID := range waiting {
			f.end(t, emailID, events.EmailDelivered, "a@one.example", "b@two.example")
		}
		trace.Take()
		f.all(t, f.Emails.RemoveBodies, func() {})
		if asked := trace.Take(); len(asked) != 2 {
			t.Errorf("%d statements when nothing is new", len(asked))
		}
		f.all(t, f.Emails.RemoveSkippedBodies, func() {})
		if rows("email_bodies") > 0 || rows("email_messages") > 0 || rows("email_bodies_left") > 0 || len(f.keys(t)) > 0 {
			t.Errorf("left are %d bodies, %d messages, %d notes and the files %v", rows("email_bodies"), rows("email_messages"),
				rows("email_bodies_left"), f.keys(t))
		}
	})
}

// DeleteContent deletes the content of a single email, unless the email still has to be delivered.
func TestDeleteContent(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, team := t.Context(), f.Acme.TeamID
		settled, waiting := f.sent(t)
		if err := f.Emails.DeleteContent(ctx, team, settled[0]); err != nil {
			t.Fatal(err)
		}
		if e, err := f.Emails.Get(ctx, team, settled[0]); err != nil || e.Text != nil {
			t.Errorf("it has %+v, %v", e, err)
		}
		if err := f.Emails.DeleteContent(ctx, team, waiting[0]); fault.KindOf(err) != fault.Invalid {
			t.Errorf("of one that waits: %v", err)
		}
		if err := f.Emails.DeleteContent(ctx, id.New(), settled[1]); fault.KindOf(err) != fault.NotFound {
			t.Errorf("of another team's: %v", err)
		}
		f.sendable(t, waiting[0])
		if e, err := f.Emails.Get(ctx, team, settled[2]); err != nil || e.Text == nil {
			t.Errorf("another has %+v, %v", e, err)
		}
	})
}

// RemoveTimelines deletes all events and attempts of an email that has had no recent events, but keeps the email.
func TestRemoveTimelines(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, team := t.Context(), f.Acme.TeamID
		settled, waiting := f.sent(t)
		f.Counted(later())
		active := settled[0]
		f.change(`UPDATE email_events SET created_at = created_at + $2 WHERE email_id = $1 AND type = 5 /* delivered */`,
			db.ID(active),
			(72 * time.Hour).Microseconds())
		f.change(`UPDATE email_counts_until SET until = until + $1`, (72 * time.Hour).Microseconds())
		of := func(emailID string) string {
			attempts, _, err := f.Emails.Attempts(ctx, team, emailID, page.Page{})
			if err != nil {
				t.Fatal(err)
			}
			timeline, _, err := f.Emails.Timeline(ctx, team, emailID, page.Page{})
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(len(timeline), " events, ", len(attempts), " attempts")
		}
		before := map[string]string{}
		for _, emailID := range append(slices.Clone(waiting), active) {
			before[emailID] = of(emailID)
		}
		f.all(t, f.Emails.RemoveTimelines, func() {})
		for _, emailID := range settled {
			want := "0 events, 0 attempts"
			if emailID == active {
				want = before[active]
			}
			if got := of(emailID); got != want {
				t.Errorf("email %s has %s, want %s", emailID, got, want)
			}
			if e, err := f.Emails.Get(ctx, team, emailID); err != nil || emailID == active && e.Text == nil {
				t.Errorf("email %s: %+v, %v", emailID, e, err)
			}
		}
		for _, emailID := range waiting {
			if got := of(emailID); got != before[emailID] {
				t.Errorf("email %s has %s, want %s", emailID, got, before[emailID])
			}
		}
	})
}

// fill creates delivered emails, each with a row in every table, and returns their ids.
func (f *fixture) fill(t testing.TB, n int) (ids []string) {
	t.Helper()
	for some := range slices.Chunk(make([]int, n), 200) {
		err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			for range some {
				emailID := id.At(tx.Now())
				ids = append(ids, emailID)
				fillOne(t.Context(), tx, f.Acme.TeamID, f.Sender.ID, emailID)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return ids
}

func fillOne(ctx context.Context, tx *db.Tx, teamID, domainID, emailID string) {
	now := tx.Now().UnixMicro()
	tx.Queue(ctx, `INSERT INTO emails (id, team_id, actor_id, domain_id, message_id, sender, subject, recipients, tags,
		topic_id, template_id, broadcast_id, last_event, rank, scheduled_at, created_at, actor_kind)
		VALUES ($1, $2, NULL, $3, $5, 'a@acme.example', 's', '{"to":["b@one.example"]}', '', NULL, NULL, NULL, 5, 40, NULL,
			$4, 1)`, db.ID(emailID), db.ID(teamID), db.ID(domainID), now, emailID)
	if tx.OneWriter() {
		tx.Queue(ctx, `INSERT INTO email_bodies (email_id, team_id, html, body_text, parts, headers) VALUES ($1, $2,
			'<p>Hello.', 'Hello.', 3, '')`, db.ID(emailID), db.ID(teamID))
	} else {
		tx.Queue(ctx, `UPDATE emails SET html = '<p>Hello.', body_text = 'Hello.', parts = 3, headers = '' WHERE id = $1`,
			db.ID(emailID))
	}
	tx.Queue(ctx, `INSERT INTO email_recipients (email_id, position, team_id, kind, address, domain, state, rank,
		updated_at)
		VALUES ($1, 0, $2, 1, 'b@one.example', 'one.example', 5, 40, $3)`, db.ID(emailID), db.ID(teamID), now)
	for _, typ := range []int{3, 5, 6, 7} { // sent, delivered, opened, clicked
		tx.Queue(ctx, `INSERT INTO email_events (id, team_id, email_id, domain_id, broadcast_id, type, detail, recipient,
			data, created_at)
			VALUES ($1, $2, $3, $4, NULL, $5, '', 'b@one.example', '', $6)`, db.ID(id.New()), db.ID(teamID), db.ID(emailID),
			db.ID(domainID), typ, now)
	}
	tx.Queue(ctx, `UPDATE email_events SET started_at = created_at, duration = 0, outcome = 1, host = '',
		tls = '', reply = '250 ok', conversation = '250 ok' WHERE email_id = $1 AND type = 5 /* delivered */`, db.ID(emailID))
}

// Neither the number of statements per batch nor the size of a batch depends on the total number of emails. After each
// batch, every remaining email still has all its rows.
func TestBatchesOfRemoval(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d)
		f.Counted(later())
		for _, do := range []step{f.Emails.RemoveTimelines, f.Emails.RemoveBodies, f.Emails.RemoveBefore} {
			var statements []int
			for _, n := range []int{300, 900} {
				f.change(`DELETE FROM email_bodies_until`)
				f.fill(t, n)
				trace.Take()
				if next, err := do(t.Context(), f.Acme.TeamID, later(), ""); next == "" || err != nil {
					t.Fatalf("it goes on at %q, %v", next, err)
				}
				statements = append(statements, len(trace.Take()))
			}
			if statements[0] != statements[1] || statements[0] > 25 {
				t.Errorf("%v statements", statements)
			}
		}
		f.change(`DELETE FROM emails`)
		for _, table := range []string{"email_bodies", "email_recipients", "email_events"} {
			f.change(`DELETE FROM ` + table)
		}
		const n = 250
		f.fill(t, n)
		left := n
		batches := f.all(t, f.Emails.RemoveBefore, func() {
			f.whole(t)
			now := f.Count(`SELECT COUNT(*) FROM emails`)
			if took := left - now; took > 100 || now > 0 && took == 0 {
				t.Errorf("a batch took away %d emails", took)
			}
			left = now
		})
		if left > 0 || batches < 3 {
			t.Errorf("%d emails are left after %d batches", left, batches)
		}
	})
}

// SweepFiles deletes files that could not be deleted together with their email, regardless of their age. SweepFiles
// looks up all files in a single query.
func TestSweepOfDeletedEmails(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d)
		ctx := t.Context()
		settled, waiting := f.sent(t)
		f.Counted(later())
		// The folder's lock file is replaced with a directory, so that no file can be deleted.
		lock := filepath.Join(f.folder, ".hold")
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(lock, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Emails.RemoveBefore(ctx, f.Acme.TeamID, later(), ""); err == nil {
			t.Error("files that cannot be deleted are no error")
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != len(waiting) || len(settled) == 0 {
			t.Errorf("%d emails are left, want %d", n, len(waiting))
		}
		if n := len(f.keys(t)); n != 8 {
			t.Errorf("%d files are left", n)
		}
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		f.age(t)
		trace.Take()
		if err := f.Emails.SweepFiles(ctx); err != nil {
			t.Fatal(err)
		}
		if asked := trace.Take(); len(asked) != 2 {
			t.Errorf("the sweep asked %d times", len(asked))
		}
		if n := len(f.keys(t)); n != 4 {
			t.Errorf("%d files are left after the sweep", n)
		}
		for _, emailID := range waiting {
			f.sendable(t, emailID)
		}
	})
}

// EraseTeam also deletes emails that are not settled, and the records of bodies that must be deleted later.
func TestEraseTeamWithBodiesLeft(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		f.sent(t)
		f.all(t, f.Emails.RemoveBodies, func() {})
		other := teams.Actor{TeamID: id.New()}
		f.Acme, other = other, f.Acme
		f.fill(t, 1)
		if err := f.Emails.EraseTeam(t.Context(), other.TeamID); err != nil {
			t.Fatal(err)
		}
		f.whole(t)
		left := []int{f.Count(`SELECT COUNT(*) FROM emails`), f.Count(`SELECT COUNT(*) FROM email_bodies_left`),
			f.Count(`SELECT COUNT(*) FROM email_bodies_until`), len(f.keys(t))}
		if !slices.Equal(left, []int{1, 0, 0, 0}) {
			t.Errorf("left are %v", left)
		}
	})
}

// EraseAddress deletes the content of raw messages, because their header may contain the address. EraseAddress keeps
// emails whose events are not counted yet, and reports them.
func TestEraseAddressInComposed(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx, team := t.Context(), f.Acme.TeamID
		both := composed(message.Address{Local: "B", Domain: "one.example"}, message.Address{Local: "c",
			Domain: "one.example"})
		both.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000))
		shared, err := f.Emails.SendRaw(ctx, f.Acme, both, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		f.end(t, shared, events.EmailDelivered, "B@one.example", "c@one.example")
		alone := f.Send(hello("Bo <b@one.example>"))
		f.end(t, alone, events.EmailDelivered, "b@one.example")
		a, err := erasure.Parse("b@one.example")
		if err != nil {
			t.Fatal(err)
		}
		erase := func(scope erasure.Scope) string {
			t.Helper()
			found, err := f.Emails.EraseAddress(ctx, a, scope)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(found)
		}
		if found := erase(erasure.Scope{Teams: []string{id.New()}}); found != "[]" {
			t.Errorf("in another team it found %s", found)
		}
		if found := erase(erasure.Scope{All: true}); !strings.Contains(found, "too recent") || !strings.Contains(found,
			"contents deleted") {
			t.Errorf("it found %s", found)
		}
		e, err := f.Emails.Get(ctx, team, shared)
		if err != nil || !slices.Equal(e.Bcc, []string{erasure.Placeholder, "c@one.example"}) || len(f.keys(t)) > 0 {
			t.Errorf("%+v, %v, with the files %v", e, err, f.keys(t))
		}
		to, err := f.Emails.Recipients(ctx, team, shared)
		if err != nil || to[0].Address != erasure.Placeholder || to[0].State != emails.Delivered ||
			to[1].Address != "c@one.example" {
			t.Errorf("the recipients are %+v, %v", to, err)
		}
		if _, err := f.Emails.Get(ctx, team, alone); err != nil {
			t.Errorf("what is too recent: %v", err)
		}
		f.Counted(later())
		if found := erase(erasure.Scope{All: true}); !strings.Contains(found, "nobody else") || strings.Contains(found,
			"others") {
			t.Errorf("again it found %s", found)
		}
		if found := erase(erasure.Scope{All: true}); found != "[]" {
			t.Errorf("in the end it found %s", found)
		}
	})
}
