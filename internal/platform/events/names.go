package events

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
)

// Limits of the events that callers send and that automations use.
const (
	MaxName    = 255      // characters of the name of an event
	MaxPayload = 32 << 10 // bytes of JSON of the payload of an event
)

// SystemPrefix begins the names of system events. Only the program itself sends system events.
const SystemPrefix = "postrider:"

// reservedPrefixes are the prefixes of the names of system events, in lower case. The second prefix comes from the API
// of another service. With it, automations written for that API keep working.
var reservedPrefixes = []string{SystemPrefix, "resend:"}

// ReservedPrefix returns the reserved prefix with which a name begins, in the name's spelling, or "" if it has none.
// Upper and lower case count as equal.
func ReservedPrefix(name string) string {
	for _, prefix := range reservedPrefixes {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return name[:len(prefix)]
		}
	}
	return ""
}

// CanonicalName returns the form of an event's name in which names are compared: any reserved prefix becomes
// SystemPrefix, and other names stay as they are.
func CanonicalName(event string) string {
	if prefix := ReservedPrefix(event); prefix != "" {
		return SystemPrefix + event[len(prefix):]
	}
	return event
}

// CheckName returns an Invalid or a Missing fault if a text cannot be the name of an event. It accepts names with a
// reserved prefix; callers that refuse them use [ReservedPrefix]. field is the field of the request that has the name.
func CheckName(field, name string) error {
	var problem string
	switch {
	case strings.TrimSpace(name) == "":
		return fault.MissingField(field)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		problem = "must be UTF-8 text without line breaks and other control characters."
	case utf8.RuneCountInString(name) > MaxName:
		problem = fmt.Sprintf("has %d characters; the limit is %d.", utf8.RuneCountInString(name), MaxName)
	case id.Valid(name):
		problem = "is a UUID, which would be taken for the id of an event. Choose a name such as `user.created`."
	default:
		return nil
	}
	return fault.Invalidf(field, "The `%s` field %s", field, problem)
}
