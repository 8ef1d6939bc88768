package delivery

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The stored attempt contains the first unsuccessful reply. The next attempt starts when all delayed recipients may be
// retried.
func TestAttempt(t *testing.T) {
	now := time.Now()
	of := func(all ...state) (out outcome, verdicts []verdict) {
		for i, s := range all {
			out.answers = append(out.answers, answer{reply: smtpclient.Reply{Code: 200 + i, Text: "reply"}})
			v := verdict{state: s}
			if s == delayed {
				v.until = now.Add(time.Duration(i+1) * time.Minute)
			}
			verdicts = append(verdicts, v)
		}
		return out, verdicts
	}
	for _, c := range []struct {
		states  []state
		unknown int // index of the recipient whose outcome is unknown, or -1
		outcome string
		code    string
		next    time.Duration
	}{
		{[]state{delivered}, -1, "delivered", "200", 0},
		{[]state{delivered, delivered}, -1, "delivered", "200", 0},
		{[]state{delivered, bounced, delivered}, -1, "mixed", "201", 0},
		{[]state{bounced, delivered}, -1, "mixed", "200", 0},
		{[]state{delivered, delivered, bounced, delayed}, -1, "mixed", "202", 4 * time.Minute},
		{[]state{delayed, bounced, delayed, delivered}, -1, "mixed", "200", 3 * time.Minute},
		{[]state{delayed, delayed}, -1, "delayed", "200", 2 * time.Minute},
		{[]state{bounced, bounced}, -1, "bounced", "200", 0},
		{[]state{delayed, delayed}, 0, emails.OutcomeUnknown, "200", 2 * time.Minute},
		{[]state{delayed, bounced}, 0, emails.OutcomeUnknown, "200", time.Minute},
		{[]state{bounced, delayed}, 1, emails.OutcomeUnknown, "200", 2 * time.Minute},
	} {
		out, verdicts := of(c.states...)
		if c.unknown >= 0 {
			out.answers[c.unknown].unknown = true
		}
		tr := &try{o: &emails.Outgoing{}, started: now.Add(-time.Second)}
		a := tr.attempt(out, verdicts, now)
		var next time.Duration
		if !a.NextAt.IsZero() {
			next = a.NextAt.Sub(now)
		}
		if a.Outcome != c.outcome || a.Reply[:3] != c.code || next != c.next || a.Duration != time.Second {
			t.Errorf("%v, unknown %d: %s by %q, again in %v after %v", c.states, c.unknown, a.Outcome, a.Reply, next, a.Duration)
		}
	}
}

// If the file store fails, the outbox returns an error both for storing and for listing messages.
func TestOutboxWithoutItsStore(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t), Config{Transport: Capture}, resolve.Fake{})
	keep := func() error {
		_, err := f.service.outbox.store(t.Context(), &emails.Outgoing{},
			smtpclient.Envelope{To: []string{"ann@one.example"}},
			[][]byte{[]byte("Hi")})
		return err
	}
	if all, err := f.service.Outbox(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("%d are kept, %v", len(all), err)
	}
	if err := keep(); err != nil {
		t.Fatal(err)
	}
	f.service.outbox.blobs = lostStore(t)
	if err := keep(); err == nil {
		t.Error("a message is kept without a store")
	}
	if all, err := f.service.Outbox(t.Context()); err == nil {
		t.Errorf("%d are kept without a store", len(all))
	}
}

// lostStore returns a file store whose folder was deleted, so that writing and listing fail.
func lostStore(t *testing.T) *blob.Store {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "files")
	s, err := blob.Open(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	return s
}
