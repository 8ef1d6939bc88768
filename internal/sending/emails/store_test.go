package emails_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// Exists, TextSize, TeamsOf and References return data about an email without reading its bodies.
func TestWhatIsAskedOfEmails(t *testing.T) {
	eachTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		ctx, team := t.Context(), f.Acme.TeamID
		s := hello("a@one.example", "b@two.example")
		s.Headers = []message.Field{{Name: "X-A", Value: "b"}, {Name: "references", Value: "<a@x.example> <b@x.example>"},
			{Name: "In-Reply-To", Value: "<c@x.example>"}}
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: make([]byte, 1000), HasContent: true}}
		emailID, nobody := f.Send(s), id.New()
		size, err := f.Emails.Size(ctx, f.Acme.TeamID, emailID)
		if err != nil || size != 2*6+2500+1024 {
			t.Errorf("it takes %d bytes, %v", size, err)
		}
		if n, err := f.Emails.Size(ctx, f.Acme.TeamID, nobody); n != 0 || !errors.Is(err, emails.ErrGone) {
			t.Errorf("what is not there takes %d bytes, %v", n, err)
		}
		if _, err := f.Emails.Outgoing(ctx, emails.Delivery{TeamID: f.Acme.TeamID,
			EmailID: nobody}); !errors.Is(err, emails.ErrGone) {
			t.Errorf("what is not there goes out: %v", err)
		}
		if _, err := f.Emails.BounceTarget(ctx, tokens.Ref{EmailID: nobody}); fault.KindOf(err) != fault.NotFound {
			t.Errorf("what is not there was reported: %v", err)
		}
		r, err := f.Emails.BounceTarget(ctx, f.Ref(emailID))
		if err != nil || r.TeamID != team ||
			!slices.Equal(r.To, []emails.BounceRecipient{{Address: "a@one.example", Domain: "one.example"},
				{Address: "b@two.example", Domain: "two.example"}}) {
			t.Errorf("%+v, %v", r, err)
		}
		for _, c := range []struct {
			id   string
			want []string
		}{{emailID, []string{"<c@x.example>", "<b@x.example>", "<a@x.example>"}}, {nobody, nil}} {
			if all, err := f.Emails.References(ctx, team, c.id); err != nil || !slices.Equal(all, c.want) {
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
			got, err := f.Emails.TeamsOf(ctx, c.teams, c.emails)
			if n := len(trace.Take()); err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) || n != c.asked {
				t.Errorf("%v of %v: %v, %v, after %d statements", c.emails, c.teams, got, err, n)
			}
		}
		first := func() (is bool) {
			err := f.DB.Update(ctx, func(tx *db.Tx) (err error) {
				is, err = emails.MarkSent(ctx, tx, f.Acme.TeamID, emailID)
				return err
			})
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

// First returns true only once per event type and recipient, and only if the address is a recipient.
func TestReportHistory(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		emailID := f.Send(hello("a@one.example", "b@one.example"))
		f.Happen(events.Event{TeamID: f.Acme.TeamID, EmailID: emailID, Type: events.EmailBounced,
			Recipient: "a@one.example"})
		var before emails.ReportHistory
		err := f.DB.Update(ctx, func(tx *db.Tx) (err error) {
			before, err = emails.LockReportHistory(ctx, tx, f.Acme.TeamID, emailID, []string{"a@one.example", "b@one.example",
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

// An event without a recipient changes the state of all recipients of the email. The event email.sent does not change
// the recipients' states, because delivery to some recipients may not have been tried yet.
func TestEventsOfTheWholeEmail(t *testing.T) {
	eachTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		emailID := f.Send(hello("a@one.example", "b@two.example"))
		for _, c := range []struct {
			typ  events.Type
			want emails.State // of the recipients
		}{{events.EmailSent, emails.Queued}, {events.EmailFailed, emails.Failed}} {
			f.Happen(events.Event{TeamID: f.Acme.TeamID, EmailID: emailID, Type: c.typ})
			to, err := f.Emails.Recipients(t.Context(), f.Acme.TeamID, emailID)
			if err != nil || len(to) != 2 || to[0].State != c.want || to[1].State != c.want {
				t.Errorf("after %s: %+v, %v", c.typ, to, err)
			}
		}
		// Neither the first events for an email nor events without an email cause additional database statements.
		for name, act := range map[string]func(){
			"accepted":   func() { f.Send(hello("a@one.example")) },
			"scheduled":  func() { f.schedule(t) },
			"a domain's": func() { f.Happen(events.Event{TeamID: f.Acme.TeamID, Type: events.DomainUpdated}) },
			"an email's that is no state": func() {
				f.Happen(events.Event{TeamID: f.Acme.TeamID, EmailID: emailID, Type: events.EmailUnsubscribed})
			},
			"of no email": func() { f.Happen(events.Event{TeamID: f.Acme.TeamID, Type: events.EmailDelivered}) },
		} {
			trace.Take()
			act()
			for _, s := range trace.Take() {
				if strings.HasPrefix(s.SQL, "UPDATE email") {
					t.Errorf("%s: %s", name, s.SQL)
				}
			}
		}
		for want, to := range [][]string{1: {"a@one.example"}, 2: {"a@one.example", "b@one.example"}} {
			if to == nil {
				continue
			}
			s := hello(to...)
			s.ScheduledAt = "in 2 hours"
			later := f.Send(s)
			trace.Take()
			if err := f.Emails.Cancel(t.Context(), f.Acme.TeamID, later); err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, s := range trace.Take() {
				if strings.HasPrefix(s.SQL, "UPDATE email") {
					n++
				}
			}
			if n != want {
				t.Errorf("canceling takes %d updates, want one of the email and one of its recipients if it has several", n)
			}
		}
	})
}

// The payload of a delivery job contains data that would otherwise have to be looked up in the database.
func TestWhatDeliveryJobsSay(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		if _, err := f.Suppressions.Add(t.Context(), f.Acme.TeamID, []string{"gone@one.example"}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			to   []string
			want []emails.Delivery
		}{
			{[]string{"gone@one.example", "a@one.example", "b@ONE.example"},
				[]emails.Delivery{{TeamID: f.Acme.TeamID, Domain: "one.example", Only: true,
					To: []string{"a@one.example", "b@one.example"}, Size: 12 + 1024}}},
			{[]string{"a@one.example", "gone@one.example", "b@two.example"},
				[]emails.Delivery{{TeamID: f.Acme.TeamID, Domain: "one.example", To: []string{"a@one.example"}, Size: 12 + 1024},
					{TeamID: f.Acme.TeamID, Domain: "two.example", To: []string{"b@two.example"}, Size: 12 + 1024}}},
		} {
			for _, later := range []bool{false, true} {
				f.change(`DELETE FROM jobs`)
				s := hello(c.to...)
				if later {
					s.ScheduledAt = "in 1 hour"
				}
				emailID := f.Send(s)
				if later {
					if err := f.Emails.Kinds()[0].Handle(t.Context(), f.inHand(t, emails.ReleaseKind, emailID)); err != nil {
						t.Fatal(err)
					}
				}
				rows, err := f.DB.Query(t.Context(), `SELECT payload, lane FROM jobs ORDER BY lane`)
				got, err := db.Collect(rows, err, func(r db.Row) (d emails.Delivery, err error) {
					var payload, lane string
					if err := r.Scan(&payload, &lane); err != nil {
						return d, err
					}
					return emails.DecodeDelivery(payload, lane)
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

// SendBatch accepts 1 to 100 emails. By default, recipients at the domains example.com and test.com are refused.
func TestBoundsOfBatches(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for n, ok := range map[int]bool{0: false, 1: true, emails.MaxBatch: true, emails.MaxBatch + 1: false} {
			b, err := f.Emails.SendBatch(t.Context(), f.Acme, slices.Repeat([]emails.Send{hello("a@one.example")}, n), true,
				emails.Idempotency{})
			if ok != (err == nil) || ok && len(b.IDs) != n || !ok && fault.KindOf(err) != fault.Invalid {
				t.Errorf("a batch of %d: %d accepted, %v", n, len(b.IDs), err)
			}
		}
		if _, err := f.Emails.Send(t.Context(), f.Acme, hello("a@example.com"), emails.Idempotency{}); fault.KindOf(
			err) != fault.Invalid {
			t.Errorf("to a test domain: %v", err)
		}
	})
}

// An idempotency key may have at most 256 characters.
func TestLengthOfKeys(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for n, kind := range map[int]fault.Kind{256: 0, 257: fault.BadIdempotencyKey} {
			key := emails.Idempotency{Scope: "s", Key: strings.Repeat("k", n)}
			_, err := f.Emails.Send(t.Context(), f.Acme, hello("a@one.example"), key)
			if n == 256 && err != nil || n > 256 && fault.KindOf(err) != kind {
				t.Errorf("a key of %d characters: %v", n, err)
			}
		}
	})
}

// If an email's attachments cannot be stored, the email is refused, and neither rows nor files remain.
func TestAttachmentsThatCannotBeKept(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		given := emails.Upload{Filename: "a.txt", Content: []byte("a"), HasContent: true}
		s.Attachments = []emails.Upload{given, {Path: "ftp://one.example/a"}}
		if _, err := f.Emails.Send(t.Context(), f.Acme, s, emails.Idempotency{}); fault.KindOf(err) != fault.BadAttachment {
			t.Errorf("a path that is none: %v", err)
		}
		if left := f.keys(t); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
		large := composed(message.Address{Local: "a", Domain: "one.example"})
		large.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000))
		if err := errors.Join(os.Rename(f.folder, f.folder+".away"), os.WriteFile(f.folder, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		s.Attachments = []emails.Upload{given}
		if _, err := f.Emails.Send(t.Context(), f.Acme, s, emails.Idempotency{}); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("without a store: %v", err)
		}
		if _, err := f.Emails.SendRaw(t.Context(), f.Acme, large, emails.Idempotency{}); fault.KindOf(
			err) != fault.Unavailable {
			t.Errorf("composed, without a store: %v", err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != 0 {
			t.Errorf("%d emails are accepted", n)
		}
	})
}

// If a stored attachment is truncated, the email cannot be composed, so no incomplete file is sent.
func TestAttachmentThatWasCut(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("content"), HasContent: true}}
		emailID := f.Send(s)
		if err := os.Truncate(f.onlyBlob(t), 3); err != nil {
			t.Fatal(err)
		}
		o, err := f.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID,
			EmailID: emailID, Domain: "one.example"})
		if err != nil {
			t.Fatal(err)
		}
		if text, err := f.Emails.Compose(t.Context(), o); !fault.Ours(err) {
			t.Errorf("composed are %d bytes, %v", len(text), err)
		}
	})
}

