package receiving_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// returnTo returns an email's return path for a destination.
func (f *fixture) returnTo(emailID, destination string) string {
	return tokens.ReturnPath(f.Keys, f.Ref(emailID), destination) + "@send.acme.example"
}

// dsn returns a delivery status notification for one recipient.
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
	each(t, func(t *testing.T, f *fixture) {
		id := f.send("ann@gone.example", "bob@gone.example", "carl@elsewhere.example")
		failed := dsn("failed", "5.1.1", "Ann@Gone.example", "550 5.1.1 <ann@gone.example>: no such user")
		for _, c := range []struct {
			name, raw, at string
			want          []events.Type
		}{
			{"delayed", dsn("delayed", "4.4.1", "ann@gone.example", "connection timed out"), "gone.example",
				[]events.Type{events.EmailDelayed}},
			{"delayed again", dsn("delayed", "4.4.1", "ann@gone.example", "connection timed out"), "gone.example", nil},
			{"failed", failed, "gone.example", []events.Type{events.SuppressionAdded, events.EmailBounced}},
			{"failed again", failed, "gone.example", nil},
			{"somebody else", dsn("failed", "5.1.1", "dora@gone.example", "550 no such user"), "gone.example", nil},
			{"another name of the only one there", dsn("failed", "5.2.2", "box17@inside.example", "552 5.2.2 mailbox full"),
				"elsewhere.example",
				[]events.Type{events.EmailBounced}},
			{"relayed", dsn("relayed", "2.0.0", "bob@gone.example", "250 ok"), "gone.example", nil},
			{"a reply", "From: bob@gone.example\nSubject: Re: Hi\n\nThanks.\n", "gone.example", nil},
			{"an automatic answer", "From: bob@gone.example\nSubject: Out of office\nAuto-Submitted: auto-replied\n\nI am " +
				"away.\n", "gone.example", nil},
			{"nothing", "", "gone.example", nil},
		} {
			f.deliver(t, c.raw, f.returnTo(id, c.at))
			if got := f.types(); !slices.Equal(got, c.want) {
				t.Errorf("%s: events %v, want %v", c.name, got, c.want)
			}
		}
		e, err := f.Emails.Recipients(t.Context(), f.Acme.TeamID, id)
		if err != nil || e[0].State != emails.Bounced || e[1].State != emails.Queued || e[2].State != emails.Bounced {
			t.Errorf("%+v, %v", e, err)
		}
		if _, err := f.Suppressions.Get(t.Context(), f.Acme.TeamID, "ann@gone.example"); err != nil {
			t.Error(err)
		}
		if _, err := f.Suppressions.Get(t.Context(), f.Acme.TeamID, "carl@elsewhere.example"); fault.KindOf(
			err) != fault.NotFound {
			t.Errorf("a full mailbox is suppressed: %v", err)
		}
		if n := len(f.list(t, f.Acme.TeamID)); n != 0 {
			t.Errorf("%d reports are received emails", n)
		}
		line, _, err := f.Emails.Timeline(t.Context(), f.Acme.TeamID, id, page.Page{})
		if err != nil || !strings.Contains(line[len(line)-1].Data, `"subType":"MailboxFull"`) ||
			!strings.Contains(line[len(line)-1].Data, "552 5.2.2 mailbox full") {
			t.Errorf("%+v, %v", line, err)
		}
	})
}

// A report about an email that was sent to a contact records the contact's id.
func TestReportsNameTheContact(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		contactID, id := f.SendToContact("ann@gone.example")
		f.seen.Take()
		f.deliver(t, dsn("failed", "5.1.1", "ann@gone.example", "550 5.1.1 unknown"), f.returnTo(id, "gone.example"))
		f.deliver(t, arf("abuse", "", f.sent(id, "gone.example", "Return-Path")), fbl)
		found := 0
		for _, e := range f.seen.Take() {
			if e.Type == events.EmailBounced || e.Type == events.EmailComplained {
				found++
				if e.ContactID != contactID {
					t.Errorf("%s of %q, not of %s", e.Type, e.ContactID, contactID)
				}
			}
		}
		if found != 2 {
			t.Errorf("%d events, want a bounce and a complaint", found)
		}
	})
}

// A large report is processed like a small one and leaves no blob behind.
func TestLargeReport(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		id := f.send("ann@gone.example")
		raw := strings.Replace(dsn("failed", "5.1.1", "ann@gone.example", "550 5.1.1 unknown"), "Subject: Hi\n",
			"Subject: Hi\nX: "+
				strings.Repeat("x\n y", 50_000)+"\n", 1)
		f.deliver(t, raw, f.returnTo(id, "gone.example"))
		if got := f.types(); !slices.Contains(got, events.EmailBounced) {
			t.Errorf("events %v", got)
		}
		if n := f.blobCount(t); n != 0 {
			t.Errorf("%d blobs", n)
		}
	})
}

// arf returns a complaint about a message in Abuse Reporting Format.
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

