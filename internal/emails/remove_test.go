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

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/erasure"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/page"
	"github.com/postrider/postrider/internal/teams"
)

// later is a time at which all that is done in a test is old.
func later() time.Time { return time.Now().Add(48 * time.Hour) }

// counted has all events counted that come until later.
func (w *world) counted(t testing.TB) {
	t.Helper()
	w.change(t, `INSERT INTO email_counts_until (team_id, until, version) VALUES ($1, $2, 1) ON CONFLICT DO NOTHING`,
		w.who.TeamID, later().UnixMicro())
}

func (w *world) change(t testing.TB, text string, args ...any) {
	t.Helper()
	if err := w.d.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), text,
			args...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// end settles recipients of an email by an event.
func (w *world) end(t *testing.T, emailID string, typ events.Type, recipients ...string) {
	t.Helper()
	for _, to := range recipients {
		w.record(t, events.Event{TeamID: w.who.TeamID, EmailID: emailID, Type: typ, Recipient: to})
	}
	err := w.d.Update(t.Context(), func(tx *db.Tx) error {
		return emails.RecordAttempt(t.Context(), tx, emails.Attempt{TeamID: w.who.TeamID, EmailID: emailID,
			Destination: "one.example",
			Recipients:  recipients, Outcome: "delivered", Conversation: "250 ok"})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// step is a verb that deletes a batch.
type step = func(ctx context.Context, teamID string, before time.Time, after string) (string, error)

// all calls a step until nothing is left, and after each batch check.
func (w *world) all(t *testing.T, do step, check func()) (batches int) {
	t.Helper()
	for after := ""; ; {
		var err error
		if after, err = do(t.Context(), w.who.TeamID, later(), after); err != nil {
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

// perEmail are the tables of which each email of a test has rows, by the condition under which it does.
var perEmail = map[string]string{"email_bodies": "TRUE", "email_recipients": "TRUE", "email_events": "TRUE",
	"email_attempts": "e.last_event <> 'queued' AND e.last_event <> 'scheduled'"}

// whole fails when of some email a part is there and another is not.
func (w *world) whole(t *testing.T) {
	t.Helper()
	for table, when := range perEmail {
		if n := w.count(t, `SELECT COUNT(*) FROM emails e WHERE `+when+` AND NOT EXISTS (SELECT 1 FROM `+table+` x WHERE
			x.email_id = e.id)`); n > 0 {
			t.Errorf("%d emails have nothing in %s", n, table)
		}
	}
	for _, table := range []string{"email_bodies", "email_recipients", "email_events", "email_attempts",
		"email_attachments", "email_messages"} {
		if n := w.count(t, `SELECT COUNT(*) FROM `+table+` x WHERE NOT EXISTS (SELECT 1 FROM emails e WHERE e.id =
			x.email_id)`); n > 0 {
			t.Errorf("%d rows of %s have no email", n, table)
		}
	}
}

// sent are emails of every kind, by what became of them.
func (w *world) sent(t *testing.T) (settled, waiting []string) {
	t.Helper()
	with := hello("a@one.example", "b@two.example")
	with.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("file"), HasContent: true}}
	large := composed(message.Address{Local: "a", Domain: "one.example"})
	large.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000))
	for i := range 4 {
		delivered := w.send(t, with)
		w.end(t, delivered, events.EmailDelivered, "a@one.example")
		if i%2 == 0 {
			waiting = append(waiting, delivered) // for the other recipient
		} else {
			w.end(t, delivered, events.EmailBounced, "b@two.example")
			settled = append(settled, delivered)
		}
		raw, err := w.emails.SendRaw(t.Context(), w.who, large, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			waiting = append(waiting, raw)
			continue
		}
		w.end(t, raw, events.EmailComplained, "a@one.example")
		settled = append(settled, raw)
	}
	s := hello("a@one.example")
	s.ScheduledAt = "in 1 hour"
	scheduled, canceled := w.send(t, s), w.send(t, s)
	if err := w.emails.Cancel(t.Context(), w.who.TeamID, canceled); err != nil {
		t.Fatal(err)
	}
	w.end(t, canceled, events.EmailCanceled)
	return append(settled, canceled), append(waiting, scheduled)
}

// sendable fails unless an email that waits can be composed.
func (w *world) sendable(t *testing.T, emailID string) {
	t.Helper()
	o, err := w.emails.Outgoing(t.Context(), emails.Delivery{EmailID: emailID})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := w.emails.Compose(t.Context(), o); err != nil || !strings.Contains(string(text), "Hello.") {
		t.Errorf("email %s has %d octets, %v", emailID, len(text), err)
	}
}

// Emails that are old and settled go with all that is theirs, and none of the others.
func TestRemoveBefore(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx, team := t.Context(), w.who.TeamID
		other, err := w.teams.Create(ctx, "Other", "")
		if err != nil {
			t.Fatal(err)
		}
		settled, waiting := w.sent(t)
		file, _, err := w.emails.Attachments(ctx, team, settled[0], page.Page{})
		if err != nil || len(file) != 1 {
			t.Fatalf("%d attachments, %v", len(file), err)
		}
		link, _ := w.emails.DownloadURL(&file[0], time.Now())
		if _, err := w.emails.RemoveBefore(ctx, team, later(), ""); err != nil {
			t.Fatal(err)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM emails`); n != len(settled)+len(waiting) {
			t.Errorf("%d emails are left of which nothing was counted yet", n)
		}
		w.counted(t)
		for _, x := range []struct {
			team   string
			before time.Time
		}{{other.ID, later()}, {team, time.Now().Add(-time.Minute)}} {
			if next, err := w.emails.RemoveBefore(ctx, x.team, x.before, ""); next != "" || err != nil {
				t.Errorf("it goes on at %q, %v", next, err)
			}
		}
		if n := w.count(t, `SELECT COUNT(*) FROM emails`); n != len(settled)+len(waiting) {
			t.Errorf("%d emails are left of those that are young", n)
		}
		w.all(t, w.emails.RemoveBefore, func() { w.whole(t) })
		for _, emailID := range settled {
			if _, err := w.emails.Get(ctx, team, emailID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("email %s: %v", emailID, err)
			}
			if err := w.emails.Cancel(ctx, team, emailID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("cancel email %s: %v", emailID, err)
			}
			if _, err := w.emails.Outgoing(ctx, emails.Delivery{EmailID: emailID}); err != emails.ErrGone {
				t.Errorf("deliver email %s: %v", emailID, err)
			}
			if _, err := w.emails.Reported(ctx, emailID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("a report about email %s: %v", emailID, err)
			}
		}
		_, _, err = w.emails.Download(ctx, strings.TrimPrefix(link, "http://mail.test/download/"))
		if fault.KindOf(err) != fault.NotFound {
			t.Errorf("a download of what is deleted: %v", err)
		}
		for _, emailID := range waiting {
			w.sendable(t, emailID)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM emails`); n != len(waiting) {
			t.Errorf("%d emails are left, want %d", n, len(waiting))
		}
		if keys := w.keys(t); len(keys) != 4 {
			t.Errorf("left are the files %v", keys)
		}
	})
}

