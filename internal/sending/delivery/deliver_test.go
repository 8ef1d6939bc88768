package delivery

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-msgauth/dkim"
	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

func TestDeliverMany(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(1), n.dns)
		var ids []string
		for i := range 50 {
			ids = append(ids, f.send(address(i)))
		}
		f.run()
		for _, x := range ids {
			f.wait(x, events.EmailDelivered)
		}
		if got := mx.Connections(); got > 2 {
			t.Errorf("%d connections for 50 emails", got)
		}
		records := map[string]string{}
		for _, r := range f.Domains.Records(&f.Sender) {
			records[r.FQDN] = r.Value
		}
		for _, m := range mx.Wait(50) {
			checks, err := dkim.VerifyWithOptions(bytes.NewReader(m.Data),
				&dkim.VerifyOptions{LookupTXT: func(name string) ([]string, error) {
					return []string{records[name]}, nil
				}})
			if err != nil || len(checks) != 2 || checks[0].Err != nil || checks[1].Err != nil {
				t.Fatalf("signatures: %v %+v", err, checks)
			}
			local, at, _ := strings.Cut(m.From, "@")
			if of, ok := tokens.ParseReturnPath(f.Keys, local); !ok || !slices.Contains(ids, of.EmailID) ||
				at != "send."+from {
				t.Errorf("return path %q", m.From)
			}
			proof, _, _ := strings.Cut(strings.TrimPrefix(string(m.Data), tokens.FeedbackField+": "), "\r\n")
			if of, ok := tokens.ParseFeedback(f.Keys, proof); !ok || !slices.Contains(ids, of.EmailID) ||
				proof[2:] == local[2:] {
				t.Errorf("the proof for complaints is %q", proof)
			}
		}
		if left := f.jobsLeft(); left != 0 {
			t.Errorf("%d jobs are left", left)
		}
		a := f.attempts(ids[0])
		if len(a) != 1 || a[0].Outcome != "delivered" || !strings.Contains(a[0].Conversation, "C: MAIL FROM:<b-") ||
			a[0].Host != "mx.test [10.0.0.1]" ||
			!strings.HasPrefix(a[0].Reply, "250") || !a[0].NextAt.IsZero() {
			t.Errorf("attempt %+v", a)
		}
	})
}

func TestDeliverRecipients(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		tries := 0
		mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, to string) string {
			switch {
			case strings.HasPrefix(to, "nobody@"):
				return "550 5.1.1 no such user"
			case strings.HasPrefix(to, "slow@"):
				if tries++; tries < 2 {
					return "450 4.2.0 not now"
				}
			}
			return ""
		}})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(3), n.dns)
		f.compares = true
		f.run()
		html := "<p>x</p>"
		x := f.Send(emails.Send{From: "hello@" + from, To: []string{"to@" + destination},
			Cc:  []string{"nobody@" + destination},
			Bcc: []string{"secret@" + destination, "slow@" + destination}, Subject: "x", HTML: &html,
			Headers: []message.Field{{Name: "X-Order", Value: "7"}}, Tags: []emails.Tag{{Name: "kind", Value: "test"}}})
		got := f.wait(x, events.EmailDelivered, events.EmailDelivered, events.EmailDelivered, events.EmailBounced)
		want := []string{"sent", "delivered to@example.net", "bounced nobody@example.net", "delivered secret@example.net",
			"delivery_delayed slow@example.net", "delivered slow@example.net"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		all := mx.Messages()
		if len(all) != 2 || !slices.Equal(all[0].To, []string{"to@example.net", "secret@example.net"}) ||
			!slices.Equal(all[1].To, []string{"slow@example.net"}) {
			t.Fatalf("messages %+v", all)
		}
		for _, m := range all {
			if bytes.Contains(m.Data, []byte("secret")) || bytes.Contains(m.Data, []byte("slow@")) ||
				bytes.Contains(bytes.ToLower(m.Data), []byte("\nbcc")) {
				t.Errorf("the message shows bcc:\n%s", m.Data)
			}
		}
		if messageID(all[0].Data) != messageID(all[1].Data) {
			t.Error("the second try has another Message-ID")
		}
		a := f.attempts(x)
		if len(a) != 2 || a[0].Outcome != "mixed" || a[0].NextAt.IsZero() || a[1].Outcome != "delivered" ||
			!slices.Equal(a[1].Recipients, []string{"slow@example.net"}) {
			t.Errorf("attempts %+v", a)
		}
		list, _, err := f.Suppressions.List(t.Context(), f.Acme.TeamID, "", page.Page{Limit: 100})
		if err != nil || len(list) != 1 || list[0].Address != "nobody@example.net" || list[0].SourceID != x {
			t.Errorf("suppressions %+v, %v", list, err)
		}
		f.wait(f.send("nobody@"+destination), events.EmailSuppressed)
	})
}