// A deleted team's download and share links do not work, and neither do forged links.
func TestLinksThatLeadNowhere(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		s := hello("a@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("a"), HasContent: true}}
		emailID := f.Send(s)
		files, _, err := f.Emails.Attachments(ctx, f.Acme.TeamID, emailID, page.Page{})
		if err != nil || len(files) != 1 {
			t.Fatalf("%+v, %v", files, err)
		}
		link, err := f.Emails.Share(ctx, f.Acme.TeamID, emailID, "48 hours")
		if err != nil {
			t.Fatal(err)
		}
		token := strings.TrimPrefix(link, testnode.PublicURL+"/shared?token=")
		if e, all, err := f.Emails.Shared(ctx, token); err != nil || e.ID != emailID || len(all) != 1 {
			t.Errorf("shared is %s with %d files, %v", e.ID, len(all), err)
		}
		if content, err := f.read(t, &files[0]); err != nil || content != "a" {
			t.Errorf("downloaded is %q, %v", content, err)
		}
		if _, err := f.Emails.Share(ctx, f.Acme.TeamID, emailID, "2881 minutes"); fault.KindOf(err) != fault.Invalid {
			t.Errorf("shared for too long: %v", err)
		}
		for _, forged := range []string{"", token + "x", "a.b.c"} {
			if _, _, err := f.Emails.Shared(ctx, forged); fault.KindOf(err) != fault.NotFound {
				t.Errorf("shared by %q: %v", forged, err)
			}
			if _, _, err := f.Emails.Download(ctx, forged); fault.KindOf(err) != fault.NotFound {
				t.Errorf("downloaded by %q: %v", forged, err)
			}
		}
		if err := f.Teams.Delete(ctx, f.Queue, f.Acme.TeamID); err != nil {
			t.Fatal(err)
		}
		if _, _, err := f.Emails.Shared(ctx, token); fault.KindOf(err) != fault.NotFound {
			t.Errorf("shared of a deleted team: %v", err)
		}
		if _, err := f.read(t, &files[0]); fault.KindOf(err) != fault.NotFound {
			t.Errorf("downloaded of a deleted team: %v", err)
		}
	})
}

