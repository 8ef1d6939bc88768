package report

import (
	"strings"
	"testing"
)

// If a report's fields do not specify a cause, the cause comes from the report's text, for the only recipient or for
// each recipient that the fields name.
func TestWordsBesideFields(t *testing.T) {
	raw := func(text string, to ...string) []byte {
		fields := ""
		for _, a := range to {
			fields += "\nFinal-Recipient: rfc822; " + a + "\nAction: failed\nStatus: 5.0.0\n"
		}
		return []byte(strings.ReplaceAll("From: MAILER-DAEMON@host.example\nSubject: Returned mail\nMIME-Version: 1.0\n"+
			"Content-Type: multipart/report; report-type=delivery-status; boundary=b\n\n--b\nContent-Type: text/plain\n\n"+text+
			"\n--b\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; host.example\n"+fields+"\n--b--\n", "\n",
			"\r\n"))
	}
	for _, c := range []struct {
		text string
		to   []string
		want []Class
	}{
		{"Your message could not be delivered.\n\nThe mailbox is full.\n", []string{"ann@d.example"}, []Class{full}},
		{"Your message could not be delivered.\n\nThere is no such user here.\n", []string{"ann@d.example"},
			[]Class{noMailbox}},
		{"Your message could not be delivered.\n", []string{"ann@d.example"}, []Class{unclear}},
		{"<ann@d.example>:\nThe mailbox is full.\n\n<bob@d.example>:\nThere is no such user here.\n",
			[]string{"ann@d.example", "bob@d.example"},
			[]Class{full, noMailbox}},
		{"<ann@d.example>:\nThe mailbox is full.\n", []string{"ann@d.example", "bob@d.example"}, []Class{full, unclear}},
	} {
		r := returned(raw(c.text, c.to...), "", c.to)
		if len(r.Recipients) != len(c.to) {
			t.Fatalf("%q: %+v", c.text, r)
		}
		for i := range c.want {
			if got := r.Recipients[i].Class(); got != c.want[i] {
				t.Errorf("%q: of %s: %q, want %q", c.text, c.to[i], got.Say, c.want[i].Say)
			}
		}
	}
}
