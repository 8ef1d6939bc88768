package receiving

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/mail/report"
)

// bounce is the data of the event that a failure is. A report whose last word was "later" came after other hosts' tries: the
// address may be good.
func bounce(to *report.Recipient) *events.Bounce {
	said := bounded(to.Diagnostic, 2000)
	code, enhanced, text := codes(said)
	status := to.Status
	if enhanced == "" || strings.HasSuffix(enhanced, ".0.0") && status != "" {
		enhanced = status
	}
	if code == 0 && (strings.HasPrefix(enhanced, "4.") || strings.HasPrefix(enhanced, "5.")) {
		code = int(enhanced[0]-'0') * 100
	}
	c := report.Classify(code, enhanced, text)
	say := c.Say
	if code/100 == 4 || strings.HasPrefix(status, "4") {
		c.Type, c.Suppress = report.Transient, false
		if c.SubType == report.Undetermined || c.SubType == report.NoEmail {
			c.SubType = report.General
		}
		say = "A host on the way could not deliver the message in time; the last answer was this. " + say
	}
	return &events.Bounce{Type: c.Type, SubType: c.SubType, Message: say, Suppress: c.Suppress,
		DiagnosticCode: []string{"smtp; " + cmp.Or(said, status, "no reason given")}}
}

// reply is the beginning of an SMTP reply, with its enhanced code when it has one.
var reply = regexp.MustCompile(`^\W*([45]\d\d)(?:[ -]+#?([45]\.\d{1,3}\.\d{1,3}))?[ -]*`)

// codes finds the codes that a diagnostic begins with; what is not there is zero.
func codes(said string) (code int, enhanced, text string) {
	m := reply.FindStringSubmatch(said)
	if m == nil {
		return 0, "", said
	}
	code, _ = strconv.Atoi(m[1]) // three digits
	return code, m[2], said[len(m[0]):]
}
