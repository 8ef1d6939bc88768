package engine

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/platform/events"
)

// The names of the system events. The program sends them when something happens to a contact or an email.
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

// systemEvents are the names in the order in which errors list them.
var systemEvents = []string{ContactCreated, ContactUpdated, ContactUnsubscribed, ContactResubscribed, TopicOptedIn,
	TopicOptedOut, EmailOpened, EmailClicked, EmailBounced, EmailComplained}

// ReadEventName returns the member of an object that names an event: one that begins a run or that a step waits for. A
// name with a reserved prefix must be that of a system event.
func ReadEventName(o jsonread.Object, member string) (string, error) {
	path := o.At(member)
	name, err := o.Required(member, events.MaxName)
	if err == nil {
		err = events.CheckName(path, name)
	}
	if err == nil && events.ReservedPrefix(name) != "" && !slices.Contains(systemEvents, events.CanonicalName(name)) {
		err = jsonread.Invalidf(path, "names no system event. There are `%s`.", strings.Join(systemEvents, "`, `"))
	}
	return name, err
}