// Of an email whose content is deleted there is all the rest. One that was still to be delivered then loses its content
// later, and none is looked at twice.
func TestRemoveBodies(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		w := newWorld(t, d)
		ctx, team := t.Context(), w.who.TeamID
		settled, waiting := w.sent(t)
		rows := func(table string) int { return w.count(t, `SELECT COUNT(*) FROM `+table) }
		recipients, happened := rows("email_recipients"), rows("email_events")
		file, _, err := w.emails.Attachments(ctx, team, settled[0], page.Page{})
		if err != nil || len(file) != 1 {
			t.Fatalf("%d attachments, %v", len(file), err)
		}
		link, _ := w.emails.DownloadURL(&file[0], time.Now())
		w.all(t, w.emails.RemoveBodies, func() {})
		for _, emailID := range settled {
			e, err := w.emails.Get(ctx, team, emailID)
			if err != nil || e.HTML != nil || e.Text != nil || e.Subject != "Hi" {
				t.Errorf("email %s: %+v, %v", emailID, e, err)
			}
			if files, _, err := w.emails.Attachments(ctx, team, emailID, page.Page{}); err != nil || len(files) > 0 {
				t.Errorf("email %s has %d attachments, %v", emailID, len(files), err)
			}
			if attempts, err := w.emails.Attempts(ctx, team, emailID); err != nil || len(attempts) == 0 {
				t.Errorf("email %s has %d attempts, %v", emailID, len(attempts), err)
			}
			if _, err := w.emails.Share(ctx, team, emailID, ""); err != nil {
				t.Errorf("share email %s: %v", emailID, err)
			}
			w.record(t, events.Event{TeamID: team, EmailID: emailID, Type: events.EmailOpened, Recipient: "a@one.example"})
			happened++
		}
		_, err = w.emails.Attachment(ctx, team, settled[0], file[0].ID)
		_, _, downloading := w.emails.Download(ctx, strings.TrimPrefix(link, "http://mail.test/download/"))
		if fault.KindOf(err) != fault.NotFound || fault.KindOf(downloading) != fault.NotFound {
			t.Errorf("an attachment that is deleted: %v; its download: %v", err, downloading)
		}
		for _, emailID := range waiting {
			w.sendable(t, emailID)
		}
		if len(w.keys(t)) != 4 || rows("email_recipients") != recipients || rows("email_events") != happened {
			t.Errorf("left are the files %v, %d recipients, %d events", w.keys(t), rows("email_recipients"),
				rows("email_events"))
		}
		w.all(t, w.emails.RemoveBodiesLeft, func() {})
		if rows("email_bodies") != len(waiting) || rows("email_bodies_left") != len(waiting) {
			t.Errorf("%d bodies and %d notes are left, want %d", rows("email_bodies"), rows("email_bodies_left"), len(waiting))
		}
		for _, emailID := range waiting {
			w.end(t, emailID, events.EmailDelivered, "a@one.example", "b@two.example")
		}
		trace.Take()
		w.all(t, w.emails.RemoveBodies, func() {})
		if asked := trace.Take(); len(asked) != 2 {
			t.Errorf("%d statements when nothing is new", len(asked))
		}
		w.all(t, w.emails.RemoveBodiesLeft, func() {})
		if rows("email_bodies") > 0 || rows("email_messages") > 0 || rows("email_bodies_left") > 0 || len(w.keys(t)) > 0 {
			t.Errorf("left are %d bodies, %d messages, %d notes and the files %v", rows("email_bodies"), rows("email_messages"),
				rows("email_bodies_left"), w.keys(t))
		}
	})
}

