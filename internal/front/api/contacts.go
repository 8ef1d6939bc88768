package api

import (
	"cmp"
	"context"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/page"
)

// segmentRef is the ID of a segment, or an object with the field id.
type segmentRef string

// UnmarshalJSONFrom reads either JSON form.
func (s *segmentRef) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() != '{' {
		return json.UnmarshalDecode(d, (*string)(s))
	}
	var object struct {
		ID string `json:"id"`
	}
	err := json.UnmarshalDecode(d, &object)
	*s = segmentRef(object.ID)
	return err
}

func (*segmentRef) ElementTypes() []reflect.Type { return nil }

// Schema describes both JSON forms in the OpenAPI document.
func (segmentRef) Schema(huma.Registry) *huma.Schema {
	one := &huma.Schema{Type: huma.TypeString, Format: "uuid"}
	return &huma.Schema{OneOf: []*huma.Schema{one,
		{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"id": one}, Required: []string{"id"}}}}
}

// topicRef is the ID of a topic. An empty string is rejected, because without its topic the email would also go to
// contacts who unsubscribed from the topic.
type topicRef string

// UnmarshalJSONFrom reads an ID. A null value is treated as an absent field.
func (t *topicRef) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	given := d.PeekKind() != 'n'
	if err := json.UnmarshalDecode(d, (*string)(t)); err != nil {
		return err
	}
	if given && *t == "" {
		field := wire.FieldName(d)
		return fault.Invalidf(field, "The `%s` field is empty. Give the id of a topic, or leave it out.", field)
	}
	return nil
}

func (*topicRef) ElementTypes() []reflect.Type { return nil }

// Schema describes the topic's ID in the OpenAPI document.
func (topicRef) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeString, Format: "uuid"}
}

type subscriptionWire struct {
	ID           string `json:"id" doc:"The ID of the topic." format:"uuid"`
	Subscription string `json:"subscription" enum:"opt_in,opt_out"`
}

func choices(in []subscriptionWire) []contacts.Choice {
	all := make([]contacts.Choice, len(in))
	for i, t := range in {
		all[i] = contacts.Choice{TopicID: t.ID, Subscription: contacts.Subscription(t.Subscription)}
	}
	return all
}

type createContactIn struct {
	Email        string                                  `json:"email" doc:"If a contact with this address exists, the request changes that contact."`
	FirstName    *string                                 `json:"first_name,omitzero" maxLength:"255"`
	LastName     *string                                 `json:"last_name,omitzero" maxLength:"255"`
	Unsubscribed *bool                                   `json:"unsubscribed,omitzero" doc:"Whether the contact is unsubscribed from all broadcasts and automations and from emails with a topic."`
	Properties   wire.Object[scalarValue, maxProperties] `json:"properties,omitzero" doc:"Values by the keys of contact properties; null removes a value."`
	Segments     wire.Array[segmentRef, maxSegments]     `json:"segments,omitzero" doc:"Segments that the contact is added to."`
	Topics       wire.Array[subscriptionWire, maxTopics] `json:"topics,omitzero" doc:"The contact's topic subscriptions."`
	AudienceID   string                                  `json:"audience_id,omitzero" doc:"Deprecated: a segment that the contact is added to." format:"uuid"`
}

func (in *createContactIn) change() contacts.Change {
	c := contacts.Change{FirstName: in.FirstName, LastName: in.LastName, Unsubscribed: in.Unsubscribed,
		Properties: propertyValues(in.Properties), Topics: choices(in.Topics)}
	for _, s := range in.Segments {
		c.Segments = append(c.Segments, string(s))
	}
	if in.AudienceID != "" {
		c.Segments = append(c.Segments, in.AudienceID)
	}
	return c
}

func propertyValues(in map[string]scalarValue) map[string]scalar.Value {
	values := make(map[string]scalar.Value, len(in))
	for name, v := range in {
		values[name] = v.Value
	}
	return values
}

type updateContactIn struct {
	Email        *string                                 `json:"email,omitzero" nullable:"false" doc:"The new address, if the path has the contact's ID. Otherwise it must be the present address."`
	FirstName    wire.Optional[string]                   `json:"first_name,omitzero" doc:"Null removes it." maxLength:"255"`
	LastName     wire.Optional[string]                   `json:"last_name,omitzero" doc:"Null removes it." maxLength:"255"`
	Unsubscribed *bool                                   `json:"unsubscribed,omitzero" doc:"Whether the contact is unsubscribed from all broadcasts and automations and from emails with a topic."`
	Properties   wire.Object[scalarValue, maxProperties] `json:"properties,omitzero" doc:"Values by the keys of contact properties. Null removes a value; omitted values are kept."`
	Segments     wire.ReadOnly                           `json:"segments,omitzero" hidden:"true"`
	Topics       wire.ReadOnly                           `json:"topics,omitzero" hidden:"true"`
}

