package emails_test

import (
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/erasure"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/page"
)

// inHand makes the job of an email one that a worker has.
func (w *world) inHand(t *testing.T, kind, emailID string) jobs.Job {
	t.Helper()
	j := jobs.Job{Kind: kind, Lane: w.who.TeamID, TeamID: w.who.TeamID, Payload: emailID, Attempt: 1,
		CreatedAt: time.Now()}
	err := w.d.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `UPDATE emails SET scheduled_at = 1 WHERE id = $1 AND scheduled_at <> 0`, emailID)
		return tx.QueryRow(t.Context(),
			`UPDATE jobs SET run_at = $3, attempt = 1, holder = 'a worker' WHERE kind = $1 AND dedupe = $2
			RETURNING id`, kind, emailID, time.Now().Add(time.Minute).UnixMicro()).Scan(&j.ID)
	})
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// eachTraced is each with a trace of what the database is asked.
func eachTraced(t *testing.T, f func(t *testing.T, w *world, trace *dbtest.Trace)) {
	t.Helper()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) { f(t, newWorld(t, d), trace) })
}

// A verb that reads says when any of its statements fails, and does not leave out what it could not read.
func TestReadsWithoutAStatement(t *testing.T) {
	eachTraced(t, func(t *testing.T, w *world, trace *dbtest.Trace) {
		ctx, team := t.Context(), w.who.TeamID
		s := hello("ann@one.example")
		s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("a"), HasContent: true}}
		s.Headers = []message.Field{{Name: "References", Value: "<a@b.example>"}}
		id := w.send(t, s)
		large := composed(message.Address{Local: "a", Domain: "one.example"})
		large.Body = []byte("\r\n" + strings.Repeat("Hello.\r\n", 10_000))
		raw, err := w.emails.SendRaw(ctx, w.who, large, emails.Idempotency{})
		if err != nil {
			t.Fatal(err)
		}
		files, _, err := w.emails.Attachments(ctx, team, id, page.Page{})
		if err != nil || len(files) != 1 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		link, _ := w.emails.DownloadURL(&files[0], time.Now())
		token := link[strings.LastIndexByte(link, '/')+1:]
		share, err := w.emails.Share(ctx, team, id, "")
		if err != nil {
			t.Fatal(err)
		}
		shared, err := url.Parse(share)
		if err != nil {
			t.Fatal(err)
		}
		compose := func(id string) error {
			o, err := w.emails.Outgoing(ctx, emails.Delivery{EmailID: id, Domain: "one.example"})
			if err != nil {
				return err
			}
			if _, err := w.emails.Sift(ctx, o); err != nil {
				return err
			}
			text, err := w.emails.Compose(ctx, o)
			if err == nil && len(text) == 0 {
				err = errors.New("nothing was composed")
			}
			return err
		}
		for name, read := range map[string]func() error{
			"Get":         func() error { _, err := w.emails.Get(ctx, team, id); return err },
			"List":        func() error { _, _, err := w.emails.List(ctx, team, page.Page{}); return err },
			"Recipients":  func() error { _, err := w.emails.Recipients(ctx, team, id); return err },
			"Timeline":    func() error { _, err := w.emails.Timeline(ctx, team, id); return err },
			"Attempts":    func() error { _, err := w.emails.Attempts(ctx, team, id); return err },
			"Attachments": func() error { _, _, err := w.emails.Attachments(ctx, team, id, page.Page{}); return err },
			"Attachment":  func() error { _, err := w.emails.Attachment(ctx, team, id, files[0].ID); return err },
			"Download": func() error {
				_, content, err := w.emails.Download(ctx, token)
				if err == nil {
					err = content.Close()
				}
				return err
			},
			"Share":       func() error { _, err := w.emails.Share(ctx, team, id, ""); return err },
			"Shared":      func() error { _, _, err := w.emails.Shared(ctx, shared.Query().Get("token")); return err },
			"Compose":     func() error { return compose(id) },
			"Compose raw": func() error { return compose(raw) },
			"Size":        func() error { _, err := w.emails.Size(ctx, id); return err },
			"Reported":    func() error { _, err := w.emails.Reported(ctx, id); return err },
			"TeamsOf":     func() error { _, err := w.emails.TeamsOf(ctx, []string{team}, []string{id}); return err },
			"References":  func() error { _, err := w.emails.References(ctx, team, id); return err },
			"WaitingFrom": func() error { _, err := w.emails.WaitingFrom(ctx, team, w.domainID); return err },
			"Brief":       func() error { _, err := emails.Brief(ctx, w.d.Reader, team, id); return err },
			"how often": func() error {
				_, err := emails.UnsureAttempts(ctx, w.d.Reader, team, id,
					"one.example")
				return err
			},
			"SweepFiles": func() error {
				w.age(t)
				return w.emails.SweepFiles(ctx)
			},
		} {
			if failed := trace.EachBroken(t, nil, read, nil); failed < 1 {
				t.Errorf("%s never fails", name)
			}
		}
	})
}

