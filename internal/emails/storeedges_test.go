package emails_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/netguard"
	"github.com/postrider/postrider/internal/page"
)

// An attempt is read as it was recorded.
func TestAttemptIsKept(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		emailID := w.send(t, hello("a@one.example"))
		at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
		want := emails.Attempt{TeamID: w.who.TeamID, EmailID: emailID, Destination: "one.example",
			Recipients: []string{"a@one.example"},
			Host:       "mx.one.example", TLS: "TLS 1.3", Outcome: emails.Unsure, Reply: "451", Conversation: "> QUIT",
			StartedAt: at,
			Duration:  1500 * time.Millisecond, NextAt: at.Add(time.Hour)}
		err := w.d.Update(t.Context(), func(tx *db.Tx) error { return emails.RecordAttempt(t.Context(), tx, want) })
		if err != nil {
			t.Fatal(err)
		}
		all, err := w.emails.Attempts(t.Context(), w.who.TeamID, emailID)
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		want.ID = all[0].ID
		if !reflect.DeepEqual(all[0], want) {
			t.Errorf("%+v has become %+v", want, all[0])
		}
		for destination, want := range map[string]int{"one.example": 1, "two.example": 0} {
			if n, err := emails.UnsureAttempts(t.Context(), w.d.Reader, w.who.TeamID, emailID, destination); err != nil ||
				n != want {
				t.Errorf("%d attempts at %s are unsure, %v", n, destination, err)
			}
		}
	})
}

// What is known of an email without its text: whether there is one, how large it is, whose it is, what it refers to.
func TestWhatIsAskedOfEmails(t *testing.T) {
	eachTraced(t, func(t *testing.T, w *world, trace *dbtest.Trace) {
		ctx, team := t.Context(), w.who.TeamID
		s := hello("a@one.example", "b@two.example")
		s.Headers = []message.Field{{Name: "X-A", Value: "b"}, {Name: "references", Value: "<a@x.example> <b@x.example>"},
			{Name: "In-Reply-To", Value: "<c@x.example>"}}
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: make([]byte, 1000), HasContent: true}}
		emailID, nobody := w.send(t, s), id.New()
		size, err := w.emails.Size(ctx, emailID)
		if err != nil || size != 2*6+2500+1024 {
			t.Errorf("it takes %d octets, %v", size, err)
		}
		if n, err := w.emails.Size(ctx, nobody); n != 0 || !errors.Is(err, emails.ErrGone) {
			t.Errorf("what is not there takes %d octets, %v", n, err)
		}
		if _, err := w.emails.Outgoing(ctx, emails.Delivery{EmailID: nobody}); !errors.Is(err, emails.ErrGone) {
			t.Errorf("what is not there goes out: %v", err)
		}
		if _, err := w.emails.Reported(ctx, nobody); fault.KindOf(err) != fault.NotFound {
			t.Errorf("what is not there was reported: %v", err)
		}
		r, err := w.emails.Reported(ctx, emailID)
		if err != nil || r.TeamID != team ||
			!slices.Equal(r.To, []emails.Destined{{Address: "a@one.example", Domain: "one.example"},
				{Address: "b@two.example", Domain: "two.example"}}) {
			t.Errorf("%+v, %v", r, err)
		}
		for _, c := range []struct {
			id   string
			want []string
		}{{emailID, []string{"<c@x.example>", "<b@x.example>", "<a@x.example>"}}, {nobody, nil}} {
			if all, err := w.emails.References(ctx, team, c.id); err != nil || !slices.Equal(all, c.want) {
				t.Errorf("it refers to %q, %v; want %q", all, err, c.want)
			}
		}
		for _, c := range []struct {
			teams, emails []string
			asked         int
			want          map[string]string
		}{
			{[]string{team}, []string{emailID, nobody}, 1, map[string]string{emailID: team}},
			{[]string{id.New()}, []string{emailID}, 1, map[string]string{}},
			{nil, []string{emailID}, 0, map[string]string{}},
			{[]string{team}, nil, 0, map[string]string{}},
		} {
			trace.Take()
			got, err := w.emails.TeamsOf(ctx, c.teams, c.emails)
			if n := len(trace.Take()); err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) || n != c.asked {
				t.Errorf("%v of %v: %v, %v, after %d statements", c.emails, c.teams, got, err, n)
			}
		}
		first := func() (is bool) {
			err := w.d.Update(ctx, func(tx *db.Tx) (err error) { is, err = emails.MarkSent(ctx, tx, emailID); return err })
			if err != nil {
				t.Fatal(err)
			}
			return is
		}
		if !first() || first() {
			t.Error("not the first of two is the first to mark it as sent")
		}
	})
}