// change converts the update request. The parameter name is the contact's ID or address from the path.
func (in *updateContactIn) change(name string) (contacts.Change, error) {
	c := contacts.Change{FirstName: in.FirstName.Replacement(), LastName: in.LastName.Replacement(),
		Unsubscribed: in.Unsubscribed, Properties: propertyValues(in.Properties)}
	switch {
	case in.Email == nil:
	case id.Valid(name):
		c.Address = in.Email
	case !sameAddress(*in.Email, name): // some clients repeat the address from the path in the body
		return c, fault.Invalidf("email", "The `email` field is another address than that of the path. Name the contact by "+
			"its id to change its address.")
	}
	return c, cmp.Or(
		in.Segments.Refuse("segments", "Add and remove a contact with /contacts/{contact}/segments/{segment_id}."),
		in.Topics.Refuse("topics", "Change them with PATCH /contacts/{contact}/topics."))
}

// sameAddress reports whether the addresses in the body and in the path are the same. If the path contains no valid
// address, sameAddress returns true, because the contact look-up reports that error.
func sameAddress(address, name string) bool {
	of, err := message.ParseAddress(name)
	if err != nil {
		return true
	}
	a, err := message.ParseAddress(address)
	return err == nil && a.Key() == of.Key()
}

// contactTopicsIn is a list of subscriptions, or an object with the field topics.
type contactTopicsIn struct {
	topics wire.Array[subscriptionWire, maxTopics]
}

// UnmarshalJSONFrom reads either JSON form.
func (in *contactTopicsIn) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	if d.PeekKind() == '[' {
		return json.UnmarshalDecode(d, &in.topics)
	}
	var object struct {
		Topics wire.Array[subscriptionWire, maxTopics] `json:"topics"`
	}
	err := json.UnmarshalDecode(d, &object)
	in.topics = object.Topics
	return err
}

func (*contactTopicsIn) ElementTypes() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[subscriptionWire]()}
}

// Schema describes both JSON forms in the OpenAPI document.
func (contactTopicsIn) Schema(r huma.Registry) *huma.Schema {
	topics := wire.Array[subscriptionWire, maxTopics]{}.Schema(r)
	return &huma.Schema{OneOf: []*huma.Schema{topics,
		{Type: huma.TypeObject, Properties: map[string]*huma.Schema{"topics": topics}, Required: []string{"topics"}}}}
}

type valueWire struct {
	Value scalarValue `json:"value"`
	Type  string      `json:"type" enum:"string,number"`
}

type contactWire struct {
	Object string `json:"object"`
	ContactItem
	Properties map[string]valueWire `json:"properties" doc:"The contact's values by the keys of contact properties."`
}

// ContactItem represents a contact in a list. ContactItem is exported because Huma skips the fields of unexported
// embedded types.
type ContactItem struct {
	ID           string      `json:"id"`
	Email        string      `json:"email"`
	FirstName    *string     `json:"first_name"`
	LastName     *string     `json:"last_name"`
	CreatedAt    wire.DBTime `json:"created_at"`
	Unsubscribed bool        `json:"unsubscribed"`
}

func contactToItem(c contacts.Contact) ContactItem {
	return ContactItem{c.ID, c.Address, orNull(c.FirstName), orNull(c.LastName), wire.DBTime(c.CreatedAt), c.Unsubscribed}
}

type contactGone struct {
	Object  string `json:"object"`
	Contact string `json:"contact"`
	ID      string `json:"id,omitzero"`
	Deleted bool   `json:"deleted"`
}

func (a *API) createContact(ctx context.Context, c *wire.Call, in createContactIn) (ref, error) {
	if in.AudienceID != "" {
		if _, err := a.Services.Contacts.Segments.Get(ctx, c.TeamID, in.AudienceID); fault.KindOf(err) == fault.NotFound {
			return ref{}, fault.Invalidf("audience_id", "The `audience_id` field names no segment of this team.")
		}
	}
	at, _, err := a.Services.Contacts.Upsert(ctx, c.TeamID, in.Email, in.change())
	return ref{"contact", at.ID}, err
}

func (a *API) listContacts(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[ContactItem], error) {
	segmentID := c.Query().Get("segment_id")
	if c.Query().Has("segment_id") && !id.Valid(segmentID) {
		return wire.List[ContactItem]{}, fault.New(fault.BadID, "segment_id", "The `segment_id` must be a valid UUID.")
	}
	return a.contactsIn(ctx, c, segmentID)
}

