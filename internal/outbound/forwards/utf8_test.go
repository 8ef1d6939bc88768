package forwards_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/outbound/forwards"
)

// A message that needs SMTPUTF8 goes to a host that offers it, unchanged. A host without it does not get the message, and
// the rule says why. The rule does not count as failing, because the address is valid. The received message stays.
func TestInternationalMessages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		modern := smtptest.NewServer(t, smtptest.Config{UTF8: true})
		old := f.host
		r := f.rule("*", "bob@target.example")
		global := smtpserver.MailOptions{UTF8: true}
		const text = "From: Zoë <zoë@author.example>\r\nSubject: Grüße\r\nMessage-ID: <1@author.example>\r\n\r\nHällo\r\n"
		const ascii = "From: Zoe <zoe@author.example>\r\nSubject: Hi\r\nMessage-ID: <2@author.example>\r\n\r\nHällo\r\n"
		for i, c := range []struct {
			name, raw, from, to string
			options             smtpserver.MailOptions
			needs               bool
		}{
			{"UTF-8 in the header", text, "zoë@author.example", "sales@in.acme.example", global, true},
			{"an address in UTF-8", ascii, "zoe@author.example", "büro@in.acme.example", global, true},
			{"UTF-8 only in the body", ascii, "zoe@author.example", "sales@in.acme.example", global, false},
			{"raw bytes without SMTPUTF8", text, "zoe@author.example", "sales@in.acme.example",
				smtpserver.MailOptions{}, false},
		} {
			f.deliverTo(modern.Addr)
			f.deliverWith(c.options, c.raw, c.from, c.to)
			f.run(0)
			if m := modern.Wait(i + 1)[i]; m.UTF8 != c.needs || !bytes.HasSuffix(m.Data, []byte(c.raw)) {
				t.Errorf("%s: SMTPUTF8 is %v, the message is\n%s", c.name, m.UTF8, m.Data)
			}
			f.deliverTo(old.Addr)
			before, had := f.get(r), len(old.Messages())
			f.deliverWith(c.options, c.raw, c.from, c.to)
			f.run(0)
			got := f.get(r)
			switch bounced := got.Failed > before.Failed; {
			case bounced != c.needs:
				t.Errorf("%s: bounced is %v at a host without SMTPUTF8: %+v", c.name, bounced, got)
			case bounced && (len(old.Messages()) != had || got.State() != forwards.Active ||
				!strings.Contains(got.Reason, "the host does not accept international addresses and headers (SMTPUTF8)")):
				t.Errorf("%s: %d messages, %+v", c.name, len(old.Messages())-had, got)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM received_emails`); n != 8 {
			t.Errorf("%d received emails are stored", n)
		}
	})
}
