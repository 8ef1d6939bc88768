// Package contacts stores the contacts of teams, their properties, and the topics that they subscribe to.
//
// # Words
//
// A contact is an address of a team, in lower case, with a name and a value for some of the team's properties. A
// segment is a group of contacts (package segments). An audience is a segment or all contacts of a team, as a broadcast
// reads it. A topic is a subject that a team writes about. A contact is opted in to a topic or opted out of it; the
// topic's default applies to contacts that chose neither, and to addresses that are no contact. An unsubscribed contact
// receives no email that has a topic, whatever it opted in to. This package does not decide about emails without a
// topic. Engagement is how often a contact was mailed, opened an email and followed a link.
//
// # Invariants
//
// A team has at most one contact for an address; the index contacts_address enforces it. One transaction changes a
// contact, with its values, memberships and subscriptions, and records the event: contact.created, contact.updated or
// contact.deleted. A change that has no effect writes nothing and records no event. The transaction locks the contact's
// row, so deleting a contact leaves no rows behind. Engagement is an exception: it is not part of the contact and takes
// no lock. If a contact is deleted at that moment, an engagement row may remain; only counts by filters on engagement
// see it.
//
// A deleted property, segment or topic disappears at once. The rows that refer to it are deleted later, in steps. Every
// query for memberships or values must therefore check that the segment or property exists.
//
// A [Link] proves that its holder received an email: the holder may choose for that address and needs no other proof. A
// link never expires and needs no row, so it works after its email was deleted. The link of an email that a broadcast
// or an automation sent to a contact acts on that contact, even if its address has changed. Through a link, a contact
// can choose public topics, private topics that it is opted in to, and private topics that it left through a link
// before. A contact may opt in through links at most 20 times an hour on each node, and once more for each topic,
// because each change records an event. Opting out is never refused.
//
// # Errors
//
// A property, segment or topic that the team does not have is an Invalid fault if a field of the request names it, and
// a NotFound fault if it is the requested object. With either fault, nothing is written. A filter that names a deleted
// object is an Invalid fault. An altered link is a NotFound fault. Database errors are returned and leave nothing
// changed.
//
// Lists and walks by filter use an ordinary read if the filter needs few look-ups, which is estimated beforehand. All
// other reads by filter are long reads, which have few slots and a time limit ([db.DB.ReadLong]). A request that gets
// no slot or takes too long returns an Unavailable fault, a count keeps its last value, and a walk continues in short
// parts.
//
// # Limits of this package
//
// It sends nothing and does not accept or refuse emails: package emails calls [Service.Refused] and
// [Service.RefusedContact], and packages that read an audience call [Service.AudienceMembers]. It shows no pages;
// package links does. It cannot tell which segments with a filter contain a contact.
package contacts

import (
	"time"

	"github.com/postrider/postrider/internal/platform/events"
)

// Subscription is a choice about a topic.
type Subscription string

const (
	OptIn  Subscription = "opt_in"
	OptOut Subscription = "opt_out"
)

// Visibility says who sees a topic on the pages of unsubscribe links.
type Visibility string

const (
	Public  Visibility = "public"  // everybody
	Private Visibility = "private" // contacts that are opted in, or opted out on such a page
)

// Limits of contacts, properties, segments and topics (API reference sections 12 to 16).
const (
	MaxTopics      = 200 // topics of a team; the page of a link shows them all
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
	Unsubscribed bool // gets no emails with a topic, of broadcasts or of automations
	CreatedAt    time.Time
	UpdatedAt    time.Time

	source string // id of the email whose link last changed Unsubscribed; "" if a link did not
}

// event returns the data of an event about a contact. segmentIDs are the segments to which it was added.
func (c *Contact) event(segmentIDs []string) *events.Contact {
	if segmentIDs == nil {
		segmentIDs = []string{}
	}
	return &events.Contact{ID: c.ID, SegmentIDs: segmentIDs, Email: c.Address, FirstName: c.FirstName,
		LastName: c.LastName, Unsubscribed: c.Unsubscribed, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt}
}

// Topic is a subject that a team writes about.
type Topic struct {
	ID          string
	TeamID      string
	Name        string
	Description string
	Default     Subscription // for contacts that chose neither; it never changes
	Visibility  Visibility
	CreatedAt   time.Time
}

// TopicSubscription is a topic and whether one contact is subscribed to it.
type TopicSubscription struct {
	Topic
	Subscription Subscription // the contact's choice, or the topic's default

	chosen Subscription // the contact's choice; "" for none
	source string       // id of the email whose link was used; "" if the choice was not made by a link
}

// Refusal is the reason why an address may not be mailed, as the event email.failed shows it.
type Refusal string

const (
	OptedOut     Refusal = "topic_opted_out"      // the contact opted out
	NotOptedIn   Refusal = "topic_not_opted_in"   // the contact chose neither, and the topic's default is opt_out
	Unsubscribed Refusal = "contact_unsubscribed" // the contact is unsubscribed from everything
	TopicDeleted Refusal = "topic_deleted"        // the subscriptions were deleted with the topic
)