// The content of one email can be deleted, unless it is still needed.
func TestDeleteContent(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx, team := t.Context(), w.who.TeamID
		settled, waiting := w.sent(t)
		if err := w.emails.DeleteContent(ctx, team, settled[0]); err != nil {
			t.Fatal(err)
		}
		if e, err := w.emails.Get(ctx, team, settled[0]); err != nil || e.Text != nil {
			t.Errorf("it has %+v, %v", e, err)
		}
		if err := w.emails.DeleteContent(ctx, team, waiting[0]); fault.KindOf(err) != fault.Invalid {
			t.Errorf("of one that waits: %v", err)
		}
		if err := w.emails.DeleteContent(ctx, id.New(), settled[1]); fault.KindOf(err) != fault.NotFound {
			t.Errorf("of another team's: %v", err)
		}
		w.sendable(t, waiting[0])
		if e, err := w.emails.Get(ctx, team, settled[2]); err != nil || e.Text == nil {
			t.Errorf("another has %+v, %v", e, err)
		}
	})
}

// What happened to an email goes once nothing has happened to it for long enough, in whole; the email stays.
func TestRemoveTimelines(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx, team := t.Context(), w.who.TeamID
		settled, waiting := w.sent(t)
		w.counted(t)
		active := settled[0]
		w.change(t, `UPDATE email_events SET created_at = created_at + $2 WHERE email_id = $1 AND type = 'delivered'`, active,
			(72 * time.Hour).Microseconds())
		w.change(t, `UPDATE email_counts_until SET until = until + $1`, (72 * time.Hour).Microseconds())
		of := func(emailID string) string {
			attempts, err := w.emails.Attempts(ctx, team, emailID)
			if err != nil {
				t.Fatal(err)
			}
			timeline, err := w.emails.Timeline(ctx, team, emailID)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprint(len(timeline), " events, ", len(attempts), " attempts")
		}
		before := map[string]string{}
		for _, emailID := range append(slices.Clone(waiting), active) {
			before[emailID] = of(emailID)
		}
		w.all(t, w.emails.RemoveTimelines, func() {})
		for _, emailID := range settled {
			want := "0 events, 0 attempts"
			if emailID == active {
				want = before[active]
			}
			if got := of(emailID); got != want {
				t.Errorf("email %s has %s, want %s", emailID, got, want)
			}
			if e, err := w.emails.Get(ctx, team, emailID); err != nil || emailID == active && e.Text == nil {
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

// fill enters emails that were delivered, each with one of everything, and returns their ids.
func (w *world) fill(t testing.TB, n int) (ids []string) {
	t.Helper()
	for some := range slices.Chunk(make([]int, n), 200) {
		err := w.d.Update(t.Context(), func(tx *db.Tx) error {
			for range some {
				emailID := id.At(tx.Now())
				ids = append(ids, emailID)
				fillOne(t.Context(), tx, w.who.TeamID, w.domainID, emailID)
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
	tx.Queue(ctx, `INSERT INTO emails (id, team_id, api_key_id, domain_id, message_id, sender, subject, recipients, tags,
		topic_id, template_id, broadcast_id, last_event, rank, scheduled_at, created_at)
		VALUES ($1, $2, '', $3, $1, 'a@acme.example', 's', '{"to":["b@one.example"]}', '', '', '', '', 'delivered', 40, 0,
			$4)`,
		emailID, teamID, domainID, now)
	tx.Queue(ctx, `INSERT INTO email_bodies (email_id, team_id, html, body_text, parts, headers) VALUES ($1, $2,
		'<p>Hello.', 'Hello.', 3, '')`,
		emailID, teamID)
	tx.Queue(ctx, `INSERT INTO email_recipients (email_id, position, team_id, kind, address, domain, state, rank,
		updated_at)
		VALUES ($1, 0, $2, 'to', 'b@one.example', 'one.example', 'delivered', 40, $3)`, emailID, teamID, now)
	for _, typ := range []string{"queued", "sent", "delivered"} {
		tx.Queue(ctx, `INSERT INTO email_events (id, team_id, email_id, domain_id, broadcast_id, type, detail, recipient,
			data, created_at)
			VALUES ($1, $2, $3, $4, '', $5, '', 'b@one.example', '', $6)`, id.New(), teamID, emailID, domainID, typ, now)
	}
	tx.Queue(ctx, `INSERT INTO email_attempts (email_id, id, team_id, destination, recipients, host, tls, outcome, reply,
		conversation, started_at, duration, next_at) VALUES ($1, $2, $3, 'one.example', '["b@one.example"]', '', '',
		'delivered', '250 ok',
			'250 ok', $4, 0, 0)`,
		emailID, id.New(), teamID, now)
}

// However many emails there are, a batch is as many statements, and takes as many away; every one leaves only whole
// emails behind.
func TestBatchesOfRemoval(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		w := newWorld(t, d)
		w.counted(t)
		for _, do := range []step{w.emails.RemoveTimelines, w.emails.RemoveBodies, w.emails.RemoveBefore} {
			var statements []int
			for _, n := range []int{300, 900} {
				w.change(t, `DELETE FROM email_bodies_until`)
				w.fill(t, n)
				trace.Take()
				if next, err := do(t.Context(), w.who.TeamID, later(), ""); next == "" || err != nil {
					t.Fatalf("it goes on at %q, %v", next, err)
				}
				statements = append(statements, len(trace.Take()))
			}
			if statements[0] != statements[1] || statements[0] > 25 {
				t.Errorf("%v statements", statements)
			}
		}
		w.change(t, `DELETE FROM emails`)
		for _, table := range []string{"email_bodies", "email_recipients", "email_events", "email_attempts"} {
			w.change(t, `DELETE FROM `+table)
		}
		const n = 250
		w.fill(t, n)
		left := n
		batches := w.all(t, w.emails.RemoveBefore, func() {
			w.whole(t)
			now := w.count(t, `SELECT COUNT(*) FROM emails`)
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

// A file that could not be deleted after its email is the sweep's, however old it is. The sweep asks about all files at
// once.
func TestSweepOfDeletedEmails(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		w := newWorld(t, d)
		ctx := t.Context()
		settled, waiting := w.sent(t)
		w.counted(t)
		// Nothing can be deleted while the lock of the folder is no file.
		lock := filepath.Join(w.folder, ".hold")
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(lock, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := w.emails.RemoveBefore(ctx, w.who.TeamID, later(), ""); err == nil {
			t.Error("files that cannot be deleted are no error")
		}
		if n := w.count(t, `SELECT COUNT(*) FROM emails`); n != len(waiting) || len(settled) == 0 {
			t.Errorf("%d emails are left, want %d", n, len(waiting))
		}
		if n := len(w.keys(t)); n != 8 {
			t.Errorf("%d files are left", n)
		}
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
		w.age(t)
		trace.Take()
		if err := w.emails.SweepFiles(ctx); err != nil {
			t.Fatal(err)
		}
		if asked := trace.Take(); len(asked) != 2 {
			t.Errorf("the sweep asked %d times", len(asked))
		}
		if n := len(w.keys(t)); n != 4 {
			t.Errorf("%d files are left after the sweep", n)
		}
		for _, emailID := range waiting {
			w.sendable(t, emailID)
		}
	})
}

// A team that is erased loses emails that wait too, and what is noted of their bodies.
func TestEraseTeamWithBodiesLeft(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		w.sent(t)
		w.all(t, w.emails.RemoveBodies, func() {})
		other := teams.Actor{TeamID: id.New()}
		w.who, other = other, w.who
		w.fill(t, 1)
		if err := w.emails.EraseTeam(t.Context(), other.TeamID); err != nil {
			t.Fatal(err)
		}
		w.whole(t)
		left := []int{w.count(t, `SELECT COUNT(*) FROM emails`), w.count(t, `SELECT COUNT(*) FROM email_bodies_left`),
			w.count(t, `SELECT COUNT(*) FROM email_bodies_until`), len(w.keys(t))}
		if !slices.Equal(left, []int{1, 0, 0, 0}) {
			t.Errorf("left are %v", left)
		}
	})
}

// What callers composed goes with the address that its header may have, and emails that are too recent to be counted
// are left and said.
func TestEraseAddressInComposed(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx, team := t.Context(), w.who.TeamID
		both := composed(message.Address{Local: "B", Domain: "one.example"}, message.Address{Local: "c",
			Domain: "one.example"})
		both.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000))
		shared, err := w.emails.SendRaw(ctx, w.who, both, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		w.end(t, shared, events.EmailDelivered, "B@one.example", "c@one.example")
		alone := w.send(t, hello("Bo <b@one.example>"))
		w.end(t, alone, events.EmailDelivered, "b@one.example")
		a, err := erasure.Parse("b@one.example")
		if err != nil {
			t.Fatal(err)
		}
		erase := func(scope erasure.Scope) string {
			t.Helper()
			found, err := w.emails.EraseAddress(ctx, a, scope)
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
		e, err := w.emails.Get(ctx, team, shared)
		if err != nil || !slices.Equal(e.Bcc, []string{erasure.Placeholder, "c@one.example"}) || len(w.keys(t)) > 0 {
			t.Errorf("%+v, %v, with the files %v", e, err, w.keys(t))
		}
		to, err := w.emails.Recipients(ctx, team, shared)
		if err != nil || to[0].Address != erasure.Placeholder || to[0].State != emails.Delivered ||
			to[1].Address != "c@one.example" {
			t.Errorf("the recipients are %+v, %v", to, err)
		}
		if _, err := w.emails.Get(ctx, team, alone); err != nil {
			t.Errorf("what is too recent: %v", err)
		}
		w.counted(t)
		if found := erase(erasure.Scope{All: true}); !strings.Contains(found, "nobody else") || strings.Contains(found,
			"others") {
			t.Errorf("again it found %s", found)
		}
		if found := erase(erasure.Scope{All: true}); found != "[]" {
			t.Errorf("in the end it found %s", found)
		}
	})
}