// If another node stores the same idempotency key at the same time, the request returns the answer stored by that node.
func TestKeyTakenByAnotherNode(t *testing.T) {
	eachArmed(t, "FROM suppressions", func(t *testing.T, f *fixture, arm func(func()) func() bool) {
		other := testnode.Bare(t, f.DB, testnode.Options{}).Emails
		for _, c := range []struct {
			name, hash string // hash of the other node's payload
			kind       fault.Kind
		}{{"the same", "h", 0}, {"another", "i", fault.IdempotencyMismatch}} {
			key := emails.Idempotency{Scope: "s", Key: c.name, Hash: c.hash}
			var first string
			theirs := key
			before := f.Count(`SELECT COUNT(*) FROM emails`)
			taken := arm(func() {
				var err error
				if first, err = other.Send(context.Background(), f.Acme, hello("a@one.example"), theirs); err != nil {
					t.Error(err)
				}
			})
			key.Hash = "h"
			got, err := f.Emails.Send(t.Context(), f.Acme, hello("a@one.example"), key)
			if c.kind == 0 && (err != nil || got != first) || c.kind != 0 && fault.KindOf(err) != c.kind {
				t.Errorf("%s: %s, %v; want %s", c.name, got, err, first)
			}
			if n := f.Count(`SELECT COUNT(*) FROM emails`) - before; n != 1 || !taken() {
				t.Errorf("%s: %d emails, the key was taken: %v", c.name, n, taken())
			}
		}
	})
}

