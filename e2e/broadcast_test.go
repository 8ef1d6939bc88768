package e2e

import (
	"strings"
	"testing"

	"github.com/resend/resend-go/v3"
)

// TestOfficialClientUsesBroadcasts creates, changes, sends, lists and removes broadcasts with the official Go client.
func TestOfficialClientUsesBroadcasts(t *testing.T) {
	n := start(t, nil)
	n.addDomain("acme.example")
	c := client(t, n)
	var segment, contact struct{ ID string }
	n.must("POST", "/segments", `{"name":"Readers"}`, &segment)
	n.must("POST", "/contacts", `{"email":"ann@reader.example","first_name":"Ann","segments":["`+segment.ID+`"]}`,
		&contact)
	made, err := c.Broadcasts.Create(&resend.CreateBroadcastRequest{SegmentId: segment.ID,
		From: "Acme <news@acme.example>", Subject: "News", Name: "Autumn",
		Html: "<p>Dear {{{FIRST_NAME|reader}}}</p>", Text: "Dear {{{FIRST_NAME|reader}}}"})
	if err != nil {
		t.Fatal(err)
	}
	change := &resend.UpdateBroadcastRequest{BroadcastId: made.Id, Subject: "Hello {{{FIRST_NAME}}}"}
	if _, err := c.Broadcasts.Update(change); err != nil {
		t.Fatal(err)
	}
	draft, err := c.Broadcasts.Get(made.Id)
	if err != nil || draft.Name != "Autumn" || draft.Subject != "Hello {{{FIRST_NAME}}}" || draft.Status != "draft" ||
		draft.SegmentId != segment.ID || draft.AudienceId != segment.ID {
		t.Errorf("the draft is %+v, %v", draft, err)
	}
	gone, err := c.Broadcasts.Create(&resend.CreateBroadcastRequest{SegmentId: segment.ID, From: "news@acme.example",
		Subject: "Gone", Text: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := c.Broadcasts.Remove(gone.Id); err != nil || !removed.Deleted {
		t.Errorf("removed %+v, %v", removed, err)
	}
	sent, err := c.Broadcasts.Send(&resend.SendBroadcastRequest{BroadcastId: made.Id})
	if err != nil || sent.Id != made.Id {
		t.Fatalf("sent %+v, %v", sent, err)
	}
	if _, err := c.Broadcasts.Send(&resend.SendBroadcastRequest{BroadcastId: made.Id}); err == nil ||
		!strings.Contains(err.Error(), "Only a broadcast that is draft can be sent") {
		t.Errorf("sent again: %v", err)
	}
	list, err := c.Broadcasts.List()
	if err != nil || len(list.Data) != 1 || list.Data[0].Id != made.Id {
		t.Errorf("the list is %+v, %v", list, err)
	}
	got := n.captured("ann@reader.example")
	if got.Subject != "Hello Ann" || !strings.Contains(got.HTML(), "Dear Ann") {
		t.Errorf("Ann got %q: %s", got.Subject, got.HTML())
	}
}
