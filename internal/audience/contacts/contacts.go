// Package contacts stores whom a team writes to, what it notes of them, and who wants to read about what.
//
// # Words
//
// A contact is an address of a team, in lower case, with a name and values of the properties that the team declares. A
// segment is a set of contacts: those that were added to it, or those that its filter finds; an audience is a segment,
// or all contacts, as a broadcast goes through it. A topic is something that a team writes about. A contact is opted in
// to a topic or out of it; one that has chosen neither, or an address that is no contact, is what the topic's default
// says. A contact that is unsubscribed is mailed nothing that has a topic, whatever it is opted in to; email without a
// topic is not the concern of this package. Engagement is how often a contact was mailed and what it opened and
// followed.
//
// # Invariants
//
// An address is one contact of a team at most, which the index contacts_address decides. What changes in a contact, its
// values, memberships and subscriptions included, is written in one transaction together with its event,
// contact.created, contact.updated or contact.deleted; what changes nothing writes nothing and records no event.
// A transaction that does so holds the contact's row, so that nothing is left of one that is deleted. Engagement is no
// change of a contact and holds no row: if a contact is deleted at that moment, a row of it may stay, which only counts
// of filters by it find.
//
// A property, a segment or a topic that is deleted does not exist from then on for anybody who asks; what refers to it
// is deleted later, in steps. Whoever reads memberships or values asks whether the segment or property exists.
//
// A [Link] proves that its owner got an email: whoever has it may choose for its address, and needs nothing else. It
// has no end and needs no row, so it also works after its email was deleted. The link of an email that a broadcast or
// an automation sent to a contact chooses for that contact also under a later address. Through a link a contact chooses
// among the public topics, the private ones that it is opted in to, and those that it left through a link before: a
// private topic is not for everybody to enter or to see. A contact may opt in by links at most 20 times an hour on each
// node, and once more to each topic: whoever has a link could otherwise make events without end. Opting out is never
// refused.
//
// # When it fails
//
// A property, segment or topic that does not exist, or that belongs to another team, is an Invalid fault where it is a
// field of a request, and a NotFound fault where it is asked for; then nothing of the request is written. A filter that
// names what was deleted is an Invalid fault for whoever uses it. A link that was altered is a NotFound fault. Errors
// of the database are returned, with nothing changed.
//
// Lists and walks by filters are like any other read while these make few look-ups, which is known before. All else that
// filters are asked of, and counts by them, are long reads, which have few places and a limit of time
// ([db.DB.ReadLong]): a request that finds no place or needs more time gets an Unavailable fault, counts keep the last
// one, and walks go on in short parts.
//
// # What it does not do
//
// It sends nothing and decides nothing about emails: package emails asks [Service.Refused] and
// [Service.RefusedContact], and whoever goes through an audience [Service.AudienceMembers]. It shows no pages: package links
// does. It does not tell in which segments with a filter a contact is.
package contacts

import (
	"time"

	"github.com/postrider/postrider/internal/platform/events"
)

// Subscription is whether somebody reads about a topic.
type Subscription string

const (
	OptIn  Subscription = "opt_in"
	OptOut Subscription = "opt_out"
)

// Visibility is who sees a topic on the pages of unsubscribe links.
type Visibility string

const (
	Public  Visibility = "public"  // everybody
	Private Visibility = "private" // those who are opted in to it, or left it there
)

// Limits of contacts, properties, segments and topics (API reference sections 12 to 16).
const (
	MaxTopics      = 200 // of a team; the page of a link shows them all
	MaxProperties  = 200 // of a team
	maxProperty    = 50  // characters of a property's name
	maxTopicName   = 50  // characters
	maxDescription = 200 // characters
	maxName        = 255 // characters of a contact's first or last name
)

// Contact is an address that a team writes to.
type Contact struct {
	ID           string
	TeamID       string
	Address      string // lower case
	FirstName    string
	LastName     string
	Unsubscribed bool // from all that has a topic, from broadcasts and from automations
	CreatedAt    time.Time
	UpdatedAt    time.Time

	source string // the email by whose link Unsubscribed was changed last; "" if it was changed otherwise
}

// event returns what the events of a contact carry that is in some segments.
func (c *Contact) event(segmentIDs []string) *events.Contact {
	if segmentIDs == nil {
		segmentIDs = []string{}
	}
	return &events.Contact{ID: c.ID, SegmentIDs: segmentIDs, Email: c.Address, FirstName: c.FirstName,
		LastName: c.LastName, Unsubscribed: c.Unsubscribed, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt}
}

// Topic is something that a team writes about.
type Topic struct {
	ID          string
	TeamID      string
	Name        string
	Description string
	Default     Subscription // of those who have chosen neither; it never changes
	Visibility  Visibility
	CreatedAt   time.Time
}

// TopicSubscription is a topic with what holds for one contact.
type TopicSubscription struct {
	Topic
	Subscription Subscription // chosen, or the topic's default

	chosen Subscription // "" if nothing was chosen
	source string       // the email by whose link it was chosen; "" if it was chosen otherwise
}

// Refusal is why an address is not mailed, in the form in which the event email.failed names it.
type Refusal string

const (
	OptedOut     Refusal = "topic_opted_out"      // it was opted out
	NotOptedIn   Refusal = "topic_not_opted_in"   // it has chosen neither, and only those who opt in are mailed
	Unsubscribed Refusal = "contact_unsubscribed" // from everything that has a topic
	TopicDeleted Refusal = "topic_deleted"        // so nobody can say who wanted it
)
