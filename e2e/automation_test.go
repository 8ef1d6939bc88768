package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/resend/resend-go/v3"
)

// step, connection and automation are JSON objects in the API.
type (
	step struct {
		Key    string         `json:"key"`
		Type   string         `json:"type"`
		Config map[string]any `json:"config"`
	}
	connection struct {
		From string `json:"from"`
		To   string `json:"to"`
		Type string `json:"type,omitempty"`
	}
	automation struct {
		ID          string       `json:"id,omitempty"`
		Name        string       `json:"name,omitempty"`
		Status      string       `json:"status,omitempty"`
		Steps       []step       `json:"steps,omitempty"`
		Connections []connection `json:"connections,omitempty"`
	}
)

// TestOfficialClientRunsAutomations calls all automation operations through the official Go client. This version of the
// client has no methods for automations, so the test passes API paths to its generic requests.
func TestOfficialClientRunsAutomations(t *testing.T) {
	n := start(t, nil)
	n.addDomain("acme.example")
	c := client(t, n)
	ask := func(method, path string, body, into any) error {
		t.Helper()
		r, err := c.NewRequest(t.Context(), method, path, body)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Perform(r, into)
		return err
	}
	must := func(method, path string, body, into any) {
		t.Helper()
		if err := ask(method, path, body, into); err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
	}
	text, err := c.Templates.Create(&resend.CreateTemplateRequest{Name: "Hello", Alias: "hello",
		From: "Acme <hello@acme.example>", Subject: "Hello", Html: "<p>Hello</p>"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Templates.Publish(text.Id); err != nil {
		t.Fatal(err)
	}
	graph := automation{Name: "Welcome", Steps: []step{
		{"start", "trigger", map[string]any{"event_name": "resend:contact.created"}},
		{"greet", "send_email", map[string]any{"template": map[string]any{"id": "hello"}}},
		{"wait", "delay", map[string]any{"duration": "30 days"}},
	}, Connections: []connection{{From: "start", To: "greet"}, {From: "greet", To: "wait"}}}
	var made, got, copied, stopped automation
	must(http.MethodPost, "automations", graph, &made)
	must(http.MethodPatch, "automations/"+made.ID, automation{Status: "enabled"}, nil)
	must(http.MethodGet, "automations/"+made.ID, nil, &got)
	if got.Status != "enabled" || len(got.Steps) != 3 || got.Connections[1].Type != "default" {
		t.Errorf("%+v", got)
	}
	if _, err := c.Contacts.Create(&resend.CreateContactRequest{Email: "ann@reader.example"}); err != nil {
		t.Fatal(err)
	}
	type run struct {
		ID, Status string
		Steps      []struct {
			Key, Status string
			Output      map[string]any
		}
	}
	var list struct{ Data []run }
	var one run
	eventually(t, 20*time.Second, "the run waits for thirty days", func() bool {
		must(http.MethodGet, "automations/"+made.ID+"/runs?status=running,completed", nil, &list)
		if len(list.Data) != 1 {
			return false
		}
		must(http.MethodGet, "automations/"+made.ID+"/runs/"+list.Data[0].ID, nil, &one)
		return len(one.Steps) == 3 && one.Steps[2].Status == "waiting"
	})
	emailID, _ := one.Steps[1].Output["email_id"].(string)
	if e := n.awaitEvent(c, emailID, "delivered"); len(e.To) != 1 || e.To[0] != "ann@reader.example" {
		t.Errorf("%+v of the run %+v", e, one)
	}
	must(http.MethodPost, "automations/"+made.ID+"/duplicate", nil, &copied)
	must(http.MethodPost, "automations/"+made.ID+"/stop", nil, &stopped)
	must(http.MethodGet, "automations/"+made.ID+"/runs?status=cancelled", nil, &list)
	if stopped.Status != "disabled" || len(list.Data) != 1 || list.Data[0].Status != "cancelled" {
		t.Errorf("%+v, %+v", stopped, list)
	}
	var all struct{ Data []automation }
	must(http.MethodGet, "automations?status=disabled", nil, &all)
	if len(all.Data) != 2 || all.Data[0].ID != copied.ID || all.Data[0].Name != "Welcome (copy)" {
		t.Errorf("%+v", all)
	}
	must(http.MethodDelete, "automations/"+made.ID, nil, nil)
	if err := ask(http.MethodGet, "automations/"+made.ID, nil, nil); err == nil ||
		err.Error() != "[ERROR]: Automation not found" {
		t.Errorf("what was deleted: %v", err)
	}
}
