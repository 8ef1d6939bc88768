package events

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
)

// Limits on custom events, which API callers send and automations use.
const (
	MaxName    = 255      // maximum length of an event's name in characters
	MaxPayload = 32 << 10 // maximum size of an event's JSON payload in bytes
)

// SystemPrefix is the prefix of system event names. Only Postrider itself sends system events.
const SystemPrefix = "postrider:"

// reservedPrefixes are the prefixes of system event names, in lower case. The second prefix comes from the API of
// another service, so that automations written for that API keep working.
var reservedPrefixes = []string{SystemPrefix, "resend:"}

// ReservedPrefix returns the reserved prefix with which a name begins, as it is spelled in the name. If the name has no
// reserved prefix, ReservedPrefix returns "". The comparison is case-insensitive.
func ReservedPrefix(name string) string {
	for _, prefix := range reservedPrefixes {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return name[:len(prefix)]
		}
	}
	return ""
}

// CanonicalName returns an event's name in the form that is used for comparisons: a reserved prefix is replaced by
// SystemPrefix, and other names are unchanged.
func CanonicalName(event string) string {
	if prefix := ReservedPrefix(event); prefix != "" {
		return SystemPrefix + event[len(prefix):]
	}
	return event
}

// TrimName returns an event name without the white space around it. Requests that send, define or wait for events trim
// their names, so that a stray space cannot separate an event from its definition and its automations.
func TrimName(name string) string { return strings.TrimFunc(name, isSpace) }

// isSpace reports whether TrimName removes a character. Line breaks and tabs are not removed, because [CheckName]
// refuses them as control characters.
func isSpace(r rune) bool { return unicode.IsSpace(r) && !unicode.IsControl(r) }

// CheckName returns an Invalid or a Missing fault if a string is not a valid event name. Names with a reserved prefix
// are valid; callers that reject such names use [ReservedPrefix]. The field parameter names the request field that
// contains the name.
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