// A job ends if its email does not exist or if nothing remains to be done.
func TestJobsOfNoEmail(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		path := hello("a@one.example")
		path.Attachments = []emails.Upload{{Path: "http://127.0.0.1:1/a"}}
		for i, prepare := range []func() string{func() string { return f.schedule(t) },
			func() string { return f.Send(path) }} {
			kind := f.Emails.Kinds()[i]
			for name, state := range map[string]int{"no email": 0, "one that is delivered": 5} {
				emailID := prepare()
				j := f.inHand(t, kind.Name, emailID)
				if state == 0 {
					j.Payload = id.New()
				} else {
					f.change(`UPDATE emails SET last_event = $2 WHERE id = $1`, db.ID(emailID), state)
				}
				if err := kind.Handle(t.Context(), j); err != nil {
					t.Errorf("%s of %s: %v", kind.Name, name, err)
				}
				if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE id = $1`, db.ID(j.ID)) +
					f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 0 {
					t.Errorf("%s of %s: %d jobs are left", kind.Name, name, n)
				}
			}
		}
	})
}

// Reschedule moves the existing release job, or enqueues a job if none exists.
func TestRescheduleMovesTheJob(t *testing.T) {
	eachTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		emailID := f.schedule(t)
		for _, lost := range []bool{false, true} {
			if lost {
				f.change(`DELETE FROM jobs`)
			}
			trace.Take()
			if err := f.Emails.Reschedule(t.Context(), f.Acme.TeamID, emailID, "in 2 hours"); err != nil {
				t.Fatal(err)
			}
			entered := slices.ContainsFunc(trace.Take(), func(s db.Statement) bool {
				return strings.HasPrefix(s.SQL,
					"INSERT INTO jobs")
			})
			if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE dedupe = $1`, emailID); n != 1 || entered != lost {
				t.Errorf("lost %v: %d jobs, one was entered: %v", lost, n, entered)
			}
		}
		if err := f.Emails.Reschedule(t.Context(), f.Acme.TeamID, emailID, ""); fault.KindOf(err) != fault.Missing {
			t.Errorf("to no time: %v", err)
		}
		err := f.Emails.Reschedule(t.Context(), f.Acme.TeamID, id.New(), "in 1 hour")
		if fault.KindOf(err) != fault.NotFound {
			t.Errorf("of no email: %v", err)
		}
	})
}

