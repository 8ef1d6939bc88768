package delivery

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

// Each attempt is reported once its outcome is stored, and has a line in the log.
func TestReport(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, to string) string {
			switch {
			case strings.HasPrefix(to, "gone@"):
				return "550 5.1.1 no such user"
			case strings.HasPrefix(to, "busy@"):
				return "451 4.3.0 later"
			}
			return ""
		}})
		n := newNetwork()
		n.host("example.net", "aspmx.l.google.com", 10, mx.Addr)
		c := n.config(3)
		c.SandboxDomains = []string{"resend.dev"}
		f := newFixture(t, d, c, n.dns)
		reports := make(chan Report, 10)
		f.service.p.Observe = func(r Report) { reports <- r }
		lines := make(attemptLines, 100)
		f.service.p.Log = slog.New(slog.NewJSONHandler(lines, &slog.HandlerOptions{Level: slog.LevelDebug}))
		f.run()
		next := func() Report {
			t.Helper()
			select {
			case r := <-reports:
				return r
			case <-time.After(30 * time.Second):
				t.Fatal("no report")
				return Report{}
			}
		}
		test := f.send("delivered@resend.dev") // not reported
		f.wait(test, events.EmailDelivered)
		for _, x := range []struct {
			to, outcome                  string
			delivered, deferred, bounced int
			code                         int
		}{{"ann@example.net", "delivered", 1, 0, 0, 250}, {"gone@example.net", "bounced", 0, 0, 1, 550},
			{"busy@example.net", "delayed", 0, 1, 0, 451}} {
			id := f.send(x.to)
			r := next()
			if r.EmailID != id || r.TeamID != f.Acme.TeamID || r.Outcome != x.outcome || r.Delivered != x.delivered ||
				r.Deferred != x.deferred || r.Bounced != x.bounced || r.Failed != 0 || r.Code != x.code {
				t.Errorf("%s: %+v", x.to, r)
			}
			if r.Provider != "google" || r.Destination != "example.net" || r.Bulk || r.Attempt != 1 ||
				r.Host != "aspmx.l.google.com [10.0.0.1]" || r.Waited < 0 || r.Waited > time.Minute || r.Took <= 0 ||
				r.Conversation <= 0 || r.Conversation > r.Took || r.Began.IsZero() {
				t.Errorf("%s: %+v", x.to, r)
			}
			var line struct {
				Level, Msg, Email, Team, Destination, Host, Outcome string
				Attempt, Code                                       int
			}
			last := lines.of(t, id)
			if err := json.Unmarshal(last, &line); err != nil || line.Msg != "attempt" || line.Email != id ||
				line.Outcome != x.outcome || line.Attempt != 1 || line.Code != x.code || strings.Contains(string(last), x.to) ||
				(line.Level == "DEBUG") != (x.outcome == "delivered") {
				t.Errorf("%s: the line is %s (%v)", x.to, last, err)
			}
		}
		if n := f.service.Connections(); n < 1 {
			t.Errorf("%d connections are open", n)
		}
		if len(reports) > 0 {
			t.Errorf("a report too many: %+v", <-reports)
		}
	})
}

// attemptLines has the lines of a log about attempts, which a service writes after its reports.
type attemptLines chan []byte

func (l attemptLines) Write(line []byte) (int, error) {
	if bytes.Contains(line, []byte(`"msg":"attempt"`)) {
		l <- bytes.Clone(line)
	}
	return len(line), nil
}

// of returns the next line about an email.
func (l attemptLines) of(t *testing.T, emailID string) []byte {
	t.Helper()
	for {
		select {
		case line := <-l:
			if bytes.Contains(line, []byte(emailID)) {
				return line
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no line about %s", emailID)
		}
	}
}

// An email that Postrider fails is reported.
func TestReportOfFailedEmail(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	f := newFixture(t, d, Config{}, newNetwork().dns)
	reports := make(chan Report, 10)
	f.service.p.Observe = func(r Report) { reports <- r }
	id := f.send("ann@example.net", "bob@example.net")
	f.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `DELETE FROM email_bodies`)
		return err
	})
	f.run()
	f.wait(id, events.EmailFailed)
	if r := <-reports; r.EmailID != id || r.Outcome != "failed" || r.Failed != 2 || r.Provider != "other" || r.Code != 0 {
		t.Errorf("%+v", r)
	}
}

// Paused destinations and failing hosts are counted.
func TestPauses(t *testing.T) {
	t.Parallel()
	s := newService(Config{}, Deps{})
	now := s.shape.now()
	if destinations, hosts := s.Pauses(); destinations != 0 || hosts != 0 {
		t.Errorf("%d, %d at first", destinations, hosts)
	}
	s.shape.entry("a.example").until = now.Add(time.Minute)
	s.shape.entry("b.example").until = now.Add(-time.Minute)
	s.hosts.entries["10.0.0.1:25"] = &host{failure: failure{until: now.Add(time.Minute)}}
	s.hosts.entries["10.0.0.2:25"] = &host{}
	if destinations, hosts := s.Pauses(); destinations != 1 || hosts != 1 {
		t.Errorf("%d, %d", destinations, hosts)
	}
}

// A message that is sent without the queue arrives signed, and stores nothing.
func TestSendUnqueued(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, to string) string {
		if strings.HasPrefix(to, "gone@") {
			return "550 5.1.1 no such user"
		}
		return ""
	}})
	n := one(mx.Addr)
	f := newFixture(t, d, n.config(1), n.dns)
	message := []byte("From: a@" + from + "\r\nTo: ann@" + destination + "\r\nDate: Mon, 30 Nov 2026 12:00:00 +0000\r\n" +
		"Message-ID: <x@y>\r\nSubject: Full\r\n\r\nThe disk is full.\r\n")
	f.Must(f.service.SendUnqueued(t.Context(), f.Acme.TeamID, "a@"+from, "ann@"+destination, message))
	got := mx.Wait(1)[0]
	if got.From != "a@"+from || got.To[0] != "ann@"+destination || !bytes.HasPrefix(got.Data, []byte("DKIM-Signature:")) ||
		!bytes.HasSuffix(got.Data, message) {
		t.Errorf("%s -> %v: %s", got.From, got.To, got.Data)
	}
	if f.Count(`SELECT COUNT(*) FROM emails`) != 0 || f.jobsLeft() != 0 {
		t.Error("something was stored")
	}
	for to, want := range map[string]string{"gone@" + destination: "550 5.1.1", "x@nowhere.example": "mail hosts"} {
		err := f.service.SendUnqueued(t.Context(), f.Acme.TeamID, "a@"+from, to, message)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", to, err)
		}
	}
	err := f.service.SendUnqueued(t.Context(), f.Acme.TeamID, "a@other.example", "ann@"+destination, message)
	if err == nil {
		t.Error("a domain of nobody may send")
	}
}
