package engine

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
)

// MaxEvent is the limit of the name of an event, in characters.
const MaxEvent = 255

// System begins the names of system events, which the program itself has happen.
const System = "postrider:"

// The names of the system events.
const (
	ContactCreated      = System + "contact.created"
	ContactUpdated      = System + "contact.updated"
	ContactUnsubscribed = System + "contact.unsubscribed"
	ContactResubscribed = System + "contact.resubscribed"
	TopicOptedIn        = System + "topic.opted_in"
	TopicOptedOut       = System + "topic.opted_out"
	EmailOpened         = System + "email.opened"
	EmailClicked        = System + "email.clicked"
	EmailBounced        = System + "email.bounced"
	EmailComplained     = System + "email.complained"
)

var systemEvents = []string{ContactCreated, ContactUpdated, ContactUnsubscribed, ContactResubscribed, TopicOptedIn,
	TopicOptedOut, EmailOpened, EmailClicked, EmailBounced, EmailComplained}

// reserved are the prefixes of the names of system events, in lower case. The second is that of the API with which
// callers may have begun.
var reserved = []string{System, "resend:"}

// Reserved returns the prefix of a name, as it is written, by which it may be that of a system event only, in any case.
// It is "" for other names.
func Reserved(name string) string {
	for _, prefix := range reserved {
		if len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix) {
			return name[:len(prefix)]
		}
	}
	return ""
}

// Canonical returns the name by which an event is told apart: all prefixes that are reserved mean the same.
func Canonical(event string) string {
	if prefix := Reserved(event); prefix != "" {
		return System + event[len(prefix):]
	}
	return event
}

// CheckName refuses what cannot be the name of an event that callers send or steps wait for, with an Invalid or a
// Missing fault. Names that are [Reserved] are left to the caller. field is that of the request.
func CheckName(field, name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return fault.MissingField(field)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return invalid(field, "must be UTF-8 text without line breaks and other control characters.")
	case utf8.RuneCountInString(name) > MaxEvent:
		return invalid(field, "has %d characters; the limit is %d.", utf8.RuneCountInString(name), MaxEvent)
	case id.Valid(name):
		return invalid(field, "is a UUID, which would be taken for the id of an event. Choose a name such as "+
			"`user.created`.")
	}
	return nil
}

// eventName reads the name of an event that begins a run, or that a step waits for.
func (o object) eventName(member string) (string, error) {
	place := o.at(member)
	name, err := o.required(member, MaxEvent)
	if err == nil {
		err = CheckName(place, name)
	}
	if err == nil && Reserved(name) != "" && !slices.Contains(systemEvents, Canonical(name)) {
		err = invalid(place, "names no system event. There are `%s`.", strings.Join(systemEvents, "`, `"))
	}
	return name, err
}