func messageID(msg []byte) string {
	i := bytes.Index(msg, []byte("Message-ID:"))
	end := bytes.IndexByte(msg[i:], '\n')
	return string(msg[i : i+end])
}

func TestDeliverSeveralDestinations(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		n.host("example.org", "mx.org.test", 10, mx.Addr)
		f := newFixture(t, d, n.config(1), n.dns).run()
		x := f.send("a@"+destination, "b@example.org", "c@"+destination)
		got := f.wait(x, events.EmailDelivered, events.EmailDelivered, events.EmailDelivered)
		if count := len(slices.DeleteFunc(got, func(e string) bool { return e != "sent" })); count != 1 {
			t.Errorf("the event sent was recorded %d times", count)
		}
		if len(mx.Messages()) != 2 {
			t.Errorf("%d messages for two destinations", len(mx.Messages()))
		}
	})
}

func TestDeliverUntilTheScheduleEnds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(string, string) string { return "452 4.2.2 mailbox full" }})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(3), n.dns).run()
		x := f.send(address(1))
		got := f.wait(x, events.EmailBounced)
		want := []string{"sent", "delivery_delayed to1@example.net", "delivery_delayed to1@example.net",
			"delivery_delayed to1@example.net", "bounced to1@example.net"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		b := f.bounce(x)
		if b.Type != transient || b.SubType != mailboxFull || b.Suppress ||
			b.DiagnosticCode[0] != "smtp; 452 4.2.2 mailbox full" {
			t.Errorf("bounce %+v", b)
		}
		if f.state(x) != emails.Bounced || f.jobsLeft() != 0 {
			t.Errorf("state %s, %d jobs", f.state(x), f.jobsLeft())
		}
	})
}

// Events for an email sent to a contact contain the contact's id, even after the contact's address has changed.
func TestEventsNameTheContact(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Config{SandboxDomains: []string{"resend.dev"}, Dial: refuseDial(t)}, resolve.Fake{})
		f.run()
		for address, kind := range map[string]events.Type{"bounced@resend.dev": events.EmailBounced,
			"complained@resend.dev": events.EmailComplained} {
			contactID, emailID := f.SendToContact(address)
			f.wait(emailID, kind)
			if e := f.event(emailID, kind); e.ContactID != contactID {
				t.Errorf("%s of %q, not of %s", kind, e.ContactID, contactID)
			}
		}
		emailID := f.send("bounced@resend.dev")
		f.wait(emailID, events.EmailBounced)
		if e := f.event(emailID, events.EmailBounced); e.ContactID != "" {
			t.Errorf("an email for no contact bounced for %s", e.ContactID)
		}
	})
}

func TestDeliverToTestAddresses(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Config{SandboxDomains: []string{"resend.dev"}, Dial: refuseDial(t)}, resolve.Fake{})
		f.compares = true
		f.run()
		for to, want := range map[string][]string{
			"delivered@resend.dev":       {"sent", "delivered delivered@resend.dev"},
			"delivered+label@resend.dev": {"sent", "delivered delivered+label@resend.dev"},
			"bounced@resend.dev":         {"sent", "bounced bounced@resend.dev"},
			"bounced+x@resend.dev":       {"sent", "bounced bounced+x@resend.dev"},
			"complained@resend.dev":      {"sent", "delivered complained@resend.dev", "complained complained@resend.dev"},
			"suppressed@resend.dev":      {"suppressed suppressed@resend.dev"},
			"suppressed+x@resend.dev":    {"sent", "bounced suppressed+x@resend.dev"},
			"whoever@resend.dev":         {"sent", "bounced whoever@resend.dev"},
		} {
			x := f.send(to)
			last, _, _ := strings.Cut(want[len(want)-1], " ")
			if diff := cmp.Diff(want, f.wait(x, events.Type("email."+last))); diff != "" {
				t.Errorf("%s: %s", to, diff)
			}
			if last == "bounced" {
				if b := f.bounce(x); !b.Simulated || b.Type != permanent || b.SubType != general ||
					b.DiagnosticCode[0] != "smtp; 550 5.1.1 user unknown (simulated)" {
					t.Errorf("%s: %+v", to, b)
				}
			}
			if string(f.state(x)) != last {
				t.Errorf("%s: state %s", to, f.state(x))
			}
		}
		list, _, err := f.Suppressions.List(t.Context(), f.Acme.TeamID, "", page.Page{Limit: 100})
		if err != nil || len(list) != 0 {
			t.Errorf("test addresses were suppressed: %+v, %v", list, err)
		}
	})
}