const fbl = "fbl@mx.postrider.test"

// sent returns the given fields from the header of an email to a destination, as reports quote them.
func (f *fixture) sent(emailID, destination string, names ...string) string {
	all := map[string]string{
		"Return-Path":        "<" + f.returnTo(emailID, destination) + ">",
		tokens.FeedbackField: tokens.Feedback(f.Keys, f.Ref(emailID), destination),
		"CFBL-Feedback-ID":   tokens.Feedback(f.Keys, f.Ref(emailID), destination),
		"Message-ID":         "<" + emailID + "@acme.example>",
	}
	text := ""
	for _, name := range names {
		text += name + ": " + all[name] + "\n"
	}
	return text + "Subject: Hi\n\nHello.\n"
}

var complained = []events.Type{events.SuppressionAdded, events.EmailComplained}

func TestComplaints(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		id := f.send("ann@one.example", "bob@one.example", "carl@two.example")
		single := f.send("dora@one.example")
		loop, second := f.send("eve@three.example"), f.send("frank@three.example")
		encodedLoop := strings.ReplaceAll(f.sent(second, "three.example", "CFBL-Feedback-ID"), "f-", "f=2D")
		quoted := strings.ReplaceAll(f.sent(single, "one.example", tokens.FeedbackField), "-", "=2D")
		for _, c := range []struct {
			name, raw, to string
			want          []events.Type
			who           string
		}{
			{"by recipient and field", arf("abuse", "Original-Rcpt-To: <ann@one.example>\n",
				f.sent(id, "one.example", tokens.FeedbackField)), fbl,
				complained, "ann@one.example"},
			{"once more", arf("abuse", "Original-Rcpt-To: <ann@one.example>\n", f.sent(id, "one.example", tokens.FeedbackField)),
				fbl, nil, ""},
			{"by the return path in it", arf("abuse", "", f.sent(id, "two.example", "Return-Path")), fbl, complained,
				"carl@two.example"},
			{"by a field that is encoded", strings.Replace(arf("fraud", "", quoted), "Content-Type: message/rfc822",
				"Content-Type: message/rfc822\nContent-Transfer-Encoding: quoted-printable", 1), fbl, complained,
				"dora@one.example"},
			{"by RFC 9477", arf("abuse", "", f.sent(loop, "three.example", "CFBL-Feedback-ID")), "FBL@Send.acme.example",
				complained, "eve@three.example"},
			{"by an encoded field of RFC 9477", strings.Replace(arf("abuse", "", encodedLoop), "Content-Type: message/rfc822",
				"Content-Type: message/rfc822\nContent-Transfer-Encoding: quoted-printable", 1), "fbl@send.acme.example",
				complained, "frank@three.example"},
			{"a letter at a return-path host", "Subject: Hi\n\nHello.\n", "fbl@send.acme.example",
				[]events.Type{events.EmailReceived}, ""},
			{"at the return path", arf("abuse", "Original-Rcpt-To: bob@one.example\n", "Subject: Hi\n\nx\n"),
				f.returnTo(id, "one.example"),
				complained, "bob@one.example"},
			{"that it is no spam", arf("not-spam", "", f.sent(single, "one.example", "Return-Path")), fbl,
				[]events.Type{events.EmailReceived}, ""},
			{"about nobody's message", arf("abuse", "", "Message-ID: <x@y.example>\n\nx\n"), fbl,
				[]events.Type{events.EmailReceived}, ""},
			{"a letter", "Subject: Welcome to the loop\n\nHello.\n", fbl, []events.Type{events.EmailReceived}, ""},
		} {
			f.deliver(t, c.raw, c.to)
			got := f.seen.Take()
			if types := typesOf(got); !slices.Equal(types, c.want) {
				t.Errorf("%s: events %v, want %v", c.name, types, c.want)
			} else if c.who != "" && got[1].Recipient != c.who {
				t.Errorf("%s: about %s, want %s", c.name, got[1].Recipient, c.who)
			}
		}
	})
}