// Each event type is reported once for each recipient, and only for addresses that are recipients.
func TestToldBefore(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		emailID := w.send(t, hello("a@one.example", "b@one.example"))
		w.record(t, events.Event{TeamID: w.who.TeamID, EmailID: emailID, Type: events.EmailBounced,
			Recipient: "a@one.example"})
		var before emails.Before
		err := w.d.Update(ctx, func(tx *db.Tx) (err error) {
			before, err = emails.ReportedBefore(ctx, tx, w.who.TeamID, emailID, []string{"a@one.example", "b@one.example",
				"c@one.example"})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			to   string
			typ  events.Type
			want bool
		}{
			{"a@one.example", events.EmailBounced, false}, {"a@one.example", events.EmailComplained, true},
			{"a@one.example", events.EmailComplained, false}, {"b@one.example", events.EmailBounced, true},
			{"c@one.example", events.EmailBounced, false},
		} {
			if got := before.First(c.to, c.typ); got != c.want {
				t.Errorf("%s of %s is the first: %v", c.typ, c.to, got)
			}
		}
	})
}

// Events of a whole email are those of its recipients, but that it was sent: to one of them it may not have been.
func TestEventsOfTheWholeEmail(t *testing.T) {
	eachTraced(t, func(t *testing.T, w *world, trace *dbtest.Trace) {
		emailID := w.send(t, hello("a@one.example", "b@two.example"))
		for _, c := range []struct {
			typ  events.Type
			want emails.State // of the recipients
		}{{events.EmailSent, emails.Queued}, {events.EmailFailed, emails.Failed}} {
			w.record(t, events.Event{TeamID: w.who.TeamID, EmailID: emailID, Type: c.typ})
			to, err := w.emails.Recipients(t.Context(), w.who.TeamID, emailID)
			if err != nil || len(to) != 2 || to[0].State != c.want || to[1].State != c.want {
				t.Errorf("after %s: %+v, %v", c.typ, to, err)
			}
		}
		// The first events cost no statement of their own, and neither do those of no email.
		for name, act := range map[string]func(){
			"accepted":   func() { w.send(t, hello("a@one.example")) },
			"scheduled":  func() { w.schedule(t) },
			"a domain's": func() { w.record(t, events.Event{TeamID: w.who.TeamID, Type: events.DomainUpdated}) },
			"an email's that is no state": func() {
				w.record(t, events.Event{TeamID: w.who.TeamID, EmailID: emailID, Type: events.DomainUpdated})
			},
			"of no email": func() { w.record(t, events.Event{TeamID: w.who.TeamID, Type: events.EmailDelivered}) },
		} {
			trace.Take()
			act()
			for _, s := range trace.Take() {
				if strings.HasPrefix(s.SQL, "UPDATE email") {
					t.Errorf("%s: %s", name, s.SQL)
				}
			}
		}
		later := w.schedule(t)
		trace.Take()
		if err := w.emails.Cancel(t.Context(), w.who.TeamID, later); err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, s := range trace.Take() {
			if strings.HasPrefix(s.SQL, "UPDATE email") {
				n++
			}
		}
		if n != 2 {
			t.Errorf("canceling takes %d updates, want one of the email and one of its recipients", n)
		}
	})
}

// A delivery job says all that it can spare delivery to look up.
func TestWhatDeliveryJobsSay(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		if _, err := w.suppressed.Add(t.Context(), w.who.TeamID, []string{"gone@one.example"}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			to   []string
			want []emails.Delivery
		}{
			{[]string{"gone@one.example", "a@one.example", "b@ONE.example"},
				[]emails.Delivery{{Domain: "one.example", Only: true, To: []string{"a@one.example", "b@one.example"}, Size: 12 +
					1024}}},
			{[]string{"a@one.example", "gone@one.example", "b@two.example"},
				[]emails.Delivery{{Domain: "one.example", To: []string{"a@one.example"}, Size: 12 + 1024},
					{Domain: "two.example", To: []string{"b@two.example"}, Size: 12 + 1024}}},
		} {
			for _, later := range []bool{false, true} {
				w.change(t, `DELETE FROM jobs`)
				s := hello(c.to...)
				if later {
					s.ScheduledAt = "in 1 hour"
				}
				emailID := w.send(t, s)
				if later {
					if err := w.emails.Kinds()[0].Handle(t.Context(), w.inHand(t, emails.ReleaseKind, emailID)); err != nil {
						t.Fatal(err)
					}
				}
				rows, err := w.d.Query(t.Context(), `SELECT payload FROM jobs ORDER BY lane`)
				got, err := db.Collect(rows, err, func(r db.Row) (d emails.Delivery, err error) {
					var payload string
					if err := r.Scan(&payload); err != nil {
						return d, err
					}
					return emails.DecodeDelivery(payload)
				})
				for i := range c.want {
					c.want[i].EmailID = emailID
				}
				if err != nil || !reflect.DeepEqual(got, c.want) {
					t.Errorf("%v, later %v: %+v, %v; want %+v", c.to, later, got, err, c.want)
				}
			}
		}
	})
}

