package receiving

import (
	"cmp"

	"github.com/postrider/postrider/internal/mail/report"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// bounce returns the event data for a recipient whose delivery failed.
func bounce(to *report.Recipient) *events.Bounce {
	one := *to
	one.Diagnostic = db.Text(to.Diagnostic, 2000)
	c := one.Class()
	return &events.Bounce{Type: c.Type, SubType: c.SubType, Message: c.Say, Suppress: c.Suppress,
		DiagnosticCode: []string{"smtp; " + cmp.Or(one.Diagnostic, one.Status, "no reason given")}}
}