// If there are no rows to delete, the delete operations write nothing.
func TestNothingToRemove(t *testing.T) {
	eachTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		ctx, team := t.Context(), f.Acme.TeamID
		check := func(what string) {
			t.Helper()
			for name, do := range map[string]step{"RemoveBefore": f.Emails.RemoveBefore,
				"RemoveBodiesLeft": f.Emails.RemoveSkippedBodies,
				"RemoveTimelines":  f.Emails.RemoveTimelines} {
				trace.Take()
				f.all(t, do, func() {})
				for _, s := range trace.Take() {
					if strings.HasPrefix(s.SQL, "DELETE") {
						t.Errorf("%s, %s: %s", what, name, s.SQL)
					}
				}
			}
		}
		check("without emails")
		f.Send(hello("a@one.example"))
		check("with one that waits")
		f.change(`DELETE FROM jobs`)
		f.fill(t, 250) // the events of these emails are not counted yet, so the emails are kept
		check("with many that are not counted")
		if n := f.Count(`SELECT COUNT(*) FROM emails`); n != 251 {
			t.Errorf("%d emails are left", n)
		}
		trace.Take()
		if err := f.Emails.EraseTeam(ctx, id.New()); err != nil {
			t.Error(err)
		}
		for _, s := range trace.Take() {
			if strings.HasPrefix(s.SQL, "DELETE FROM emails") {
				t.Errorf("a team without emails is erased by %s", s.SQL)
			}
		}
		f.Counted(later())
		if n := f.all(t, f.Emails.RemoveTimelines, func() {}); n != 4 {
			t.Errorf("250 timelines go in %d batches", n)
		}
		if n := f.Count(`SELECT COUNT(*) FROM email_events WHERE team_id = $1`, db.ID(team)); n != 0 {
			t.Errorf("%d events are left", n)
		}
	})
}

