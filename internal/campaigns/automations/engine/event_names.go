package engine

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/platform/events"
)

// Names of system events, which the program records when a contact changes or when an email is opened, clicked, bounced
// or reported as spam.
const (
	ContactCreated      = events.SystemPrefix + "contact.created"
	ContactUpdated      = events.SystemPrefix + "contact.updated"
	ContactUnsubscribed = events.SystemPrefix + "contact.unsubscribed"
	ContactResubscribed = events.SystemPrefix + "contact.resubscribed"
	TopicOptedIn        = events.SystemPrefix + "topic.opted_in"
	TopicOptedOut       = events.SystemPrefix + "topic.opted_out"
	EmailOpened         = events.SystemPrefix + "email.opened"
	EmailClicked        = events.SystemPrefix + "email.clicked"
	EmailBounced        = events.SystemPrefix + "email.bounced"
	EmailComplained     = events.SystemPrefix + "email.complained"
)

// systemEvents contains the names of all system events, in the order in which error messages list them.
var systemEvents = []string{ContactCreated, ContactUpdated, ContactUnsubscribed, ContactResubscribed, TopicOptedIn,
	TopicOptedOut, EmailOpened, EmailClicked, EmailBounced, EmailComplained}

// ReadEventName reads and validates the event name in a member of an object, without the spaces around it. A name with
// a reserved prefix must be the name of a system event.
func ReadEventName(o jsonread.Object, member string) (string, error) {
	path := o.At(member)
	name, err := o.Required(member, events.MaxName)
	if err == nil {
		name = events.TrimName(name)
		err = events.CheckName(path, name)
	}
	if err == nil && events.ReservedPrefix(name) != "" && !slices.Contains(systemEvents, events.CanonicalName(name)) {
		err = jsonread.Invalidf(path, "names no system event. There are `%s`.", strings.Join(systemEvents, "`, `"))
	}
	return name, err
}
