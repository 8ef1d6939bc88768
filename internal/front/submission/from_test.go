package submission_test

import (
	"errors"
	"fmt"
	"net/mail"
	"strings"
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/internal/mail/mailtest"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// sendUTF8 submits a message with SMTPUTF8 and returns the email's id, or the codes of the error reply, such as "550
// 5.6.0".
func (f *fixture) sendUTF8(text string) (id, answer string) {
	f.T.Helper()
	c, err := f.client(f.password)
	if err != nil {
		f.T.Fatal(err)
	}
	defer c.Close()
	id, err = f.send(c, &smtp.MailOptions{UTF8: true}, text, "ann@one.example")
	if e, ok := errors.AsType[*smtp.SMTPError](err); ok {
		return "", fmt.Sprintf("%d %d.%d.%d", e.Code, e.EnhancedCode[0], e.EnhancedCode[1], e.EnhancedCode[2])
	}
	if err != nil {
		f.T.Fatal(err)
	}
	return id, ""
}

// isFrom checks that the API response, the sent message and the DKIM signature all use the given sender.
func (f *fixture) isFrom(id, addr string) {
	f.T.Helper()
	a, err := message.ParseFrom(f.Email(id).From)
	if err != nil || a.Addr() != addr {
		f.T.Errorf("it is shown as from %q, want %s; %v", f.Email(id).From, addr, err)
	}
	_, o := f.outgoing(id, "one.example")
	signing, err := f.Domains.Signing(f.T.Context(), o.DomainID)
	if err != nil || len(signing.Signers) == 0 {
		f.T.Fatalf("signers of %s: %v, %v", addr, signing.Signers, err)
	}
	for _, s := range signing.Signers {
		if s.Domain != a.Domain {
			f.T.Errorf("what is from %s is signed by %s", addr, s.Domain)
		}
	}
}

// A From field is accepted only if all message parsers interpret it in the same way.
func TestFromForms(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.domain("bücher.example")
		taken, refused := 0, 0
		for _, one := range mailtest.FromForms(t) {
			id, answer := f.sendUTF8("From: " + strings.ReplaceAll(one.Value, "\r\n", "\n") + "\nSubject: Hi\n\nHello.\n")
			if one.Takers != "both" && one.Takers != "smtp" {
				refused++
				if answer != "550 5.6.0" {
					t.Errorf("From: %q was answered %q, want 550 5.6.0", one.Value, answer)
				}
				continue
			}
			taken++
			if answer != "" {
				t.Errorf("From: %q was answered %s", one.Value, answer)
				continue
			}
			f.isFrom(id, one.Addr)
		}
		if taken < 40 || refused < 150 {
			t.Errorf("%d forms were taken and %d refused; the file has more", taken, refused)
		}
		list, _, err := f.Emails.List(t.Context(), f.Acme.TeamID, page.Page{Limit: 100})
		if err != nil || len(list) != taken {
			t.Errorf("%d emails, %v; %d were taken", len(list), err, taken)
		}
	})
}

