package receiving

import (
	"strings"

	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/mail/report"
)

// bounce is the data of the event that a failure is.
func bounce(to *report.Recipient) *events.Bounce {
	b := &events.Bounce{Type: "Undetermined", SubType: "Undetermined",
		Message: "The recipient's host took the email and sent it back later."}
	status := to.Status
	switch {
	case strings.HasPrefix(status, "5.1.1"), strings.HasPrefix(status, "5.1.10"), strings.HasPrefix(status, "5.2.1"):
		b.Type, b.SubType, b.Suppress = "Permanent", "General", true
		b.Message = "The recipient's host says that the mailbox does not exist."
	case strings.HasSuffix(status, ".2.2"):
		b.Type, b.SubType = "Transient", "MailboxFull"
		b.Message = "The recipient's mailbox is full."
	}
	if d := bounded(to.Diagnostic, 2000); d != "" || status != "" {
		b.DiagnosticCode = []string{"smtp; " + strings.TrimSpace(d)}
	}
	return b
}
