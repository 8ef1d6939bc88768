package emails_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// inHand claims the job for an email, as a worker does, and returns the job.
func (f *fixture) inHand(t *testing.T, kind, emailID string) jobs.Job {
	t.Helper()
	j := jobs.Job{Kind: kind, Lane: f.Acme.TeamID, TeamID: f.Acme.TeamID, Payload: emailID, Attempt: 1,
		CreatedAt: time.Now()}
	err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE id = $1 AND scheduled_at IS NOT NULL`, db.ID(emailID))
		return tx.QueryRow(t.Context(),
			`UPDATE jobs SET run_at = $3, attempt = 1, holder = id WHERE kind = $1 AND dedupe = $2
			RETURNING id`, kind, emailID, time.Now().Add(time.Minute).UnixMicro()).Scan((*db.ID)(&j.ID))
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// eachTraced is like each, but also provides a trace of the database statements.
func eachTraced(t *testing.T, f func(t *testing.T, f *fixture, trace *dbtest.Trace)) {
	t.Helper()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) { f(t, newFixture(t, d), trace) })
}

// sqliteTraced is like eachTraced, but runs only on SQLite.
func sqliteTraced(t *testing.T, f func(t *testing.T, f *fixture, trace *dbtest.Trace)) {
	t.Helper()
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) { f(t, newFixture(t, d), trace) })
}

// A read operation returns an error if any of its database statements fails. A failed read operation never returns
// incomplete data.
func TestReadsWithoutAStatement(t *testing.T) {
	sqliteTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		ctx, team := t.Context(), f.Acme.TeamID
		s := hello("ann@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("a"), HasContent: true}}
		s.Headers = []message.Field{{Name: "References", Value: "<a@b.example>"}}
		id := f.Send(s)
		large := composed(message.Address{Local: "a", Domain: "one.example"})
		large.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000))
		raw, err := f.Emails.SendRaw(ctx, f.Acme, large, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		files, _, err := f.Emails.Attachments(ctx, team, id, page.Page{})
		if err != nil || len(files) != 1 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		link, _ := f.Emails.DownloadURL(&files[0], time.Now())
		token := link[strings.LastIndexByte(link, '/')+1:]
		share, err := f.Emails.Share(ctx, team, id, "")
		if err != nil {
			t.Fatal(err)
		}
		shared, err := url.Parse(share)
		if err != nil {
			t.Fatal(err)
		}
		ref := f.Ref(id)
		compose := func(id string) error {
			o, err := f.Emails.Outgoing(ctx, emails.Delivery{TeamID: f.Acme.TeamID, EmailID: id, Domain: "one.example"})
			if err != nil {
				return err
			}
			if _, err := f.Emails.DropSuppressed(ctx, o); err != nil {
				return err
			}
			text, err := f.Emails.Compose(ctx, o)
			if err == nil && len(text) == 0 {
				err = errors.New("nothing was composed")
			}
			return err
		}
		for name, read := range map[string]func() error{
			"Get":         func() error { _, err := f.Emails.Get(ctx, team, id); return err },
			"List":        func() error { _, _, err := f.Emails.List(ctx, team, page.Page{}); return err },
			"Recipients":  func() error { _, err := f.Emails.Recipients(ctx, team, id); return err },
			"Timeline":    func() error { _, _, err := f.Emails.Timeline(ctx, team, id, page.Page{}); return err },
			"Attempts":    func() error { _, _, err := f.Emails.Attempts(ctx, team, id, page.Page{}); return err },
			"Attachments": func() error { _, _, err := f.Emails.Attachments(ctx, team, id, page.Page{}); return err },
			"Attachment":  func() error { _, err := f.Emails.Attachment(ctx, team, id, files[0].ID); return err },
			"Download": func() error {
				_, content, err := f.Emails.Download(ctx, token)
				if err == nil {
					err = content.Close()
				}
				return err
			},
			"Share":       func() error { _, err := f.Emails.Share(ctx, team, id, ""); return err },
			"Shared":      func() error { _, _, err := f.Emails.Shared(ctx, shared.Query().Get("token")); return err },
			"Compose":     func() error { return compose(id) },
			"Compose raw": func() error { return compose(raw) },
			"Size":        func() error { _, err := f.Emails.Size(ctx, f.Acme.TeamID, id); return err },
			"Reported":    func() error { _, err := f.Emails.BounceTarget(ctx, ref); return err },
			"TeamsOf":     func() error { _, err := f.Emails.TeamsOf(ctx, []string{team}, []string{id}); return err },
			"References":  func() error { _, err := f.Emails.References(ctx, team, id); return err },
			"WaitingFrom": func() error { _, err := f.Emails.HasScheduledFrom(ctx, team, f.Sender.ID); return err },
			"Brief":       func() error { _, err := emails.EventSummary(ctx, f.DB.Reader, team, id); return err },
			"how often": func() error {
				_, err := emails.UnknownAttempts(ctx, f.DB.Reader, team, id,
					"one.example")
				return err
			},
			"SweepFiles": func() error {
				f.age(t)
				return f.Emails.SweepFiles(ctx)
			},
		} {
			if failed := trace.EachBroken(t, nil, read, nil); failed < 1 {
				t.Errorf("%s never fails", name)
			}
		}
	})
}

// If any database statement in a write operation fails, the operation returns an error and the email is unchanged.
func TestVerbsWithoutAStatement(t *testing.T) {
	sqliteTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		ctx, team := t.Context(), f.Acme.TeamID
		text := "Hello."
		full := emails.Send{From: "hello@acme.example", To: []string{"a@one.example", "b@two.example"}, Subject: "Hi",
			Text: &text,
			Tags: []emails.Tag{{Name: "a", Value: "b"}}, Headers: []message.Field{{Name: "X-A", Value: "b"}}}
		file := full
		file.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("a"), HasContent: true}}
		path := full
		path.Attachments = []emails.Upload{{Path: "http://127.0.0.1:1/a.txt"}}
		later := full
		later.ScheduledAt = "in 1 hour"
		var id string
		var j jobs.Job
		laterPath := path
		laterPath.ScheduledAt = "in 1 hour"
		send := func(s emails.Send) func() { return func() { id = f.Send(s) } }
		held := func(kind string, s emails.Send) func() {
			return func() {
				id = f.Send(s)
				j = f.inHand(t, kind, id)
				f.DB.Hint("domains", f.Sender.ID) // makes the cached sending domain expire
			}
		}
		key := 0
		for _, c := range []struct {
			name    string
			prepare func()
			act     func() error
		}{
			{"Send", nil, func() error {
				key++
				f.DB.Hint("domains", f.Sender.ID)
				_, err := f.Emails.Send(ctx, f.Acme, file, emails.Idempotency{Scope: "s", Key: fmt.Sprint("key", key)})
				return err
			}},
			{"Send later", nil, func() error { _, err := f.Emails.Send(ctx, f.Acme, later, emails.Idempotency{}); return err }},
			{"SendBatch", nil, func() error {
				f.DB.Hint("domains", f.Sender.ID)
				_, err := f.Emails.SendBatch(ctx, f.Acme, []emails.Send{full, full}, true, emails.Idempotency{})
				return err
			}},
			{"SendRaw", nil, func() error {
				_, err := f.Emails.SendRaw(ctx, f.Acme, composed(message.Address{Local: "a", Domain: "one.example"}),
					emails.Idempotency{})
				return err
			}},
			{"Reschedule", send(later), func() error { return f.Emails.Reschedule(ctx, team, id, "in 2 hours") }},
			{"Cancel", send(later), func() error { return f.Emails.Cancel(ctx, team, id) }},
			{"release", held(emails.ReleaseKind, later), func() error { return f.Emails.Kinds()[0].Handle(ctx, j) }},
			{"release to be fetched", held(emails.ReleaseKind, laterPath), func() error {
				return f.Emails.Kinds()[0].Handle(ctx,
					j)
			}},
			{"a fetch that fails", held(emails.FetchKind, path), func() error { return f.Emails.Kinds()[1].Handle(ctx, j) }},
			{"ReportedBefore", send(full), func() error {
				return f.DB.Update(ctx, func(tx *db.Tx) error {
					before, err := emails.LockReportHistory(ctx, tx, team, id, []string{"a@one.example"})
					if err == nil && !before.First("a@one.example", events.EmailBounced) {
						err = errors.New("the recipient is unknown")
					}
					return err
				})
			}},
			{"an outcome", send(full), func() error { return f.recordDelivery(ctx, id) }},
			{"Sweep", nil, func() error { return f.Emails.Sweep(ctx) }},
		} {
			before := ""
			stand := func() string { return f.rows(t, id) }
			failed := trace.EachBroken(t, func() {
				if id = ""; c.prepare != nil {
					c.prepare()
				}
				before = stand()
			}, c.act, func(err error) {
				if now := stand(); err != nil && now != before {
					t.Errorf("%s fails and has changed something: %v\n%s\n%s", c.name, err, before, now)
				}
			})
			if failed < 1 {
				t.Errorf("%s never fails", c.name)
			}
		}
	})
}

// rows returns a string that contains the state of an email and the number of rows in each table used by this package.
func (f *fixture) rows(t *testing.T, emailID string) string {
	t.Helper()
	var state, to string
	if emailID != "" {
		all, err := f.Emails.Recipients(t.Context(), f.Acme.TeamID, emailID)
		if err != nil {
			t.Fatal(err)
		}
		state, to = string(f.state(emailID)), fmt.Sprint(all)
	}
	return fmt.Sprint(state, to, f.Count(`SELECT COUNT(*) FROM emails`),
		f.Count(`SELECT COUNT(*) FROM email_bodies`),
		f.Count(`SELECT COUNT(*) FROM email_recipients`), f.Count(`SELECT COUNT(*) FROM email_events`),
		f.Count(`SELECT COUNT(*) FROM email_events WHERE outcome IS NOT NULL`), f.Count(`SELECT COUNT(*) FROM email_attachments`),
		f.Count(`SELECT COUNT(*) FROM jobs`), f.Count(`SELECT COUNT(*) FROM idempotency_keys`))
}

// recordDelivery records an attempt in which an email is delivered to a@one.example.
func (f *fixture) recordDelivery(ctx context.Context, emailID string) error {
	team := f.Acme.TeamID
	return f.DB.Update(ctx, func(tx *db.Tx) error {
		first, err := emails.MarkSent(ctx, tx, f.Acme.TeamID, emailID)
		if err != nil || !first {
			return errors.Join(err, fmt.Errorf("it is the first: %v", first))
		}
		return f.Recorder.Record(ctx, tx, events.Event{TeamID: team, EmailID: emailID, Type: events.EmailDelivered,
			Recipient: "a@one.example", Attempt: &events.Attempt{Destination: "one.example", Outcome: "delivered"}})
	})
}

// If any database statement in a delete operation fails, the operation returns an error and can be repeated.
func TestRemovalsWithoutAStatement(t *testing.T) {
	sqliteTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		ctx, team := t.Context(), f.Acme.TeamID
		f.Counted(later())
		a, err := erasure.Parse("b@one.example")
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		one := func() { ids = f.fill(t, 1) }
		shared := func() {
			s := hello("b@one.example", "c@one.example")
			s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("a"), HasContent: true}}
			text := "To b@one.example."
			s.Text = &text
			ids = []string{f.Send(s)}
			f.end(t, ids[0], events.EmailDelivered, "b@one.example", "c@one.example")
		}
		waiting := func() {
			ids = []string{f.Send(hello("c@one.example"))}
			if _, err := f.Emails.RemoveBodies(ctx, team, later(), ""); err != nil {
				t.Fatal(err)
			}
			f.end(t, ids[0], events.EmailDelivered, "c@one.example")
		}
		for _, c := range []struct {
			name    string
			prepare func()
			act     func() error
		}{
			{"RemoveBefore", one, func() error { _, err := f.Emails.RemoveBefore(ctx, team, later(), ""); return err }},
			{"RemoveBodies", shared, func() error { _, err := f.Emails.RemoveBodies(ctx, team, later(), ""); return err }},
			{"RemoveBodiesLeft", waiting, func() error {
				_, err := f.Emails.RemoveSkippedBodies(ctx, team, later(),
					"")
				return err
			}},
			{"RemoveTimelines", one, func() error { _, err := f.Emails.RemoveTimelines(ctx, team, later(), ""); return err }},
			{"DeleteContent", one, func() error { return f.Emails.DeleteContent(ctx, team, ids[0]) }},
			{"EraseAddress", one, func() error {
				_, err := f.Emails.EraseAddress(ctx, a,
					erasure.Scope{All: true})
				return err
			}},
			{"EraseAddress among others", shared, func() error {
				_, err := f.Emails.EraseAddress(ctx, a, erasure.Scope{All: true})
				return err
			}},
			{"EraseTeam", shared, func() error { return f.Emails.EraseTeam(ctx, team) }},
		} {
			if failed := trace.EachBroken(t, c.prepare, c.act, nil); failed < 2 {
				t.Errorf("%s fails %d times", c.name, failed)
			}
		}
		if left := f.keys(t); len(left) > 0 {
			t.Errorf("left are the files %v", left)
		}
		if next, err := f.Emails.RemoveTimelines(ctx, team, later(), "nowhere"); err == nil {
			t.Errorf("it goes on behind nowhere, to %q", next)
		}
	})
}

// read returns the content of an attachment as read through Download.
func (f *fixture) read(t *testing.T, a *emails.Attachment) (string, error) {
	t.Helper()
	link, _ := f.Emails.DownloadURL(a, time.Now())
	_, content, err := f.Emails.Download(t.Context(), link[strings.LastIndexByte(link, '/')+1:])
	if err != nil {
		return "", err
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	return string(text), err
}

// If any database statement in SweepContents fails, SweepContents returns an error, and the next sweep continues where
// it stopped.
func TestSweepContentsWithoutAStatement(t *testing.T) {
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d)
		failed := trace.EachBroken(t, func() {
			f.change(`DELETE FROM contents`)
			f.add(t, news())
			f.change(`UPDATE contents SET used_at = used_at - 10800000000`)
		}, func() error { return f.Emails.SweepContents(t.Context()) }, nil)
		if n := f.Count(`SELECT COUNT(*) FROM contents`); failed < 5 || n != 0 {
			t.Errorf("it failed %d times, and %d contents are left", failed, n)
		}
	})
}
