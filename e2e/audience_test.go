package e2e

import (
	"strings"
	"testing"

	"github.com/resend/resend-go/v3"
)

// TestOfficialClientUsesContacts calls every operation that the official Go client has for contacts, properties,
// segments, topics and audiences.
func TestOfficialClientUsesContacts(t *testing.T) {
	n := start(t, nil)
	c := client(t, n)
	plan := usesProperties(t, c)
	segment, topic := usesSegmentsAndTopics(t, c)
	contactID := usesContact(t, c, segment, topic)
	listsAndRemovesContacts(t, c, segment, contactID)
	usesAudiences(t, c)
	if gone, err := c.Segments.Remove(segment); err != nil || !gone.Deleted {
		t.Errorf("removed %+v, %v", gone, err)
	}
	if gone, err := c.Topics.Remove(topic); err != nil || !gone.Deleted {
		t.Errorf("removed %+v, %v", gone, err)
	}
	if gone, err := c.ContactProperties.Remove(plan); err != nil || !gone.Deleted {
		t.Errorf("removed %+v, %v", gone, err)
	}
}

// must fails the test if err is not nil.
func must(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// usesProperties creates two properties and returns the id of one.
func usesProperties(t *testing.T, c *resend.Client) string {
	t.Helper()
	plan, err := c.ContactProperties.Create(&resend.CreateContactPropertyRequest{Key: "plan", Type: "string",
		FallbackValue: "free"})
	must(t, "create a property", err)
	_, err = c.ContactProperties.Create(&resend.CreateContactPropertyRequest{Key: "seats", Type: "number"})
	must(t, "create a property without a fallback", err)
	_, err = c.ContactProperties.Update(&resend.UpdateContactPropertyRequest{Id: plan.Id, FallbackValue: "none"})
	must(t, "update a property", err)
	p, err := c.ContactProperties.Get(plan.Id)
	if err != nil || p.Key != "plan" || p.Type != "string" || p.FallbackValue != "none" {
		t.Errorf("the property is %+v, %v", p, err)
	}
	if all, err := c.ContactProperties.List(); err != nil || len(all.Data) != 2 || all.Data[0].Key != "seats" {
		t.Errorf("properties %+v, %v", all, err)
	}
	return plan.Id
}

// usesSegmentsAndTopics creates a segment and a topic and returns both ids.
func usesSegmentsAndTopics(t *testing.T, c *resend.Client) (segmentID, topicID string) {
	t.Helper()
	segment, err := c.Segments.Create(&resend.CreateSegmentRequest{Name: "Customers"})
	if err != nil || segment.Name != "Customers" || segment.Object != "segment" {
		t.Fatalf("%+v, %v", segment, err)
	}
	topic, err := c.Topics.Create(&resend.CreateTopicRequest{Name: "News",
		DefaultSubscription: resend.DefaultSubscriptionOptIn, Description: "Monthly."})
	must(t, "create a topic", err)
	_, err = c.Topics.Update(topic.Id, &resend.UpdateTopicRequest{Name: "Product news"})
	must(t, "update a topic", err)
	if got, err := c.Topics.Get(topic.Id); err != nil || got.Name != "Product news" || got.Description != "Monthly." ||
		got.DefaultSubscription != resend.DefaultSubscriptionOptIn {
		t.Errorf("the topic is %+v, %v", got, err)
	}
	if all, err := c.Topics.List(nil); err != nil || len(all.Data) != 1 {
		t.Errorf("topics %+v, %v", all, err)
	}
	return segment.Id, topic.Id
}

// usesContact creates and changes a contact, and returns its id.
func usesContact(t *testing.T, c *resend.Client, segmentID, topicID string) string {
	t.Helper()
	made, err := c.Contacts.Create(&resend.CreateContactRequest{Email: "rita+1@example.org", FirstName: "Rita",
		Properties: map[string]any{"plan": "pro", "seats": 3}})
	if err != nil || made.Object != "contact" {
		t.Fatalf("%+v, %v", made, err)
	}
	again, err := c.Contacts.Create(&resend.CreateContactRequest{Email: "Rita+1@example.org", LastName: "Ray"})
	if err != nil || again.Id != made.Id {
		t.Errorf("created again, it is %+v, %v", again, err)
	}
	added, err := c.Contacts.Segments.Add(&resend.AddContactSegmentRequest{SegmentId: segmentID,
		Email: "rita+1@example.org"})
	if err != nil || added.Id != segmentID {
		t.Errorf("added %+v, %v", added, err)
	}
	if all, err := c.Contacts.Segments.List(&resend.ListContactSegmentsRequest{ContactId: made.Id}); err != nil ||
		len(all.Data) != 1 || all.Data[0].Name != "Customers" {
		t.Errorf("segments of the contact %+v, %v", all, err)
	}
	if got, err := c.Contacts.Topics.Update(&resend.UpdateContactTopicsRequest{Email: "rita+1@example.org",
		Topics: []resend.TopicSubscriptionUpdate{{Id: topicID, Subscription: "opt_out"}}}); err != nil || got.Id != made.Id {
		t.Errorf("changed topics %+v, %v", got, err)
	}
	if all, err := c.Contacts.Topics.List(made.Id); err != nil || len(all.Data) != 1 ||
		all.Data[0].Subscription != "opt_out" || all.Data[0].Name != "Product news" {
		t.Errorf("topics of the contact %+v, %v", all, err)
	}
	change := &resend.UpdateContactRequest{Email: "rita+1@example.org", FirstName: "Margarita",
		Properties: map[string]any{"seats": nil}}
	change.SetUnsubscribed(true)
	if _, err := c.Contacts.Update(change); err != nil {
		t.Errorf("update: %v", err)
	}
	got, err := c.Contacts.Get(&resend.GetContactOptions{Id: "rita+1@example.org"})
	if err != nil || got.Id != made.Id || got.Email != "rita+1@example.org" || got.FirstName != "Margarita" ||
		got.LastName != "Ray" || !got.Unsubscribed || len(got.Properties) != 1 {
		t.Errorf("the contact is %+v, %v", got, err)
	}
	return made.Id
}

// listsAndRemovesContacts creates a second contact with the deprecated audience field, then removes both contacts.
func listsAndRemovesContacts(t *testing.T, c *resend.Client, segmentID, contactID string) {
	t.Helper()
	legacy, err := c.Contacts.Create(&resend.CreateContactRequest{Email: "old@example.org", AudienceId: segmentID})
	must(t, "create a contact in an audience", err)
	if all, err := c.Contacts.List(&resend.ListContactsOptions{AudienceId: segmentID}); err != nil ||
		len(all.Data) != 2 ||
		all.Data[0].Id != legacy.Id {
		t.Errorf("contacts of the audience %+v, %v", all, err)
	}
	if all, err := c.Contacts.List(&resend.ListContactsOptions{}); err != nil || len(all.Data) != 2 {
		t.Errorf("contacts %+v, %v", all, err)
	}
	if gone, err := c.Contacts.Remove(&resend.RemoveContactOptions{Id: "old@example.org",
		AudienceId: segmentID}); err != nil || !gone.Deleted || gone.Id != legacy.Id {
		t.Errorf("removed %+v, %v", gone, err)
	}
	if left, err := c.Contacts.Segments.Remove(&resend.RemoveContactSegmentRequest{SegmentId: segmentID,
		ContactId: contactID}); err != nil || !left.Deleted || left.Id != segmentID {
		t.Errorf("removed from the segment %+v, %v", left, err)
	}
	if gone, err := c.Contacts.Remove(&resend.RemoveContactOptions{Id: contactID}); err != nil || gone.Id != contactID {
		t.Errorf("removed %+v, %v", gone, err)
	}
	if _, err := c.Contacts.Get(&resend.GetContactOptions{Id: contactID}); err == nil ||
		!strings.Contains(err.Error(), "Contact not found") {
		t.Errorf("a contact that is gone: %v", err)
	}
}

// usesAudiences calls the audience operations; segments were formerly called audiences.
func usesAudiences(t *testing.T, c *resend.Client) {
	t.Helper()
	audiences := c.Audiences //lint:ignore SA1019 older programs call it
	audience, err := audiences.Create(&resend.CreateAudienceRequest{Name: "Registered"})
	must(t, "create an audience", err)
	if got, err := audiences.Get(audience.Id); err != nil || got.Name != "Registered" {
		t.Errorf("the audience is %+v, %v", got, err)
	}
	if all, err := c.Segments.List(); err != nil || len(all.Data) != 2 || all.Data[0].Id != audience.Id {
		t.Errorf("segments %+v, %v", all, err)
	}
	if gone, err := audiences.Remove(audience.Id); err != nil || !gone.Deleted {
		t.Errorf("removed %+v, %v", gone, err)
	}
}
