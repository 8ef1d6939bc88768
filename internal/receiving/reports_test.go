package receiving_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
)

// returnTo is the address at which reports about an email to a destination arrive.
func (w *world) returnTo(emailID, destination string) string {
	return emails.ReturnPath(w.keys, emailID, destination) + "@send.acme.example"
}

// dsn is a delivery status notification about one recipient.
func dsn(action, status, recipient, diagnostic string) string {
	return fmt.Sprintf(`From: MAILER-DAEMON@host.example
Subject: Delivery Status Notification
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=delivery-status; boundary=b

--b
Content-Type: text/plain

About your message.
--b
Content-Type: message/delivery-status

Reporting-MTA: dns; host.example

Final-Recipient: rfc822; %s
Action: %s
Status: %s
Diagnostic-Code: smtp; %s

--b
Content-Type: text/rfc822-headers

Subject: Hi
--b--
`, recipient, action, status, diagnostic)
}

func TestBounces(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.send(t, "ann@gone.example", "bob@gone.example", "carl@elsewhere.example")
		failed := dsn("failed", "5.1.1", "Ann@Gone.example", "550 5.1.1 <ann@gone.example>: no such user")
		for _, c := range []struct {
			name, raw, at string
			want          []events.Type
		}{
			{"delayed", dsn("delayed", "4.4.1", "ann@gone.example", "connection timed out"), "gone.example", []events.Type{events.EmailDelayed}},
			{"delayed again", dsn("delayed", "4.4.1", "ann@gone.example", "connection timed out"), "gone.example", nil},
			{"failed", failed, "gone.example", []events.Type{events.SuppressionAdded, events.EmailBounced}},
			{"failed again", failed, "gone.example", nil},
			{"somebody else", dsn("failed", "5.1.1", "dora@gone.example", "550 no such user"), "gone.example", nil},
			{"another name of the only one there", dsn("failed", "5.2.2", "box17@inside.example", "552 5.2.2 mailbox full"), "elsewhere.example",
				[]events.Type{events.EmailBounced}},
			{"relayed", dsn("relayed", "2.0.0", "bob@gone.example", "250 ok"), "gone.example", nil},
			{"a reply", "From: bob@gone.example\nSubject: Re: Hi\n\nThanks.\n", "gone.example", nil},
			{"an automatic answer", "From: bob@gone.example\nSubject: Out of office\nAuto-Submitted: auto-replied\n\nI am away.\n", "gone.example", nil},
			{"nothing", "", "gone.example", nil},
		} {
			w.give(t, c.raw, w.returnTo(id, c.at))
			if got := w.types(); !slices.Equal(got, c.want) {
				t.Errorf("%s: events %v, want %v", c.name, got, c.want)
			}
		}
		e, err := w.emails.Recipients(t.Context(), w.acme.TeamID, id)
		if err != nil || e[0].State != emails.Bounced || e[1].State != emails.Queued || e[2].State != emails.Bounced {
			t.Errorf("%+v, %v", e, err)
		}
		if _, err := w.suppressed.Get(t.Context(), w.acme.TeamID, "ann@gone.example"); err != nil {
			t.Error(err)
		}
		if _, err := w.suppressed.Get(t.Context(), w.acme.TeamID, "carl@elsewhere.example"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a full mailbox is suppressed: %v", err)
		}
		if n := len(w.list(t, w.acme.TeamID)); n != 0 {
			t.Errorf("%d reports are received emails", n)
		}
		line, err := w.emails.Timeline(t.Context(), w.acme.TeamID, id)
		if err != nil || !strings.Contains(line[len(line)-1].Data, `"subType":"MailboxFull"`) || !strings.Contains(line[len(line)-1].Data, "552 5.2.2 mailbox full") {
			t.Errorf("%+v, %v", line, err)
		}
	})
}

// A large report is read like a small one, and leaves nothing.
func TestLargeReport(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.send(t, "ann@gone.example")
		raw := strings.Replace(dsn("failed", "5.1.1", "ann@gone.example", "550 5.1.1 unknown"), "Subject: Hi\n", "Subject: Hi\nX: "+
			strings.Repeat("x\n y", 50_000)+"\n", 1)
		w.give(t, raw, w.returnTo(id, "gone.example"))
		if got := w.types(); !slices.Contains(got, events.EmailBounced) {
			t.Errorf("events %v", got)
		}
		if n := w.blobCount(t); n != 0 {
			t.Errorf("%d blobs", n)
		}
	})
}

// arf is a complaint about a message.
func arf(feedback, fields, original string) string {
	return `From: feedback@provider.example
Subject: complaint about a message
MIME-Version: 1.0
Content-Type: multipart/report; report-type=feedback-report; boundary=b

--b
Content-Type: text/plain

A complaint.
--b
Content-Type: message/feedback-report

Feedback-Type: ` + feedback + `
User-Agent: Loop/1
Version: 1
` + fields + `
--b
Content-Type: message/rfc822

` + original + `
--b--
`
}

func TestComplaints(t *testing.T) {
	each(t, func(t *testing.T, w *world) {
		id := w.send(t, "ann@one.example", "bob@one.example", "carl@two.example")
		single := w.send(t, "dora@one.example")
		original := func(emailID string) string {
			return "Message-ID: <" + emailID + "@acme.example>\nSubject: Hi\n\nHello.\n"
		}
		through := func(emailID, destination string) string {
			return "Return-Path: <" + w.returnTo(emailID, destination) + ">\nSubject: Hi\n\nHello.\n"
		}
		complained := []events.Type{events.SuppressionAdded, events.EmailComplained}
		for _, c := range []struct {
			name, raw, to string
			want          []events.Type
			who           string
		}{
			{"by recipient and Message-ID", arf("abuse", "Original-Rcpt-To: <ann@one.example>\n", original(id)), "fbl@mx.postrider.test", complained, "ann@one.example"},
			{"once more", arf("abuse", "Original-Rcpt-To: <ann@one.example>\n", original(id)), "fbl@mx.postrider.test", nil, ""},
			{"by the return path in it", arf("abuse", "", through(id, "two.example")), "fbl@mx.postrider.test", complained, "carl@two.example"},
			{"by Message-ID of an email to one", arf("fraud", "", original(single)), "fbl@mx.postrider.test", complained, "dora@one.example"},
			{"at the return path", arf("abuse", "Original-Rcpt-To: bob@one.example\n", "Subject: Hi\n\nx\n"), w.returnTo(id, "one.example"), complained, "bob@one.example"},
			{"that it is no spam", arf("not-spam", "Original-Rcpt-To: <bob@one.example>\n", original(id)), "fbl@mx.postrider.test", []events.Type{events.EmailReceived}, ""},
			{"about nobody's message", arf("abuse", "", "Message-ID: <x@y.example>\n\nx\n"), "fbl@mx.postrider.test", []events.Type{events.EmailReceived}, ""},
			{"a letter", "Subject: Welcome to the loop\n\nHello.\n", "fbl@mx.postrider.test", []events.Type{events.EmailReceived}, ""},
		} {
			w.give(t, c.raw, c.to)
			got := *w.heard.all
			if types := w.types(); !slices.Equal(types, c.want) {
				t.Errorf("%s: events %v, want %v", c.name, types, c.want)
			} else if c.who != "" && got[1].Recipient != c.who {
				t.Errorf("%s: about %s, want %s", c.name, got[1].Recipient, c.who)
			}
		}
	})
}
