package e2e

import (
	"strings"
	"testing"

	"github.com/resend/resend-go/v3"
)

// TestOfficialClientUsesTemplates creates, publishes, sends, changes, duplicates and deletes a template with the
// official Go client.
func TestOfficialClientUsesTemplates(t *testing.T) {
	n := start(t, nil)
	n.addDomain("acme.example")
	c := client(t, n)
	made, err := c.Templates.Create(&resend.CreateTemplateRequest{Name: "Order", Alias: "order",
		From: "Acme <orders@acme.example>", Subject: "{{{ITEM}}} is on its way", ReplyTo: "help@acme.example",
		Html: "<p>{{{ITEM}}} for {{{PRICE}}}</p>", Variables: []*resend.TemplateVariable{
			{Key: "ITEM", Type: resend.VariableTypeString},
			{Key: "PRICE", Type: resend.VariableTypeNumber, FallbackValue: 9.5}}})
	if err != nil || made.Object != "template" {
		t.Fatalf("%+v, %v", made, err)
	}
	bob := func() *resend.SendEmailRequest {
		return &resend.SendEmailRequest{To: []string{"bob@example.net"}, Template: &resend.EmailTemplate{Id: "order",
			Variables: map[string]any{"ITEM": "Tea"}}}
	}
	if _, err := c.Emails.Send(bob()); err == nil || !strings.Contains(err.Error(), "has not been published") {
		t.Errorf("a draft is sent: %v", err)
	}
	if _, err := c.Templates.Publish("order"); err != nil {
		t.Fatal(err)
	}
	sent, err := c.Emails.Send(bob())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Templates.Update(made.Id, &resend.UpdateTemplateRequest{Name: "Orders", Subject: "New"}); err != nil {
		t.Fatal(err)
	}
	got, err := c.Templates.Get("order")
	if err != nil || got.Name != "Orders" || got.Subject != "New" || got.Status != "published" || got.PublishedAt == "" ||
		got.Html != "<p>{{{ITEM}}} for {{{PRICE}}}</p>" || len(got.Variables) != 2 || got.Variables[1].FallbackValue != 9.5 {
		t.Errorf("changed, it is %+v, %v", got, err)
	}
	twin, err := c.Templates.Duplicate("order")
	if err != nil || twin.Id == made.Id {
		t.Fatalf("%+v, %v", twin, err)
	}
	list, err := c.Templates.List(&resend.ListOptions{})
	if err != nil || len(list.Data) != 2 || list.Data[0].Name != "Orders (Copy)" || list.Data[0].Status != "draft" {
		t.Errorf("the list is %+v, %v", list, err)
	}
	if gone, err := c.Templates.Remove("order"); err != nil || !gone.Deleted || gone.Id != made.Id {
		t.Errorf("removed %+v, %v", gone, err)
	}
	e := n.awaitEvent(c, sent.Id, "delivered")
	if e.From != "Acme <orders@acme.example>" || e.Subject != "Tea is on its way" || e.Html != "<p>Tea for 9.5</p>" {
		t.Errorf("sent %+v", e)
	}
	if _, err := c.Emails.Send(bob()); err == nil || !strings.Contains(err.Error(), "Template not found") {
		t.Errorf("by a deleted template: %v", err)
	}
}