// A batch has 1 to 100 emails, and what is to a test domain is refused without a setting that says so.
func TestBoundsOfBatches(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for n, ok := range map[int]bool{0: false, 1: true, emails.MaxBatch: true, emails.MaxBatch + 1: false} {
			b, err := w.emails.SendBatch(t.Context(), w.who, slices.Repeat([]emails.Send{hello("a@one.example")}, n), true,
				emails.Idempotency{})
			if ok != (err == nil) || ok && len(b.IDs) != n || !ok && fault.KindOf(err) != fault.Invalid {
				t.Errorf("a batch of %d: %d accepted, %v", n, len(b.IDs), err)
			}
		}
		if _, err := w.emails.Send(t.Context(), w.who, hello("a@example.com"), emails.Idempotency{}); fault.KindOf(
			err) != fault.Invalid {
			t.Errorf("to a test domain: %v", err)
		}
	})
}

// A key has at most 256 characters.
func TestLengthOfKeys(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		for n, kind := range map[int]fault.Kind{256: 0, 257: fault.BadIdempotencyKey} {
			key := emails.Idempotency{Scope: "s", Key: strings.Repeat("k", n)}
			_, err := w.emails.Send(t.Context(), w.who, hello("a@one.example"), key)
			if n == 256 && err != nil || n > 256 && fault.KindOf(err) != kind {
				t.Errorf("a key of %d characters: %v", n, err)
			}
		}
	})
}