// If a row contains an invalid number, a read returns an internal error instead of zero.
func TestNumbersThatCannotBeRead(t *testing.T) {
	d := dbtest.SQLite(t) // PostgreSQL takes none
	f := newFixture(t, d)
	ctx, team := t.Context(), f.Acme.TeamID
	emailID := f.fill(t, 1)[0]
	f.change(`INSERT INTO email_attachments (id, email_id, team_id, filename, content_type, content_id, size,
		blob_key, path)
		VALUES ($3, $1, $2, 'a', '', '', 1, 'k', '')`, db.ID(emailID), db.ID(team), db.ID(dbtest.ID("f")))
	j := jobs.Job{Kind: emails.ReleaseKind, TeamID: team, Payload: emailID}
	for _, c := range []struct {
		column string
		read   []func() error
	}{
		{"email_recipients.updated_at",
			[]func() error{func() error { _, err := f.Emails.Recipients(ctx, team, emailID); return err }}},
		{"email_events.started_at", []func() error{
			func() error { _, _, err := f.Emails.Attempts(ctx, team, emailID, page.Page{}); return err }}},
		{"email_attachments.size", []func() error{
			func() error { _, _, err := f.Emails.Attachments(ctx, team, emailID, page.Page{}); return err },
			func() error { _, err := f.Emails.Attachment(ctx, team, emailID, dbtest.ID("f")); return err },
		}},
		{"email_bodies.parts", []func() error{func() error {
			_, err := f.Emails.Size(ctx, f.Acme.TeamID, emailID)
			return err
		}}},
		{"emails.created_at", []func() error{
			func() error { _, err := f.Emails.Get(ctx, team, emailID); return err },
			func() error { _, _, err := f.Emails.List(ctx, team, page.Page{}); return err },
			func() error {
				_, err := f.Emails.Outgoing(ctx, emails.Delivery{TeamID: f.Acme.TeamID, EmailID: emailID})
				return err
			},
			func() error { return f.Emails.Kinds()[0].Handle(ctx, j) },
		}},
	} {
		table, column, _ := strings.Cut(c.column, ".")
		dbtest.Loosen(t, f.DB, table)
		f.change(`UPDATE ` + table + ` SET ` + column + ` = 'x'`)
		for i, read := range c.read {
			if err := read(); !fault.Ours(err) {
				t.Errorf("%s, %d: %v", c.column, i, err)
			}
		}
	}
	f = newFixture(t, dbtest.SQLite(t))
	emailID = f.Send(hello("a@one.example"))
	f.change(`UPDATE emails SET recipient = 'nobody'`)
	if _, err := f.Emails.Outgoing(ctx, emails.Delivery{TeamID: f.Acme.TeamID,
		EmailID: emailID, Domain: "one.example"}); !fault.Ours(err) {
		t.Errorf("a recipient that is none: %v", err)
	}
	f.change(`UPDATE emails SET recipient = 'a@one.example'`)
	several := f.Send(hello("a@one.example", "b@one.example"))
	f.change(`UPDATE email_recipients SET address = 'nobody'`)
	if _, err := f.Emails.Outgoing(ctx, emails.Delivery{TeamID: f.Acme.TeamID,
		EmailID: several, Domain: "one.example"}); !fault.Ours(err) {
		t.Errorf("recipients that are none: %v", err)
	}
	for _, text := range []string{`UPDATE emails SET sender = 'nobody'`,
		`UPDATE emails SET sender = 'a@acme.example', recipients = '{"cc":["nobody"]}'`,
		`UPDATE emails SET recipients = '{'`, `UPDATE emails SET recipients = '{}', tags = ''`,
		`UPDATE email_bodies SET headers = '{'`} {
		f.change(text)
		o, err := f.Emails.Outgoing(ctx, emails.Delivery{TeamID: f.Acme.TeamID, EmailID: emailID, Domain: "one.example"})
		if err == nil {
			_, err = f.Emails.Compose(ctx, o)
		}
		if whole := strings.HasSuffix(text, "tags = ''"); !whole && !fault.Ours(err) || whole && err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
	f.change(`UPDATE email_bodies SET headers = '[{"Name":"X A","Value":"b"}]'`)
	out, err := f.Emails.Outgoing(ctx, emails.Delivery{TeamID: f.Acme.TeamID, EmailID: emailID, Domain: "one.example"})
	if err != nil {
		t.Fatal(err)
	}
	if text, err := f.Emails.Compose(ctx, out); fault.KindOf(err) != fault.Invalid || text != nil {
		t.Errorf("what cannot be composed has become %q, %v", text, err)
	}
	o := &emails.Outgoing{To: []string{"nobody"}}
	if _, err := f.Emails.DropSuppressed(ctx, o); !fault.Ours(err) {
		t.Errorf("a recipient that is none is sifted: %v", err)
	}
}