// contactsIn returns a page of a segment's contacts, or of all contacts if segmentID is "".
func (a *API) contactsIn(ctx context.Context, c *wire.Call, segmentID string) (wire.List[ContactItem], error) {
	p, err := c.Page(0)
	if err != nil {
		return wire.List[ContactItem]{}, err
	}
	read := func(p page.Page) ([]contacts.Contact, bool, error) {
		return a.Services.Contacts.List(ctx, c.TeamID, segmentID, p)
	}
	return wire.FullList(p, read, func(c contacts.Contact) string { return c.ID }, contactToItem)
}

func memberToWire(m contacts.Member) contactWire {
	w := contactWire{"contact", contactToItem(m.Contact), map[string]valueWire{}}
	for name, v := range m.Properties {
		w.Properties[name] = valueWire{scalarValue{v}, string(v.Type)}
	}
	return w
}

func (a *API) getContact(ctx context.Context, c *wire.Call, _ wire.None) (contactWire, error) {
	m, err := a.Services.Contacts.Member(ctx, c.TeamID, "", c.Param("contact"))
	return memberToWire(m), err
}

func (a *API) updateContact(ctx context.Context, c *wire.Call, in updateContactIn) (ref, error) {
	name := c.Param("contact")
	change, err := in.change(name)
	if err != nil {
		return ref{}, err
	}
	at, err := a.Services.Contacts.Update(ctx, c.TeamID, name, change)
	return ref{"contact", at.ID}, err
}

func (a *API) deleteContact(ctx context.Context, c *wire.Call, _ wire.None) (contactGone, error) {
	at, err := a.Services.Contacts.Delete(ctx, c.TeamID, c.Param("contact"))
	return contactGone{"contact", at.ID, at.ID, true}, err
}

// contactSegmentWire has redundant fields because different clients read different fields. The field id is the
// segment's ID.
type contactSegmentWire struct {
	Object    string `json:"object"`
	ID        string `json:"id" doc:"The ID of the segment."`
	ContactID string `json:"contact_id"`
	SegmentID string `json:"segment_id"`
	Deleted   bool   `json:"deleted,omitzero"`
}

func (a *API) listContactSegments(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[SegmentItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[SegmentItem]{}, err
	}
	all, more, err := a.Services.Contacts.SegmentsOf(ctx, c.TeamID, c.Param("contact"), p)
	return wire.ListOf(all, more, func(m segments.Membership) SegmentItem {
		return SegmentItem{m.ID, m.Name, wire.DBTime(m.Since)}
	}), err
}

func (a *API) addContactSegment(ctx context.Context, c *wire.Call, _ wire.None) (contactSegmentWire, error) {
	segmentID, err := c.ID("segment_id")
	if err != nil {
		return contactSegmentWire{}, err
	}
	at, err := a.Services.Contacts.AddToSegment(ctx, c.TeamID, c.Param("contact"), segmentID)
	return contactSegmentWire{Object: "contact_segment", ID: segmentID, ContactID: at.ID, SegmentID: segmentID}, err
}

func (a *API) removeContactSegment(ctx context.Context, c *wire.Call, _ wire.None) (contactSegmentWire, error) {
	segmentID, err := c.ID("segment_id")
	if err != nil {
		return contactSegmentWire{}, err
	}
	at, err := a.Services.Contacts.RemoveFromSegment(ctx, c.TeamID, c.Param("contact"), segmentID)
	return contactSegmentWire{"contact_segment", segmentID, at.ID, segmentID, true}, err
}

type contactTopicItem struct {
	ID           string `json:"id"`
	Name         string `json:"name"`
	Description  string `json:"description"`
	Subscription string `json:"subscription" enum:"opt_in,opt_out" doc:"The contact's choice, or the default of the topic."`
}

func (a *API) listContactTopics(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[contactTopicItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[contactTopicItem]{}, err
	}
	all, more, err := a.Services.Contacts.ListSubscriptions(ctx, c.TeamID, c.Param("contact"), p)
	return wire.ListOf(all, more, func(s contacts.TopicSubscription) contactTopicItem {
		return contactTopicItem{s.ID, s.Name, s.Description, string(s.Subscription)}
	}), err
}

type contactTopicsWire struct {
	Object    string             `json:"object"`
	ID        string             `json:"id"`
	ContactID string             `json:"contact_id"`
	Topics    []subscriptionWire `json:"topics" doc:"The topics of the request."`
}

func (a *API) updateContactTopics(ctx context.Context, c *wire.Call, in contactTopicsIn) (contactTopicsWire, error) {
	if in.topics == nil {
		return contactTopicsWire{}, fault.MissingField("topics")
	}
	at, err := a.Services.Contacts.Update(ctx, c.TeamID, c.Param("contact"), contacts.Change{Topics: choices(in.topics)})
	out := contactTopicsWire{"contact_topics", at.ID, at.ID, []subscriptionWire{}}
	for _, t := range in.topics {
		out.Topics = append(out.Topics, subscriptionWire{strings.ToLower(t.ID), t.Subscription})
	}
	return out, err
}