// An email whose attachments cannot be kept is not accepted, and nothing of it stays.
func TestAttachmentsThatCannotBeKept(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s := hello("a@one.example")
		given := emails.Upload{Filename: "a.txt", Content: []byte("a"), HasContent: true}
		s.Attachments = []emails.Upload{given, {Path: "ftp://one.example/a"}}
		if _, err := w.emails.Send(t.Context(), w.who, s, emails.Idempotency{}); fault.KindOf(err) != fault.BadAttachment {
			t.Errorf("a path that is none: %v", err)
		}
		if left := w.keys(t); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
		large := composed(message.Address{Local: "a", Domain: "one.example"})
		large.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000))
		if err := errors.Join(os.Rename(w.folder, w.folder+".away"), os.WriteFile(w.folder, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		s.Attachments = []emails.Upload{given}
		if _, err := w.emails.Send(t.Context(), w.who, s, emails.Idempotency{}); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("without a store: %v", err)
		}
		if _, err := w.emails.SendRaw(t.Context(), w.who, large, emails.Idempotency{}); fault.KindOf(
			err) != fault.Unavailable {
			t.Errorf("composed, without a store: %v", err)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM emails`); n != 0 {
			t.Errorf("%d emails are accepted", n)
		}
	})
}

// A file that is shorter than it was is not sent as if it were whole.
func TestAttachmentThatWasCut(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("content"), HasContent: true}}
		emailID := w.send(t, s)
		if err := os.Truncate(w.onlyBlob(t), 3); err != nil {
			t.Fatal(err)
		}
		o, err := w.emails.Outgoing(t.Context(), emails.Delivery{EmailID: emailID, Domain: "one.example"})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := w.emails.Compose(t.Context(), o); !fault.Ours(err) {
			t.Errorf("composed are %d octets, %v", len(text), err)
		}
	})
}

// Links of a team that was deleted lead nowhere, and those that were not made here neither.
func TestLinksThatLeadNowhere(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		ctx := t.Context()
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("a"), HasContent: true}}
		emailID := w.send(t, s)
		files, _, err := w.emails.Attachments(ctx, w.who.TeamID, emailID, page.Page{})
		if err != nil || len(files) != 1 {
			t.Fatalf("%+v, %v", files, err)
		}
		link, err := w.emails.Share(ctx, w.who.TeamID, emailID, "48 hours")
		if err != nil {
			t.Fatal(err)
		}
		token := strings.TrimPrefix(link, "http://mail.test/shared?token=")
		if e, all, err := w.emails.Shared(ctx, token); err != nil || e.ID != emailID || len(all) != 1 {
			t.Errorf("shared is %s with %d files, %v", e.ID, len(all), err)
		}
		if content, err := w.read(t, &files[0]); err != nil || content != "a" {
			t.Errorf("downloaded is %q, %v", content, err)
		}
		if _, err := w.emails.Share(ctx, w.who.TeamID, emailID, "2881 minutes"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("shared for too long: %v", err)
		}
		for _, forged := range []string{"", token + "x", "a.b.c"} {
			if _, _, err := w.emails.Shared(ctx, forged); fault.KindOf(err) != fault.NotFound {
				t.Errorf("shared by %q: %v", forged, err)
			}
			if _, _, err := w.emails.Download(ctx, forged); fault.KindOf(err) != fault.NotFound {
				t.Errorf("downloaded by %q: %v", forged, err)
			}
		}
		if err := w.teams.Delete(ctx, w.q, w.who.TeamID); err != nil {
			t.Fatal(err)
		}
		if _, _, err := w.emails.Shared(ctx, token); fault.KindOf(err) != fault.NotFound {
			t.Errorf("shared of a deleted team: %v", err)
		}
		if _, err := w.read(t, &files[0]); fault.KindOf(err) != fault.NotFound {
			t.Errorf("downloaded of a deleted team: %v", err)
		}
	})
}

// A key that another node takes at the same time gives the answer of that node, once it has accepted the email.
func TestKeyTakenByAnotherNode(t *testing.T) {
	run := func(t *testing.T, url string) {
		var armed atomic.Bool
		var taken func()
		o := db.Options{URL: url, MaxConns: 6, Log: slog.New(slog.DiscardHandler)}
		o.Trace = func(s db.Statement) {
			if strings.Contains(s.SQL, "FROM suppressions") && armed.CompareAndSwap(true, false) {
				taken()
			}
		}
		d, err := db.Open(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		if _, err := d.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		w := newWorld(t, d)
		keys, err := keyring.New(make([]byte, 32))
		if err != nil {
			t.Fatal(err)
		}
		other := emails.New(emails.Config{MaxSize: 1 << 20}, emails.Parts{DB: d, Queue: w.q, Recorder: w.recorder,
			Blobs: w.blobs, Keys: keys,
			Guard: netguard.New(netguard.Options{}), Domains: w.domains, Suppressions: w.suppressed, Teams: w.teams})
		for _, c := range []struct {
			name, hash string // of the other's payload
			kind       fault.Kind
		}{{"the same", "h", 0}, {"another", "i", fault.IdempotencyMismatch}} {
			key := emails.Idempotency{Scope: "s", Key: c.name, Hash: c.hash}
			var first string
			theirs := key
			taken = func() {
				var err error
				if first, err = other.Send(context.Background(), w.who, hello("a@one.example"), theirs); err != nil {
					t.Error(err)
				}
			}
			before := w.count(t, `SELECT COUNT(*) FROM emails`)
			armed.Store(true)
			key.Hash = "h"
			got, err := w.emails.Send(t.Context(), w.who, hello("a@one.example"), key)
			if c.kind == 0 && (err != nil || got != first) || c.kind != 0 && fault.KindOf(err) != c.kind {
				t.Errorf("%s: %s, %v; want %s", c.name, got, err, first)
			}
			if n := w.count(t, `SELECT COUNT(*) FROM emails`) - before; n != 1 || armed.Load() {
				t.Errorf("%s: %d emails, the key was taken: %v", c.name, n, !armed.Load())
			}
		}
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine() == "sqlite" {
			run(t, filepath.Join(t.TempDir(), "test.db"))
		} else {
			run(t, dbtest.PostgresURL(t))
		}
	})
}

// A job of an email that is not there, or of which nothing is to be done, ends.
func TestJobsOfNoEmail(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		path := hello("a@one.example")
		path.Attachments = []emails.Upload{{Path: "http://127.0.0.1:1/a"}}
		for i, prepare := range []func() string{func() string { return w.schedule(t) },
			func() string { return w.send(t, path) }} {
			kind := w.emails.Kinds()[i]
			for name, state := range map[string]string{"no email": "", "one that is delivered": "delivered"} {
				emailID := prepare()
				j := w.inHand(t, kind.Name, emailID)
				if state == "" {
					j.Payload = id.New()
				} else {
					w.change(t, `UPDATE emails SET last_event = $2 WHERE id = $1`, emailID, state)
				}
				if err := kind.Handle(t.Context(), j); err != nil {
					t.Errorf("%s of %s: %v", kind.Name, name, err)
				}
				if n := w.count(t, `SELECT COUNT(*) FROM jobs WHERE id = $1`, j.ID) +
					w.count(t, `SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 0 {
					t.Errorf("%s of %s: %d jobs are left", kind.Name, name, n)
				}
			}
		}
	})
}