// A verb of which any statement fails says so, and the email is as it was.
func TestVerbsWithoutAStatement(t *testing.T) {
	eachTraced(t, func(t *testing.T, w *world, trace *dbtest.Trace) {
		ctx, team := t.Context(), w.who.TeamID
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
		send := func(s emails.Send) func() { return func() { id = w.send(t, s) } }
		held := func(kind string, s emails.Send) func() {
			return func() {
				id = w.send(t, s)
				j = w.inHand(t, kind, id)
				w.d.Hint("domains", w.domainID) // so that the sender is looked up again
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
				w.d.Hint("domains", w.domainID)
				_, err := w.emails.Send(ctx, w.who, file, emails.Idempotency{Scope: "s", Key: fmt.Sprint("key", key)})
				return err
			}},
			{"Send later", nil, func() error { _, err := w.emails.Send(ctx, w.who, later, emails.Idempotency{}); return err }},
			{"SendBatch", nil, func() error {
				w.d.Hint("domains", w.domainID)
				_, err := w.emails.SendBatch(ctx, w.who, []emails.Send{full, full}, true, emails.Idempotency{})
				return err
			}},
			{"SendRaw", nil, func() error {
				_, err := w.emails.SendRaw(ctx, w.who, composed(message.Address{Local: "a", Domain: "one.example"}),
					emails.Idempotency{})
				return err
			}},
			{"Reschedule", send(later), func() error { return w.emails.Reschedule(ctx, team, id, "in 2 hours") }},
			{"Cancel", send(later), func() error { return w.emails.Cancel(ctx, team, id) }},
			{"release", held(emails.ReleaseKind, later), func() error { return w.emails.Kinds()[0].Handle(ctx, j) }},
			{"release to be fetched", held(emails.ReleaseKind, laterPath), func() error {
				return w.emails.Kinds()[0].Handle(ctx,
					j)
			}},
			{"a fetch that fails", held(emails.FetchKind, path), func() error { return w.emails.Kinds()[1].Handle(ctx, j) }},
			{"ReportedBefore", send(full), func() error {
				return w.d.Update(ctx, func(tx *db.Tx) error {
					before, err := emails.ReportedBefore(ctx, tx, team, id, []string{"a@one.example"})
					if err == nil && !before.First("a@one.example", events.EmailBounced) {
						err = errors.New("the recipient is unknown")
					}
					return err
				})
			}},
			{"an outcome", send(full), func() error {
				return w.d.Update(ctx, func(tx *db.Tx) error {
					first, err := emails.MarkSent(ctx, tx, id)
					if err != nil || !first {
						return errors.Join(err, fmt.Errorf("it is the first: %v", first))
					}
					if err := emails.RecordAttempt(ctx, tx, emails.Attempt{TeamID: team, EmailID: id,
						Destination: "one.example"}); err != nil {
						return err
					}
					return w.recorder.Record(ctx, tx, events.Event{TeamID: team, EmailID: id, Type: events.EmailDelivered,
						Recipient: "a@one.example"})
				})
			}},
			{"Sweep", nil, func() error { return w.emails.Sweep(ctx) }},
		} {
			before := ""
			stand := func() string {
				var state, parts string
				if id != "" {
					to, err := w.emails.Recipients(ctx, team, id)
					if err != nil {
						t.Fatal(err)
					}
					state, parts = string(w.state(t, id)), fmt.Sprint(to)
				}
				return fmt.Sprint(state, parts, w.count(t, `SELECT COUNT(*) FROM emails`),
					w.count(t, `SELECT COUNT(*) FROM email_bodies`),
					w.count(t, `SELECT COUNT(*) FROM email_recipients`), w.count(t, `SELECT COUNT(*) FROM email_events`),
					w.count(t, `SELECT COUNT(*) FROM email_attempts`), w.count(t, `SELECT COUNT(*) FROM email_attachments`),
					w.count(t, `SELECT COUNT(*) FROM jobs`), w.count(t, `SELECT COUNT(*) FROM idempotency_keys`))
			}
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

// What deletes says when any of its statements fails, and can be repeated.
func TestRemovalsWithoutAStatement(t *testing.T) {
	eachTraced(t, func(t *testing.T, w *world, trace *dbtest.Trace) {
		ctx, team := t.Context(), w.who.TeamID
		w.counted(t)
		a, err := erasure.Parse("b@one.example")
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		one := func() { ids = w.fill(t, 1) }
		shared := func() {
			s := hello("b@one.example", "c@one.example")
			s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("a"), HasContent: true}}
			text := "To b@one.example."
			s.Text = &text
			ids = []string{w.send(t, s)}
			w.end(t, ids[0], events.EmailDelivered, "b@one.example", "c@one.example")
		}
		waiting := func() {
			ids = []string{w.send(t, hello("c@one.example"))}
			if _, err := w.emails.RemoveBodies(ctx, team, later(), ""); err != nil {
				t.Fatal(err)
			}
			w.end(t, ids[0], events.EmailDelivered, "c@one.example")
		}
		for _, c := range []struct {
			name    string
			prepare func()
			act     func() error
		}{
			{"RemoveBefore", one, func() error { _, err := w.emails.RemoveBefore(ctx, team, later(), ""); return err }},
			{"RemoveBodies", shared, func() error { _, err := w.emails.RemoveBodies(ctx, team, later(), ""); return err }},
			{"RemoveBodiesLeft", waiting, func() error {
				_, err := w.emails.RemoveBodiesLeft(ctx, team, later(),
					"")
				return err
			}},
			{"RemoveTimelines", one, func() error { _, err := w.emails.RemoveTimelines(ctx, team, later(), ""); return err }},
			{"DeleteContent", one, func() error { return w.emails.DeleteContent(ctx, team, ids[0]) }},
			{"EraseAddress", one, func() error {
				_, err := w.emails.EraseAddress(ctx, a,
					erasure.Scope{All: true})
				return err
			}},
			{"EraseAddress among others", shared, func() error {
				_, err := w.emails.EraseAddress(ctx, a, erasure.Scope{All: true})
				return err
			}},
			{"EraseTeam", shared, func() error { return w.emails.EraseTeam(ctx, team) }},
		} {
			if failed := trace.EachBroken(t, c.prepare, c.act, nil); failed < 2 {
				t.Errorf("%s fails %d times", c.name, failed)
			}
		}
		if left := w.keys(t); len(left) > 0 {
			t.Errorf("left are the files %v", left)
		}
		if next, err := w.emails.RemoveTimelines(ctx, team, later(), "nowhere"); err == nil {
			t.Errorf("it goes on behind nowhere, to %q", next)
		}
	})
}

// read reads what can be downloaded.
func (w *world) read(t *testing.T, a *emails.Attachment) (string, error) {
	t.Helper()
	link, _ := w.emails.DownloadURL(a, time.Now())
	_, content, err := w.emails.Download(t.Context(), link[strings.LastIndexByte(link, '/')+1:])
	if err != nil {
		return "", err
	}
	defer content.Close()
	text, err := io.ReadAll(content)
	return string(text), err
}

// A sweep of contents of which any statement fails says so, and the next one goes on.
func TestSweepContentsWithoutAStatement(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		w := newWorld(t, d)
		failed := trace.EachBroken(t, func() {
			w.add(t, news())
			w.change(t, `UPDATE contents SET used_at = 1`)
		}, func() error { return w.emails.SweepContents(t.Context()) }, nil)
		if n := w.count(t, `SELECT COUNT(*) FROM contents`); failed < 3 || n != 0 {
			t.Errorf("it failed %d times, and %d contents are left", failed, n)
		}
	})
}
