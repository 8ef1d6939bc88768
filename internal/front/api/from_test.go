package api

import (
	"fmt"
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/mail/mailtest"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/emails"
)

// rawQuote returns s as a JSON string, and leaves invalid UTF-8 unchanged.
func rawQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			b.WriteString(`\` + string(rune(c)))
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String() + `"`
}

// TestFromForms sends an email for each form of From value. If the value is accepted, all message parsers, the API
// responses and the DKIM signature agree on the sender's address. Other values are refused with an error that names the
// field.
func TestFromForms(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		for _, name := range []string{"acme.example", "xn--bcher-kva.example"} {
			f.verified(name)
		}
		taken, refused := 0, 0
		for _, one := range mailtest.FromForms(t) {
			if !utf8.ValidString(one.Value) {
				continue // cannot be sent as JSON, because the decoder replaces invalid UTF-8
			}
			w := f.do(t, "POST /emails\n\n"+`{"from":`+rawQuote(one.Value)+
				`,"to":"ann@one.example","subject":"Hi","text":"Hello."}`)
			var answer struct {
				ID      string `json:"id"`
				Message string `json:"message"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatalf("%q: %s: %v", one.Value, w.Body, err)
			}
			if one.Takers != "both" && one.Takers != "api" {
				refused++
				// A value with forbidden characters is refused before the fields are checked.
				named := strings.Contains(answer.Message, "`from`") || strings.Contains(one.Value, "\x00")
				if w.Code != 422 || !named {
					t.Errorf("%q: %d %s", one.Value, w.Code, w.Body)
				}
				continue
			}
			taken++
			if w.Code != 200 {
				t.Errorf("%q: %d %s", one.Value, w.Code, w.Body)
				continue
			}
			f.isFrom(t, answer.ID, one.Addr)
		}
		if taken < 30 || refused < 150 {
			t.Errorf("%d forms were taken and %d refused; the file has more", taken, refused)
		}
	})
}

// isFrom checks that the API response, the message's From field and the DKIM signature all use the given sender.
func (f *fixture) isFrom(t *testing.T, id, addr string) {
	t.Helper()
	e, err := f.Services.Emails.Get(t.Context(), f.Acme.TeamID, id)
	if err != nil {
		t.Fatal(err)
	}
	if a, err := message.ParseFrom(e.From); err != nil || a.Addr() != addr {
		t.Errorf("%s is shown as from %q, %v", addr, e.From, err)
	}
	o, err := f.Services.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: f.Acme.TeamID, EmailID: id,
		Domain: "one.example"})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := f.Services.Emails.Compose(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mail.ReadMessage(strings.NewReader(string(raw)))
	if err != nil {
		t.Fatal(err)
	}
	from := m.Header.Get("From")
	if a, err := mail.ParseAddress(from); err != nil || a.Address != addr {
		t.Errorf("%q is of %s, and net/mail reads %q, %v", from, addr, a, err)
	}
	found := regexp.MustCompile(`<([^>]+)>`).FindAllStringSubmatch(from, -1)
	if len(found) > 1 || len(found) == 1 && found[0][1] != addr {
		t.Errorf("%q is of %s, and in brackets are %q", from, addr, found)
	}
	signing, err := f.Services.Domains.Signing(t.Context(), o.DomainID)
	if err != nil || len(signing.Signers) == 0 {
		t.Fatalf("signers of %s: %v, %v", addr, signing.Signers, err)
	}
	for _, s := range signing.Signers {
		if !strings.HasSuffix(addr, "@"+s.Domain) {
			t.Errorf("what is from %s is signed by %s", addr, s.Domain)
		}
	}
}

// TestReservedHeaders sends custom header fields that would forge the message's sender, authentication results or trace
// fields.
func TestReservedHeaders(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	f.verified("acme.example")
	send := func(name, value string) (int, string) {
		w := f.do(t, "POST /emails\n\n"+`{"from":"a@acme.example","to":"ann@one.example","subject":"Hi","text":"Hello.",`+
			`"headers":{`+rawQuote(name)+`:`+rawQuote(value)+`}}`)
		return w.Code, w.Body.String()
	}
	for _, name := range []string{"From", "fRoM", "Sender", "Reply-To", "To", "Cc", "Bcc", "Subject", "Date",
		"DKIM-Signature", "Received", "Return-Path", "Authentication-Results", "ARC-Seal", "Received-SPF", "Delivered-To",
		"Resent-From", "Resent-Sender", "Resent-Bcc", "MIME-Version", "Content-Type", "X-Postrider-Tag",
		"X-Postrider-Anything", "Resend-Idempotency-Key", "Postrider-Idempotency-Key",
		"From ", " From", "From:", "From\t", "From\r\nX", "X\r\nFrom", "Ｆrom", ""} {
		if code, body := send(name, "ceo@bank.example"); code != 422 || !strings.Contains(body, "`headers`") {
			t.Errorf("%q: %d %s", name, code, body)
		}
	}
	for _, value := range []string{"x\r\nFrom: ceo@bank.example", "x\nSender: ceo@bank.example",
		"x\rFrom: ceo@bank.example"} {
		if code, body := send("X-Other", value); code != 422 || !strings.Contains(body, "`headers`") {
			t.Errorf("%q: %d %s", value, code, body)
		}
	}
	for _, name := range []string{"X-Entity-Ref-ID", "In-Reply-To", "References", "List-Unsubscribe", "Auto-Submitted",
		"Feedback-ID", "Message-ID"} {
		if code, body := send(name, "<x@acme.example>"); code != 200 {
			t.Errorf("%q: %d %s", name, code, body)
		}
	}
}
