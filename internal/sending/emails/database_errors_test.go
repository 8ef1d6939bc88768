package emails_test

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// If the database is unavailable, no operation returns success or NotFound.
func TestVerbsWithoutDatabase(t *testing.T) {
	d := dbtest.SQLite(t)
	f := newFixture(t, d)
	s := hello("ann@one.example")
	s.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("a"), HasContent: true}}
	id, team, ctx := f.Send(s), f.Acme.TeamID, t.Context()
	files, _, err := f.Emails.Attachments(ctx, team, id, page.Page{})
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	link, _ := f.Emails.DownloadURL(&files[0], time.Now())
	share, err := f.Emails.Share(ctx, team, id, "")
	if err != nil {
		t.Fatal(err)
	}
	shared, err := url.Parse(share)
	if err != nil {
		t.Fatal(err)
	}
	last := func(s string) string { return s[strings.LastIndexByte(s, '/')+1:] }
	ref := f.Ref(id)
	delivery := emails.Delivery{TeamID: f.Acme.TeamID, EmailID: id, Domain: "one.example"}
	out, err := f.Emails.Outgoing(ctx, delivery)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
	for name, f := range map[string]func() error{
		"Send": func() error {
			_, err := f.Emails.Send(ctx, f.Acme, hello("a@one.example"), emails.Idempotency{})
			return err
		},
		"SendBatch": func() error {
			_, err := f.Emails.SendBatch(ctx, f.Acme, []emails.Send{hello("a@one.example")}, false, emails.Idempotency{})
			return err
		},
		"permissive": func() error {
			_, err := f.Emails.SendBatch(ctx, f.Acme, []emails.Send{hello("a@one.example")}, true, emails.Idempotency{})
			return err
		},
		"SendRaw": func() error {
			_, err := f.Emails.SendRaw(ctx, f.Acme, composed(message.Address{Local: "a", Domain: "one.example"}),
				emails.Idempotency{})
			return err
		},
		"Get":         func() error { _, err := f.Emails.Get(ctx, team, id); return err },
		"List":        func() error { _, _, err := f.Emails.List(ctx, team, page.Page{}); return err },
		"Recipients":  func() error { _, err := f.Emails.Recipients(ctx, team, id); return err },
		"Timeline":    func() error { _, _, err := f.Emails.Timeline(ctx, team, id, page.Page{}); return err },
		"Attempts":    func() error { _, _, err := f.Emails.Attempts(ctx, team, id, page.Page{}); return err },
		"Attachments": func() error { _, _, err := f.Emails.Attachments(ctx, team, id, page.Page{}); return err },
		"Attachment":  func() error { _, err := f.Emails.Attachment(ctx, team, id, files[0].ID); return err },
		"Download":    func() error { _, _, err := f.Emails.Download(ctx, last(link)); return err },
		"Share":       func() error { _, err := f.Emails.Share(ctx, team, id, ""); return err },
		"Shared": func() error {
			_, _, err := f.Emails.Shared(ctx,
				shared.Query().Get("token"))
			return err
		},
		"Outgoing":    func() error { _, err := f.Emails.Outgoing(ctx, delivery); return err },
		"Sift":        func() error { _, err := f.Emails.DropSuppressed(ctx, out); return err },
		"Size":        func() error { _, err := f.Emails.Size(ctx, f.Acme.TeamID, id); return err },
		"Reported":    func() error { _, err := f.Emails.BounceTarget(ctx, ref); return err },
		"TeamsOf":     func() error { _, err := f.Emails.TeamsOf(ctx, []string{team}, []string{id}); return err },
		"References":  func() error { _, err := f.Emails.References(ctx, team, id); return err },
		"Reschedule":  func() error { return f.Emails.Reschedule(ctx, team, id, "in 1 hour") },
		"Cancel":      func() error { return f.Emails.Cancel(ctx, team, id) },
		"WaitingFrom": func() error { _, err := f.Emails.HasScheduledFrom(ctx, team, f.Sender.ID); return err },
		"Sweep":       func() error { return f.Emails.Sweep(ctx) },
		"EraseTeam":   func() error { return f.Emails.EraseTeam(ctx, team) },
		"Brief":       func() error { _, err := emails.EventSummary(ctx, d.Reader, team, id); return err },
		"how often it was unsure": func() error {
			_, err := emails.UnknownAttempts(ctx, d.Reader, team, id,
				"one.example")
			return err
		},
	} {
		if err := f(); !fault.Ours(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, k := range f.Emails.Kinds() {
		if err := k.Handle(ctx, jobs.Job{ID: "j", Kind: k.Name, TeamID: team, Attempt: 1, Payload: id}); !fault.Ours(err) {
			t.Errorf("%s: %v", k.Name, err)
		}
	}
}
