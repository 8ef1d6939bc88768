package dashboard

import (
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/platform/events"
)

// bounceWords says why an email bounced, by the sub-type of the bounce.
var bounceWords = map[string]string{"NoEmail": "Unknown address", "MailboxFull": "Mailbox full",
	"MessageTooLarge": "Message too large", "ContentRejected": "Content rejected",
	"AttachmentRejected": "Attachment rejected"}

// lastEvent returns the newest event of an email in words, and the time that belongs to it: that of the next attempt.
// It returns "" if the state says everything.
func lastEvent(n events.Newest) (said string, at time.Time) {
	var data struct {
		Bounce *events.Bounce `json:"bounce"`
		Failed *events.Failed `json:"failed"`
		Reason string         `json:"reason"`
		Sub    string         `json:"subType"`
	}
	json.Unmarshal([]byte(n.Data), &data) // data that cannot be read adds no words
	switch n.Type {
	case "bounced":
		sub := data.Sub
		if data.Bounce != nil {
			sub = data.Bounce.SubType
		}
		if words, ok := bounceWords[sub]; ok {
			return words, time.Time{}
		}
		return "Refused", time.Time{}
	case "delivery_delayed":
		return "Retry", n.NextAt
	case "complained":
		return "Marked as spam", time.Time{}
	case "opened":
		return "Opened", time.Time{}
	case "clicked":
		return "Clicked", time.Time{}
	}
	return "", time.Time{}
}
