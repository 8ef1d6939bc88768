package e2e

import (
	"errors"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/resend/resend-go/v3"
)

// TestOfficialClientSendsEvents calls all custom event operations through the official Go client's generic requests,
// because the client has no methods for custom events. The custom events start an automation and resume its waiting
// run.
func TestOfficialClientSendsEvents(t *testing.T) {
	n := start(t, nil)
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
	type m = map[string]any
	type event struct {
		ID, Name string
		Schema   map[string]string
	}
	var started, ended, got event
	must(http.MethodPost, "events", m{"name": "trial.started", "schema": m{"plan": "string"}}, &started)
	must(http.MethodPost, "events", m{"name": "trial ended/over"}, &ended)
	byName := "events/" + url.PathEscape("trial ended/over")
	must(http.MethodGet, byName, nil, &got)
	if got.ID != ended.ID || got.Schema != nil {
		t.Errorf("by its name: %+v", got)
	}
	must(http.MethodPatch, byName, m{"schema": m{"days": "number"}}, nil)
	must(http.MethodGet, "events/"+ended.ID, nil, &got)
	if got.Schema["days"] != "number" {
		t.Errorf("by its id: %+v", got)
	}
	var list struct{ Data []event }
	must(http.MethodGet, "events?limit=1", nil, &list)
	if len(list.Data) != 1 || list.Data[0].ID != ended.ID {
		t.Errorf("%+v", list)
	}

	var made struct{ ID string }
	must(http.MethodPost, "automations", m{"name": "Trial", "status": "enabled", "steps": []m{
		{"key": "start", "type": "trigger", "config": m{"event_name": "trial.started"}},
		{"key": "wait", "type": "wait_for_event", "config": m{"event_name": "trial ended/over", "timeout": "30 days"}},
		{"key": "note", "type": "contact_update", "config": m{"first_name": m{"var": "event.plan"}}}},
		"connections": []m{{"from": "start", "to": "wait"}, {"from": "wait", "to": "note", "type": "event_received"}}}, &made)
	rita, err := c.Contacts.Create(&resend.CreateContactRequest{Email: "rita@reader.example"})
	if err != nil {
		t.Fatal(err)
	}
	var sent struct{ Object, Event string }
	must(http.MethodPost, "events/send", m{"event": "trial.started", "contact_id": rita.Id, "payload": m{"plan": "pro"}},
		&sent)
	if sent.Object != "event" || sent.Event != "trial.started" {
		t.Errorf("%+v", sent)
	}
	eventually(t, 20*time.Second, "the run waits for the second event", func() bool {
		var waits struct {
			Data []struct{ Waiting struct{ Event string } }
		}
		must(http.MethodGet, "automations/"+made.ID+"/runs", nil, &waits)
		return len(waits.Data) == 1 && waits.Data[0].Waiting.Event == "trial ended/over"
	})
	must(http.MethodPost, "events/send", m{"event": "trial ended/over", "email": "Rita@Reader.example",
		"payload": m{"days": 14}}, nil)
	eventually(t, 20*time.Second, "the run completes", func() bool {
		var runs struct{ Data []struct{ Status string } }
		must(http.MethodGet, "automations/"+made.ID+"/runs", nil, &runs)
		return len(runs.Data) == 1 && runs.Data[0].Status == "completed"
	})
	if at, err := c.Contacts.Get(&resend.GetContactOptions{Id: rita.Id}); err != nil || at.FirstName != "pro" {
		t.Errorf("%+v, %v", at, err)
	}

	for what, body := range map[string]m{
		"a payload against the schema": {"event": "trial.started", "contact_id": rita.Id, "payload": m{"plan": 1}},
		"a system event":               {"event": "resend:contact.created", "contact_id": rita.Id},
		"nobody":                       {"event": "trial.started"},
		"no such contact":              {"event": "trial.started", "contact_id": "0190a5e2-3f62-7cc1-b1d1-0123456789ab"},
	} {
		if err := ask(http.MethodPost, "events/send", body, nil); err == nil || errors.Is(err, resend.ErrRateLimit) {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(http.MethodDelete, "events/"+started.ID, nil, nil)
	if err := ask(http.MethodGet, "events/trial.started", nil, nil); err == nil ||
		err.Error() != "[ERROR]: Event not found" {
		t.Errorf("what was deleted: %v", err)
	}
}