// A header with several senders or several sender fields is refused if the senders differ.
func TestSenderHeaders(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	f.domain("two.example")
	const from = "From: a@acme.example\n"
	for _, c := range []struct{ name, header, want string }{
		{"space before the colon", "From : a@acme.example\n", "554 5.6.0"},
		{"tab before the colon", "From\t: a@acme.example\n", "554 5.6.0"},
		{"fold before the colon", "From\n : a@acme.example\n", "554 5.6.0"},
		{"another with a space before the colon", from + "From : ceo@bank.example\n", "554 5.6.0"},
		{"before it, with a space", "From : ceo@bank.example\n" + from, "554 5.6.0"},
		{"name in quotes", "\"From\" : ceo@bank.example\n" + from, "554 5.6.0"},
		{"NUL in the name", "From\x00: ceo@bank.example\n" + from, "554 5.6.0"},
		{"full-width name", "\uff26rom: ceo@bank.example\n" + from, "554 5.6.0"},
		{"space in front", " From: ceo@bank.example\n" + from, "554 5.6.0"},
		{"tab in front", "\tFrom: ceo@bank.example\n" + from, "554 5.6.0"},
		{"twice", from + from, "550 5.6.0"},
		{"twice in other case", "FROM: ceo@bank.example\n" + from, "550 5.6.0"},
		{"twice, the other empty", "From:\n" + from, "550 5.6.0"},
		{"after others", from + "Subject: x\nfROM: ceo@bank.example\n", "550 5.6.0"},
		{"bare CR", "From: ceo@bank.example\rFrom: a@acme.example\n", "550 5.6.11"},
		{"bare CR after it", "From: a@acme.example\rFrom: ceo@bank.example\n", "550 5.6.11"},
		{"bare CR in another field", from + "Subject: x\rFrom: ceo@bank.example\n", "550 5.6.11"},
		{"bare CR before a fold", "From: CEO\r <a@acme.example>\n", "550 5.6.11"},
		{"none", "Subject: x\n", "550 5.6.0"},
		{"only resent", "Resent-From: a@acme.example\n", "550 5.6.0"},
		{"only a sender", "Sender: a@acme.example\n", "550 5.6.0"},

		{"another's sender", from + "Sender: ceo@bank.example\n", "550 5.6.0"},
		{"sender at another domain of the team", from + "Sender: a@two.example\n", "550 5.6.0"},
		{"sender below the domain", from + "Sender: a@x.acme.example\n", "550 5.6.0"},
		{"two senders", from + "Sender: b@acme.example, ceo@bank.example\n", "550 5.6.0"},
		{"ambiguous sender", from + "Sender: \"CEO\" <ceo@bank.example> <b@acme.example>\n", "550 5.6.0"},
		{"empty sender", from + "Sender:\n", "550 5.6.0"},
		{"sender twice", from + "Sender: b@acme.example\nsender: b@acme.example\n", "550 5.6.0"},
		{"sender before", "Sender: ceo@bank.example\n" + from, "550 5.6.0"},
		{"another's Resent-From", from + "Resent-From: ceo@bank.example\n", "550 5.6.0"},
		{"another's second Resent-From", from + "Resent-From: b@acme.example\nResent-From: ceo@bank.example\n", "550 5.6.0"},
		{"another's Resent-Sender", from + "Resent-Sender: ceo@bank.example\n", "550 5.6.0"},
		{"ambiguous Resent-From", from + "Resent-From: ceo@bank.example <b@acme.example>\n", "550 5.6.0"},
		{"two Reply-To", from + "Reply-To: x@bank.example\nReply-To: y@bank.example\n", "550 5.6.0"},
		{"Reply-To with a control character", from + "Reply-To: x\x08@bank.example\n", "550 5.6.0"},
		{"To with a control character", from + "To: x\x1b[2J <x@bank.example>\n", "554 5.6.0"},
		{"NUL in To", from + "To: x\x00@bank.example\n", "554 5.6.0"},

		{"sender of the same domain", from + "Sender: Mailer <m@ACME.example>\n", ""},
		{"name as an atom", "from:a@acme.example\n", ""},
		{"Reply-To elsewhere", from + "Reply-To: x@bank.example, \"Y\" <y@bank.example>\n", ""},
		{"resent by the same domain", from + "Resent-From: b@acme.example\nResent-Sender: c@acme.example\n", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			id, answer := f.sendUTF8(c.header + "X-Other: 1\n\nHello.\n")
			if answer != c.want {
				t.Fatalf("it was answered %q, want %q", answer, c.want)
			}
			if c.want == "" {
				f.isFrom(id, "a@acme.example")
			}
		})
	}
	// Without SMTPUTF8, the sender must be ASCII.
	for _, header := range []string{"From: Zoë <a@acme.example>\n", from + "Sender: Zoë <a@acme.example>\n"} {
		if _, err := f.submit(f.password, header+"\nHello.\n", "ann@one.example"); code(err) != 550 {
			t.Errorf("%q without SMTPUTF8: %v", header, err)
		}
	}
}

// Header fields that customers must not set are removed from the sent message.
func TestForgedFields(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	id := f.mustSubmit("From: a@acme.example\nAuthentication-Results: mx.test; dmarc=pass\n header.from=bank.example\n"+
		"X-Postrider-Anything: 1\nx-postrider-other: 2\nReturn-Path: <ceo@bank.example>\nX-Other: kept\n\nHello.\n",
		"ann@one.example")
	got, _ := f.outgoing(id, "one.example")
	m, err := mail.ReadMessage(strings.NewReader(got))
	if err != nil {
		t.Fatal(err)
	}
	for name := range m.Header {
		switch name {
		case "Received", "Date", "Message-Id", "From", "X-Other":
		default:
			t.Errorf("the field %s is sent: %q", name, m.Header[name])
		}
	}
}

// A Message-ID is refused if Postrider and other hosts would report it in different forms.
func TestMessageIDIsWhatIsSent(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t))
	with := func(value string) string { return "From: a@acme.example\nMessage-ID: " + value + "\n\nHello.\n" }
	for _, value := range []string{"<=?utf-8?q?one?=@acme.example>", "<a\x01b@acme.example>", "<a b@acme.example>",
		"<a@acme\n .example>"} {
		if _, err := f.submit(f.password, with(value), "ann@one.example"); code(err) != 554 {
			t.Errorf("%q: %v", value, err)
		}
	}
	for _, value := range []string{"<one@acme.example>", "\n <one@acme.example>", "<one@acme.example> (first)"} {
		id := f.mustSubmit(with(value), "ann@one.example")
		if e := f.Email(id); e.MessageID != "<one@acme.example>" {
			t.Errorf("%q is shown as %q", value, e.MessageID)
		}
	}
}
