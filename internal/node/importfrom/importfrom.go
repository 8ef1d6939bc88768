// Package importfrom imports a team's data from other email products: domains, templates, contacts with their consent,
// suppressions and webhooks.
//
//	Source ──Page by Page──► Run ──► the services of the team
//	                          └────► the state file, after each page
//
// A [Source] reads one product and returns neutral records; each product has a package below this one. [Run] writes the
// records through the same services as the API.
//
// # Invariants
//
// Nothing is overwritten. Run finds an object that exists by its natural key: the name of a domain, a segment or a
// topic, the alias or else the name of a template, the key of a property, the address of a contact or a suppression,
// the URL of a webhook. An existing object stays as it is. A contact is the exception: it gets the names and values
// that it does not have, it is added to the segments of the source, and where the two differ, the contact is
// unsubscribed or opted out.
//
// An import sends nothing and creates no API keys. Domains are created without verified records, and webhooks are
// created disabled. Imported contacts and suppressions record no events.
//
// Each page is written before its cursor is stored. If the process is killed in between, the page is read and written
// again, which changes nothing, because objects are found by their natural keys. Objects that were created since the
// page began count as created by the import.
//
// # Failures
//
// A record that breaks a rule is refused and counted with the reason, and the import continues. If the source or the
// database fails, Run returns the error, and the next call of Run continues with the same page. A segment or topic that
// is deleted here during an import is not created again; the import continues without it.
//
// # Out of scope
//
// The package does not import emails, events, API keys, broadcasts and automations. DKIM keys cannot be taken over,
// because no product hands them out.
package importfrom

import (
	"context"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// Kind is a kind of imported objects.
type Kind string

const (
	Domains      Kind = "domains"
	Properties   Kind = "properties"
	Segments     Kind = "segments"
	Topics       Kind = "topics"
	Templates    Kind = "templates"
	Suppressions Kind = "suppressions"
	Contacts     Kind = "contacts"
	Members      Kind = "members" // contacts of segments
	Webhooks     Kind = "webhooks"
)

// Kinds lists all kinds in the order in which they are imported. Suppressions come before contacts, so that a contact
// that must not be mailed is never without its suppression. Segments and topics come before the contacts that refer to
// them.
func Kinds() []Kind {
	return []Kind{Domains, Properties, Segments, Topics, Templates, Suppressions, Contacts, Members, Webhooks}
}

// Source reads the data of one account of a product.
type Source interface {
	// Kinds returns the kinds that the source has.
	Kinds() []Kind
	// Page returns the records of a kind that follow the cursor; the first cursor is "".
	Page(ctx context.Context, kind Kind, cursor string) (Page, error)
}

// Page is a part of the records of one kind. Only the field of that kind is set, and for Contacts also Suppressions.
type Page struct {
	Domains      []Domain
	Properties   []Property
	Segments     []Segment
	Topics       []Topic
	Templates    []Template
	Suppressions []Suppression
	Contacts     []Contact // also for Members
	Webhooks     []Webhook

	Refused []Refused // records that the source cannot express as neutral records
	Notes   []string  // what the reader of the report should know about this kind
	Next    string    // cursor of the next page; "" after the last one
}

// Refused is a record that cannot be imported.
type Refused struct{ Name, Reason string }

// Domain is a domain of the source.
type Domain struct {
	Name              string
	Region            string
	ReturnPath        string
	TrackingSubdomain string
	TLS               string
	OpenTracking      bool
	ClickTracking     bool
	Sending           bool
	Receiving         bool
}

// Property is a property of contacts.
type Property struct {
	Key      string
	Type     scalar.Type
	Fallback scalar.Value
}

// Segment is a list of contacts.
type Segment struct {
	ID   string // in the source
	Name string
	Note string // for the report, or ""
}

// Topic is a subject that contacts subscribe to.
type Topic struct {
	ID          string // in the source
	Name        string
	Description string
	Default     contacts.Subscription
	Public      bool
}

// Template is a template whose placeholders are in the syntax of Postrider.
type Template struct {
	ID        string // in the source, or ""
	Name      string
	Alias     string
	From      string
	Subject   string
	ReplyTo   []string
	HTML      string
	Text      *string
	Variables []Variable
	Published bool
	Note      string // what was changed, or ""
}

// Variable is a variable of a template.
type Variable struct {
	Key      string
	Type     scalar.Type
	Fallback scalar.Value
}

// Suppression is an address that must not be mailed.
type Suppression struct {
	Address string
	Origin  suppressions.Origin
}

// Contact is a contact, or a part of what is known about one: a source may return the same address several times.
type Contact struct {
	Address      string
	FirstName    string
	LastName     string
	Unsubscribed bool
	Values       map[string]scalar.Value // by the name in the source, from which the key of the property is made
	Segments     []string                // ids in the source
	Topics       []Choice
}

// Choice is a contact's subscription to a topic.
type Choice struct {
	TopicID      string // in the source
	Subscription contacts.Subscription
	// Effective means that the subscription is the topic's default in the source, which does not tell whether the
	// contact chose it. It then opts in new contacts only.
	Effective bool
}

// Webhook is a URL that receives events.
type Webhook struct {
	URL    string
	Events []string // of Postrider
	Note   string   // for the report, or ""
}