func TestDeliverIntoTheOutbox(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Config{Transport: Capture, Dial: refuseDial(t)}, resolve.Fake{}).run()
	first := f.send(address(1))
	f.wait(first, events.EmailDelivered)
	second := f.send(address(2), address(3))
	f.wait(second, events.EmailDelivered, events.EmailDelivered)
	all, err := f.service.p.Outbox.All(t.Context())
	if err != nil || len(all) != 2 || all[0].EmailID != second || all[1].EmailID != first ||
		!slices.Equal(all[0].Recipients, []string{address(2), address(3)}) ||
		all[0].TeamID != f.Acme.TeamID {
		t.Fatalf("outbox %+v, %v", all, err)
	}
	r, err := f.service.p.Outbox.Open(t.Context(), all[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil || b.Len() != all[0].Size ||
		!bytes.Contains(b.Bytes(), []byte("\r\nDKIM-Signature:")) {
		t.Errorf("captured %q, %v", b.String(), err)
	}
	for _, wrong := range []string{"", "../secret.key", "x"} {
		if _, err := f.service.p.Outbox.Open(t.Context(), wrong); err == nil {
			t.Errorf("message %q is there", wrong)
		}
	}
}

func TestDeliverWithBackOff(t *testing.T) {
	t.Parallel()
	mx := smtptest.NewServer(t, smtptest.Config{Mail: func(string) string {
		return "421 4.7.0 too many messages, try again in 10 minutes"
	}})
	n := one(mx.Addr)
	cfg := n.config(1)
	cfg.Schedule, cfg.LaneConnections = []time.Duration{time.Hour}, 1
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns)
	first := f.send(address(1))
	f.run()
	f.wait(first, events.EmailDelayed)
	// The shaper applies a host's answer shortly after the corresponding event is recorded.
	testnode.Until(t, "nothing is given to the host for ten minutes", func() bool {
		allowed, until := f.service.limit(destination)
		pause := time.Until(until)
		return allowed == 0 && pause > 9*time.Minute && pause < 11*time.Minute
	})
}

func TestDeliverAfterAStop(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		message := "S: 220 mx.test\nC: EHLO *\nS: 250 mx.test\nC: MAIL *\nS: 250 ok\nC: RCPT *\nS: 250 ok\nC: DATA\nS: " +
			"354 go\n(data)\nS: 250 ok\n(drop)\n"
		p := smtptest.Script(t, "S: 220 mx.test\n(stall)\n(next)\n"+message)
		n := one(p.Addr)
		dialled := make(chan struct{}, 2)
		cfg := n.config(1)
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := n.dial(ctx, network, addr)
			dialled <- struct{}{}
			return nc, err
		}
		f := newFixture(t, d, cfg, n.dns)
		x := f.send(address(1))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		log := slog.New(slog.DiscardHandler)
		first := jobs.NewRunner(d, f.Queue, log, time.Millisecond)
		first.Handle(f.service.Kind())
		go func() { ended <- first.Run(ctx) }()
		<-dialled
		stop()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		if left, tries := f.jobsLeft(), f.attempts(x); left != 1 || len(tries) != 0 {
			t.Fatalf("%d jobs are left after a stop, attempts %+v", left, tries)
		}
		f.run()
		if got := f.wait(x, events.EmailDelivered); !slices.Equal(got, []string{"sent", "delivered to1@example.net"}) {
			t.Errorf("events %q", got)
		}
	})
}

func TestDeliverWithALostLease(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(1), n.dns)
		x := f.send(address(1))
		j := jobs.Job{Kind: emails.DeliveryKind, Attempt: 7, CreatedAt: time.Now()} // no attempt is stored yet
		if err := d.QueryRow(t.Context(), `SELECT id, lane, team_id, payload FROM jobs WHERE kind = $1`, j.Kind).
			Scan((*db.ID)(&j.ID),
				&j.Lane, (*db.ID)(&j.TeamID), &j.Payload); err != nil {
			t.Fatal(err)
		}
		if err := f.service.deliver(t.Context(), j); !errors.Is(err, jobs.ErrLost) {
			t.Errorf("a worker without a lease ends with %v", err)
		}
		if f.count(events.EmailSent) != 0 || len(f.attempts(x)) != 0 || f.jobsLeft() != 1 || f.state(x) != emails.Queued {
			t.Error("a worker without a lease has changed something")
		}
		f.service.pool.prune(time.Now().Add(time.Hour))
	})
}

// refuseDial fails the test if a connection is dialed.
func refuseDial(t *testing.T) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, _, addr string) (net.Conn, error) {
		t.Errorf("%s was dialled", addr)
		return nil, context.Canceled
	}
}