// A report suppresses no address if its author knows only the email's Message-ID, or only the copy of the email for
// another destination. The operator receives a report without a proof as an email.
func TestForgedReports(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		id := f.send("ann@one.example", "bob@one.example", "mallory@evil.example", "trudy@evil.example")
		single := f.send("dora@one.example")
		names := func(address string) string { return "Original-Rcpt-To: <" + address + ">\n" }
		token := tokens.Feedback(f.Keys, f.Ref(id), "one.example")
		bent := token[:len(token)-5] + map[bool]string{true: "b", false: "a"}[token[len(token)-5] == 'a'] +
			token[len(token)-4:]
		operators := []events.Type{events.EmailReceived}
		for name, c := range map[string]struct {
			raw, to string
			want    []events.Type
		}{
			"by Message-ID and recipient": {arf("abuse", names("ann@one.example"), f.sent(id, "", "Message-ID")), fbl,
				operators},
			"by Message-ID of an email to one": {arf("abuse", "", f.sent(single, "", "Message-ID")), fbl, operators},
			"by the field of another host": {arf("abuse", names("ann@one.example"), f.sent(id, "evil.example",
				tokens.FeedbackField)), fbl, operators},
			"by the return path of another host": {arf("abuse", names("ann@one.example"), f.sent(id, "evil.example",
				"Return-Path")), fbl, operators},
			"by a bent field": {arf("abuse", names("ann@one.example"), tokens.FeedbackField+": "+bent+
				"\nMessage-ID: <"+id+"@acme.example>\n\nx\n"), fbl, operators},
			"a complaint at another host's return path": {arf("abuse", names("ann@one.example"), f.sent(id, "", "Message-ID")),
				f.returnTo(id, "evil.example"), nil},
			"a bounce at another host's return path": {dsn("failed", "5.1.1", "ann@one.example", "550 5.1.1 no such user"),
				f.returnTo(id, "evil.example"), nil},
			"a delay at another host's return path": {dsn("delayed", "4.4.1", "bob@one.example", "later"),
				f.returnTo(id, "evil.example"), nil},
			"a field for a return path": {dsn("failed", "5.1.1", "ann@one.example", "550 5.1.1 no such user"), "",
				nil},
		} {
			if c.to == "" {
				if got := f.offer(t, "", token+"@send.acme.example"); got != "550 5.7.1" && got != "550 5.1.1" {
					t.Errorf("%s: %s", name, got)
				}
				continue
			}
			f.deliver(t, c.raw, c.to)
			if got := f.types(); !slices.Equal(got, c.want) {
				t.Errorf("%s: events %v, want %v", name, got, c.want)
			}
		}
		for _, address := range []string{"ann@one.example", "bob@one.example", "dora@one.example", "mallory@evil.example"} {
			if _, err := f.Suppressions.Get(t.Context(), f.Acme.TeamID, address); fault.KindOf(err) != fault.NotFound {
				t.Errorf("%s is suppressed: %v", address, err)
			}
		}
	})
}

// The signature of a listed provider proves that the provider may report any email.
func TestProviders(t *testing.T) {
	key, err := dkim.GenerateEd25519()
	if err != nil {
		t.Fatal(err)
	}
	other, err := dkim.GenerateEd25519()
	if err != nil {
		t.Fatal(err)
	}
	records := map[string][]string{}
	for _, domain := range []string{"arf.provider.example", "x.arf.provider.example", "mail.example", "evil.example"} {
		records["s._domainkey."+domain] = []string{key.Record()}
	}
	each(t, func(t *testing.T, f *fixture) {
		c, p := config(), f.deps
		c.Providers = []string{"arf.provider.example", "staff@mail.example"}
		p.Auth = authres.New("mx.postrider.test", resolve.NetForm{Resolver: resolve.Fake{TXTRecords: records}})
		for name, one := range map[string]struct {
			from, signed string
			key          *dkim.Key
			want         []events.Type
		}{
			"a domain":                {"feedback@arf.provider.example", "arf.provider.example", key, complained},
			"an address":              {"Staff@mail.example", "mail.example", key, complained},
			"another mailbox there":   {"mallory@mail.example", "mail.example", key, nil},
			"a domain below":          {"feedback@x.arf.provider.example", "x.arf.provider.example", key, nil},
			"signed by another":       {"feedback@arf.provider.example", "evil.example", key, nil},
			"signed with another key": {"feedback@arf.provider.example", "arf.provider.example", other, nil},
			"not signed":              {"feedback@arf.provider.example", "", nil, nil},
			"two authors":             {"feedback@arf.provider.example, mallory@mail.example", "mail.example", key, nil},
		} {
			id := f.send("ann@one.example", "bob@two.example")
			raw := arf("abuse", "Original-Rcpt-To: <bob@two.example>\n", f.sent(id, "", "Message-ID"))
			raw = crlf(strings.Replace(raw, "feedback@provider.example", one.from, 1))
			if one.signed != "" {
				fields, err := dkim.Sign([]byte(raw), time.Now(), dkim.Signer{Domain: one.signed, Selector: "s", Key: one.key})
				if err != nil {
					t.Fatal(err)
				}
				raw = string(fields) + raw
			}
			session, err := f.begin(t, testnode.Must(receiving.New(c, p)), "", fbl)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := session.Data(t.Context(), strings.NewReader(raw)); err != nil {
				t.Fatal(err)
			}
			want := one.want
			if want == nil {
				want = []events.Type{events.EmailReceived}
			} else if _, err := f.Suppressions.Remove(t.Context(), f.Acme.TeamID, "bob@two.example"); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			got := slices.DeleteFunc(f.types(), func(typ events.Type) bool { return typ == events.SuppressionRemoved })
			if !slices.Equal(got, want) {
				t.Errorf("%s: events %v, want %v", name, got, want)
			}
		}
	})
}
