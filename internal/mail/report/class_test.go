package report

import "testing"

// The refusals in TestRecipientClass occur only in reports, which may contain no code. Package delivery tests refusals
// in SMTP sessions.
func TestRecipientClass(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in       Recipient
		typ, sub string
		suppress bool
	}{
		{Recipient{Action: Failed, Status: "5.1.1"}, Permanent, General, true},
		{Recipient{Action: Failed, Status: "5.1.10"}, Permanent, General, true},
		{Recipient{Action: Failed, Status: "5.0.0"}, Undetermined, Undetermined, false},
		{Recipient{Action: Failed, Status: "5.0.0", Diagnostic: "550 5.1.1 unknown"}, Permanent, General, true},
		{Recipient{Action: Failed, Status: "5.1.1", Diagnostic: "550 5.0.0 refused"}, Permanent, General, true},
		{Recipient{Action: Failed, Status: "5.0.0", Diagnostic: "mailbox is full"}, Transient, MailboxFull, false},
		{Recipient{Action: Failed}, Undetermined, Undetermined, false},
		{Recipient{Action: Failed, Status: "4.4.1", Diagnostic: "Connection refused"}, Transient, General, false},
		{Recipient{Action: Failed, Status: "4.1.1", Diagnostic: "450 4.1.1 user unknown"}, Transient, General, false},
		{Recipient{Action: Failed, Status: "5.4.7", Diagnostic: "554 5.4.7 user unknown"}, Transient, General, false},
		{Recipient{Action: Failed, Status: "5.0.0", Diagnostic: "user unknown; retry timeout exceeded"}, Transient, General,
			false},
		{Recipient{Action: Delayed, Status: "5.1.1", Diagnostic: "user unknown"}, Transient, General, false},
		{Recipient{Action: Failed, Status: "5.7.1", Diagnostic: "550 5.7.1 Message rejected as spam by content filter"},
			Transient, ContentRejected, false},
		{Recipient{Action: Failed, Status: "5.1.1", Diagnostic: "550 5.1.1 sender address rejected"}, Transient, General,
			false},
	} {
		if c := tc.in.Class(); c.Type != tc.typ || c.SubType != tc.sub || c.Suppress != tc.suppress || c.Say == "" {
			t.Errorf("%+v: %+v", tc.in, c)
		}
	}
}
