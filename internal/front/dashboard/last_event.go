package dashboard

import (
	"regexp"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/events"
)

// bounceWords says why an email bounced, by the sub-type of the bounce.
var bounceWords = map[string]string{"NoEmail": "Unknown address", "MailboxFull": "Mailbox full",
	"MessageTooLarge": "Message too large", "ContentRejected": "Content rejected",
	"AttachmentRejected": "Attachment rejected"}

// unknownAddress matches the reply of a host that does not know the address (RFC 3463, section 3.2). Its bounce has the
// sub-type General, as Resend's has.
var unknownAddress = regexp.MustCompile(`\b5[0-9]{2}[ -]5\.1\.1\b`)

// lastEvent returns the newest event of an email in words, and the time that belongs to it: that of the next attempt.
// It returns "" if the state says everything.
func lastEvent(n events.Newest) (said string, at time.Time) {
	var bounce events.Bounce
	json.Unmarshal([]byte(n.Data), &bounce) // data that cannot be read adds no words
	switch n.Type {
	case "bounced":
		if words, ok := bounceWords[bounce.SubType]; ok {
			return words, time.Time{}
		}
		if slices.ContainsFunc(bounce.DiagnosticCode, unknownAddress.MatchString) {
			return "Unknown address", time.Time{}
		}
		return "Refused", time.Time{}
	case "delivery_delayed":
		return "Retry", n.NextAt
	case "complained":
		return "Marked as spam", time.Time{}
	}
	// An open or a click adds nothing: the state is opened or clicked, or a later one. An email that was opened again
	// after a click is still clicked.
	return "", time.Time{}
}
