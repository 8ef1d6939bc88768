package receiving

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/mail/report"
)

func TestBounceClasses(t *testing.T) {
	for _, c := range []struct {
		status, said, typ, sub string
		suppress               bool
	}{
		{"5.1.1", "550 5.1.1 <a@x>: Recipient address rejected: User unknown", report.Permanent, report.General, true},
		{"5.0.0", "550-5.1.1 The email account that you tried to reach does not exist.", report.Permanent, report.General,
			true},
		{"5.1.1", "", report.Permanent, report.General, true},
		{"5.2.2", "552 5.2.2 Mailbox full", report.Transient, report.MailboxFull, false},
		{"4.4.7", "451 4.1.1 try later", report.Transient, report.General, false},
		{"5.7.1", "554 5.7.1 Blocked by spamhaus", report.Transient, report.General, false},
		{"", "", report.Undetermined, report.Undetermined, false},
		{"5", "host said no", report.Undetermined, report.Undetermined, false},
	} {
		b := bounce(&report.Recipient{Status: c.status, Diagnostic: c.said, Action: report.Failed})
		if b.Type != c.typ || b.SubType != c.sub || b.Suppress != c.suppress || b.Message == "" ||
			len(b.DiagnosticCode) != 1 {
			t.Errorf("%q, %q: %+v", c.status, c.said, b)
		}
	}
}

func FuzzBounce(f *testing.F) {
	f.Add("5.1.1", "550 5.1.1 no such user")
	f.Add("", "\xff\x00")
	f.Fuzz(func(t *testing.T, status, said string) {
		b := bounce(&report.Recipient{Status: status, Diagnostic: said})
		if b.Type == "" || b.SubType == "" || len(b.DiagnosticCode[0]) > 2100 && len(status) < 2000 ||
			!utf8.ValidString(said) && said == b.DiagnosticCode[0] {
			t.Errorf("%+v", b)
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add("a@b.example")
	f.Add(`"a@b"@[127.0.0.1]`)
	f.Add("postmaster")
	f.Fuzz(func(t *testing.T, to string) {
		local, host, err := split(to)
		if err == nil && (local == "" || host == "" && local != "postmaster" || strings.ContainsAny(local+host, "\r\n\x00")) {
			t.Errorf("%q: %q at %q", to, local, host)
		}
	})
}