// A reschedule moves the job that there is, and enters one where there is none.
func TestRescheduleMovesTheJob(t *testing.T) {
	eachTraced(t, func(t *testing.T, w *world, trace *dbtest.Trace) {
		emailID := w.schedule(t)
		for _, lost := range []bool{false, true} {
			if lost {
				w.change(t, `DELETE FROM jobs`)
			}
			trace.Take()
			if err := w.emails.Reschedule(t.Context(), w.who.TeamID, emailID, "in 2 hours"); err != nil {
				t.Fatal(err)
			}
			entered := slices.ContainsFunc(trace.Take(), func(s db.Statement) bool {
				return strings.HasPrefix(s.SQL,
					"INSERT INTO jobs")
			})
			if n := w.count(t, `SELECT COUNT(*) FROM jobs WHERE dedupe = $1`, emailID); n != 1 || entered != lost {
				t.Errorf("lost %v: %d jobs, one was entered: %v", lost, n, entered)
			}
		}
		if err := w.emails.Reschedule(t.Context(), w.who.TeamID, emailID, ""); fault.KindOf(err) != fault.Missing {
			t.Errorf("to no time: %v", err)
		}
		if err := w.emails.Reschedule(t.Context(), w.who.TeamID, id.New(), "in 1 hour"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("of no email: %v", err)
		}
	})
}

// Where there is nothing to delete, nothing is written.
func TestNothingToRemove(t *testing.T) {
	eachTraced(t, func(t *testing.T, w *world, trace *dbtest.Trace) {
		ctx, team := t.Context(), w.who.TeamID
		check := func(what string) {
			t.Helper()
			for name, do := range map[string]step{"RemoveBefore": w.emails.RemoveBefore,
				"RemoveBodiesLeft": w.emails.RemoveBodiesLeft,
				"RemoveTimelines":  w.emails.RemoveTimelines} {
				trace.Take()
				w.all(t, do, func() {})
				for _, s := range trace.Take() {
					if strings.HasPrefix(s.SQL, "DELETE") {
						t.Errorf("%s, %s: %s", what, name, s.SQL)
					}
				}
			}
		}
		check("without emails")
		w.send(t, hello("a@one.example"))
		check("with one that waits")
		w.change(t, `DELETE FROM jobs`)
		w.fill(t, 250) // of which nothing is counted: it stays
		check("with many that are not counted")
		if n := w.count(t, `SELECT COUNT(*) FROM emails`); n != 251 {
			t.Errorf("%d emails are left", n)
		}
		trace.Take()
		if err := w.emails.EraseTeam(ctx, id.New()); err != nil {
			t.Error(err)
		}
		for _, s := range trace.Take() {
			if strings.HasPrefix(s.SQL, "DELETE FROM emails") {
				t.Errorf("a team without emails is erased by %s", s.SQL)
			}
		}
		w.counted(t)
		if n := w.all(t, w.emails.RemoveTimelines, func() {}); n != 4 {
			t.Errorf("250 timelines go in %d batches", n)
		}
		if n := w.count(t, `SELECT COUNT(*) FROM email_events WHERE team_id = $1`, team); n != 1 {
			t.Errorf("%d events are left", n)
		}
	})
}

