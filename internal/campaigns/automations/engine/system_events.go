package engine

import (
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/platform/events"
)

// The names of the system events.
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

var systemEvents = []string{ContactCreated, ContactUpdated, ContactUnsubscribed, ContactResubscribed, TopicOptedIn,
	TopicOptedOut, EmailOpened, EmailClicked, EmailBounced, EmailComplained}

// eventName reads the name of an event that begins a run, or that a step waits for.
func (o object) eventName(member string) (string, error) {
	place := o.at(member)
	name, err := o.required(member, events.MaxName)
	if err == nil {
		err = events.CheckName(place, name)
	}
	if err == nil && events.ReservedPrefix(name) != "" && !slices.Contains(systemEvents, events.CanonicalName(name)) {
		err = invalid(place, "names no system event. There are `%s`.", strings.Join(systemEvents, "`, `"))
	}
	return name, err
}
