// Package contacts stores teams' contacts, their properties, and the topics that they subscribe to.
//
// # Words
//
// A contact is an email address that a team sends to, with a name and values for some of the team's properties. The
// address is stored in lower case. A segment is a group of contacts (package segments). An audience is the set of
// contacts that a broadcast is sent to: a segment, or all of a team's contacts. A topic is a subject that a team sends
// emails about. A contact can opt in to a topic or opt out of it. The topic's default applies to contacts that have
// done neither, and to addresses without a contact. An unsubscribed contact receives no email that has a topic, even if
// the contact has opted in to that topic. Package contacts does not decide whether emails without a topic may be sent.
// Engagement is how often a contact has been mailed, has opened an email and has clicked a link.
//
// # Invariants
//
// A team has at most one contact per address, which the index contacts_address enforces. A contact and its values,
// memberships and subscriptions are changed in one transaction, which also records an event: contact.created,
// contact.updated or contact.deleted. A change that has no effect writes nothing and records no event. The transaction
// locks the contact's row, so that deleting a contact deletes all rows that refer to it. Engagement is an exception: it
// is not part of the contact, and recording it takes no lock. If a contact is deleted while engagement is being
// recorded, an engagement row may remain. Such a row affects only the counts for filters on engagement.
//
// A deleted property, segment or topic can no longer be read once the deletion has been committed. The rows that refer
// to the deleted object are removed later, in several transactions. Every query for memberships or values must
// therefore check that the segment or property exists.
//
// A [Link] proves that its holder received an email, so the holder may change the subscriptions of that address without
// signing in. A link never expires and is not stored, so it still works after its email has been deleted. If a
// broadcast or an automation sent the email to a contact, the link acts on that contact, even if the contact's address
// has changed. Through a link, a contact can choose public topics, private topics that it is opted in to, and private
// topics that it opted out of through a link. Because each change records an event, each node allows a contact at most
// 20 opt-ins an hour through links, plus one opt-in per topic. Opting out is never refused.
//
// # Failures
//
// A property, segment or topic that does not exist in the team causes a fault. The fault is Invalid if a field of the
// request names the object, and NotFound if the object was requested directly. After an Invalid or a NotFound fault,
// nothing has been written. A filter that names a deleted object causes an Invalid fault. A link that was tampered with
// causes a NotFound fault. A call that fails with a database error changes nothing.
//
// Lists and walks with a filter use an ordinary read if they are estimated to need few index look-ups. All other reads
// with a filter are long reads, which have only a few slots and a time limit ([db.DB.ReadLong]). A long read may get no
// slot or take too long. A request then returns an Unavailable fault, a background count keeps the previous value, and
// a walk continues in short parts.
//
// # Out of scope
//
// Package contacts neither sends nor refuses emails: package emails calls [Service.Refused] and
// [Service.RefusedContact], and packages that read an audience call [Service.AudienceMembers]. Package links serves the
// unsubscribe pages. Package contacts cannot list which filter-based segments contain a given contact.
package contacts

import (
	"time"

	"github.com/postrider/postrider/internal/platform/events"
)

// Subscription says whether a contact has opted in to a topic or out of it.
type Subscription string

const (
	OptIn  Subscription = "opt_in"
	OptOut Subscription = "opt_out"
)

// Visibility says who sees a topic on unsubscribe pages.
type Visibility string

const (
	Public  Visibility = "public"  // everybody sees the topic
	Private Visibility = "private" // contacts see it if they are opted in, or if they opted out on an unsubscribe page
)

// Limits on contacts, properties, segments and topics (API reference sections 12 to 16).
const (
	MaxTopics      = 200 // topics per team; an unsubscribe page shows all of them
	MaxProperties  = 200 // properties per team
	maxProperty    = 50  // maximum length of a property's name, in characters
	maxTopicName   = 50  // maximum length of a topic's name, in characters
	maxDescription = 200 // maximum length of a topic's description, in characters
	maxName        = 255 // maximum length of a first or last name, in characters
)

// Contact is an email address that a team sends to, with data about the person behind it.
type Contact struct {
	ID           string
	TeamID       string
	Address      string // lower case
	FirstName    string
	LastName     string
	Unsubscribed bool // receives no emails that have a topic or come from broadcasts or automations
	CreatedAt    time.Time
	UpdatedAt    time.Time

	source string // id of the email whose link last changed Unsubscribed; "" if a link did not
}

// event returns the data for an event about a contact. The parameter segmentIDs lists the segments that the contact was
// added to.
func (c *Contact) event(segmentIDs []string) *events.Contact {
	if segmentIDs == nil {
		segmentIDs = []string{}
	}
	return &events.Contact{ID: c.ID, SegmentIDs: segmentIDs, Email: c.Address, FirstName: c.FirstName,
		LastName: c.LastName, Unsubscribed: c.Unsubscribed, CreatedAt: c.CreatedAt, UpdatedAt: c.UpdatedAt}
}

// Topic is a subject that a team sends emails about.
type Topic struct {
	ID          string
	TeamID      string
	Name        string
	Description string
	Default     Subscription // applies to contacts that have neither opted in nor out; never changes
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

// Refusal is the reason why an address may not be mailed, as reported in the email.failed event or, for Deleted, in the
// email.canceled event.
type Refusal string

const (
	OptedOut     Refusal = "topic_opted_out"      // the contact opted out
	NotOptedIn   Refusal = "topic_not_opted_in"   // the contact made no choice, and the topic's default is opt_out
	Unsubscribed Refusal = "contact_unsubscribed" // the contact is unsubscribed from everything
	TopicDeleted Refusal = "topic_deleted"        // the topic and its subscriptions were deleted
	Deleted      Refusal = "contact_deleted"      // the contact was deleted after the email was enqueued for it
)