// A number that is none in a row is an error of ours, and not zero.
func TestNumbersThatCannotBeRead(t *testing.T) {
	d := dbtest.SQLite(t) // PostgreSQL takes none
	w := newWorld(t, d)
	ctx, team := t.Context(), w.who.TeamID
	emailID := w.fill(t, 1)[0]
	w.change(t, `INSERT INTO email_attachments (id, email_id, team_id, filename, content_type, content_id, size,
		blob_key, path)
		VALUES ('f', $1, $2, 'a', '', '', 1, 'k', '')`, emailID, team)
	j := jobs.Job{Kind: emails.ReleaseKind, TeamID: team, Payload: emailID}
	for _, c := range []struct {
		column string
		read   []func() error
	}{
		{"email_recipients.updated_at",
			[]func() error{func() error { _, err := w.emails.Recipients(ctx, team, emailID); return err }}},
		{"email_attempts.started_at", []func() error{func() error {
			_, err := w.emails.Attempts(ctx, team,
				emailID)
			return err
		}}},
		{"email_attachments.size", []func() error{
			func() error { _, _, err := w.emails.Attachments(ctx, team, emailID, page.Page{}); return err },
			func() error { _, err := w.emails.Attachment(ctx, team, emailID, "f"); return err },
		}},
		{"email_bodies.parts", []func() error{func() error { _, err := w.emails.Size(ctx, emailID); return err }}},
		{"emails.created_at", []func() error{
			func() error { _, err := w.emails.Get(ctx, team, emailID); return err },
			func() error { _, _, err := w.emails.List(ctx, team, page.Page{}); return err },
			func() error { _, err := w.emails.Outgoing(ctx, emails.Delivery{EmailID: emailID}); return err },
			func() error { return w.emails.Kinds()[0].Handle(ctx, j) },
		}},
	} {
		table, column, _ := strings.Cut(c.column, ".")
		w.change(t, `UPDATE `+table+` SET `+column+` = 'x'`)
		for i, read := range c.read {
			if err := read(); !fault.Ours(err) {
				t.Errorf("%s, %d: %v", c.column, i, err)
			}
		}
	}
	w = newWorld(t, dbtest.SQLite(t))
	emailID = w.send(t, hello("a@one.example"))
	w.change(t, `UPDATE email_recipients SET address = 'nobody'`)
	if _, err := w.emails.Outgoing(ctx, emails.Delivery{EmailID: emailID, Domain: "one.example"}); !fault.Ours(err) {
		t.Errorf("a recipient that is none: %v", err)
	}
	w.change(t, `UPDATE email_recipients SET address = 'a@one.example'`)
	for _, text := range []string{`UPDATE emails SET sender = 'nobody'`,
		`UPDATE emails SET sender = 'a@acme.example', recipients = '{"cc":["nobody"]}'`,
		`UPDATE emails SET recipients = '{'`, `UPDATE emails SET recipients = '{}', tags = ''`,
		`UPDATE email_bodies SET headers = '{'`} {
		w.change(t, text)
		o, err := w.emails.Outgoing(ctx, emails.Delivery{EmailID: emailID, Domain: "one.example"})
		if err == nil {
			_, err = w.emails.Compose(ctx, o)
		}
		if whole := strings.HasSuffix(text, "tags = ''"); !whole && !fault.Ours(err) || whole && err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	w.change(t, `UPDATE email_bodies SET headers = '[{"Name":"X A","Value":"b"}]'`)
	out, err := w.emails.Outgoing(ctx, emails.Delivery{EmailID: emailID, Domain: "one.example"})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := w.emails.Compose(ctx, out); fault.KindOf(err) != fault.Invalid || text != nil {
		t.Errorf("what cannot be composed has become %q, %v", text, err)
	}
	o := &emails.Outgoing{To: []string{"nobody"}}
	if _, err := w.emails.Sift(ctx, o); !fault.Ours(err) {
		t.Errorf("a recipient that is none is sifted: %v", err)
	}
}

// All of the octets of a return path count, also those bits of its last that nothing is made of.
func TestReturnPathIsWrittenInOneWay(t *testing.T) {
	keys, emailID := testKeys(t, 1), id.New()
	local := emails.ReturnPath(keys, emailID, "example.net")
	for _, c := range "abcdefghijklmnopqrstuvwxyz234567" {
		other := local[:len(local)-1] + string(c)
		if _, ok := emails.ParseReturnPath(keys, other); ok != (other == local) {
			t.Errorf("%s is one: %v, as %s", other, ok, local)
		}
	}
	if got := emails.ReturnPath(keys, "no id", "example.net"); got != "bounces" {
		t.Errorf("what is no id has the return path %s", got)
	}
}
