package cli

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// happens sends a custom event for the contact that has the given address.
func (d *driver) happens(event, address, payload string) {
	d.t.Helper()
	c, err := d.Contacts.Get(d.t.Context(), d.team, address)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := d.Automations.LoadWaiting(d.t.Context(), d.team, event, c.ID); err != nil {
		d.t.Fatal(err)
	}
	if err := d.DB.Update(d.t.Context(), func(tx *db.Tx) error {
		return d.Automations.OnEvent(d.t.Context(), tx, customevents.Occurrence{TeamID: d.team, Name: event,
			ContactID: c.ID, Address: c.Address, Payload: payload, At: tx.Now()})
	}); err != nil {
		d.t.Fatal(err)
	}
}

// runs waits until an automation has the given number of runs with the given status.
func (d *driver) runs(automationID, status string, n int) {
	d.t.Helper()
	eventually(d.t, fmt.Sprint(n, " runs are ", status), func() bool {
		return d.count(`SELECT COUNT(*) FROM automation_runs WHERE automation_id = $1 AND status = $2
			AND (waits_until > 0 OR status <> 'running')`, db.ID(automationID), status) == n
	})
}

// automate calls all automation operations. The parameter hook is the URL of a test server.
func (d *driver) automate(other *driver, hook string) {
	d.t.Helper()
	segment := d.do("POST", "/segments", `{"name":"Signed up"}`)
	d.do("POST", "/templates", `{"name":"Hello","alias":"hello","subject":"s","html":"<p>{{{A}}}</p>",
		"variables":[{"key":"A","type":"string","fallback_value":"b"}]}`)
	d.do("POST", "/templates/hello/publish", "")
	for i := range 4 {
		d.do("POST", "/contacts", fmt.Sprintf(`{"email":"run%d@one.example","properties":{"plan":"x"}}`, i))
	}
	graph := fmt.Sprintf(`"steps":[{"key":"start","type":"trigger","config":{"event_name":"signup"}},
		{"key":"changed","type":"trigger","config":{"event_name":"postrider:contact.updated"}},
		{"key":"if","type":"condition","config":{"type":"and","rules":[
			{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"x"},
			{"type":"rule","field":"event.total","operator":"gt","value":1}]}},
		{"key":"note","type":"contact_update","config":{"last_name":"Run","properties":{"plan":"y"}}},
		{"key":"add","type":"add_to_segment","config":{"segment_id":%q}},
		{"key":"hello","type":"send_email","config":{"template":{"id":"hello"},"from":"a@acme.example"}},
		{"key":"call","type":"webhook","config":{"url":%q}},
		{"key":"wait","type":"wait_for_event","config":{"event_name":"paid","timeout":"3 days"}},
		{"key":"end","type":"contact_delete","config":{}}],
		"connections":[{"from":"start","to":"if"},{"from":"changed","to":"wait"},
		{"from":"if","to":"note","type":"condition_met"},{"from":"if","to":"wait","type":"condition_not_met"},
		{"from":"note","to":"add"},{"from":"add","to":"hello"},{"from":"hello","to":"call"},{"from":"call","to":"wait"},
		{"from":"wait","to":"end","type":"event_received"}]`, segment, hook)
	id := d.do("POST", "/automations", `{"name":"All","reentry":"once_at_a_time",`+graph+`}`)
	d.do("PATCH", "/automations/"+id, `{"status":"enabled"}`)
	d.do("PATCH", "/automations/"+id, `{"name":"Everything",`+strings.Replace(graph, "3 days", "4 days", 1)+`}`)
	copied := d.do("POST", "/automations/"+id+"/duplicate", "")
	d.do("GET", "/automations/"+id, "")
	d.pages("/automations")
	d.do("GET", "/automations?status=enabled", "")
	d.do("POST", "/automations/"+id+"/simulate", `{"scenario":{"contact":{"email":"a@one.example"},
		"event":{"name":"signup"}}}`)

	d.happens("signup", "run0@one.example", `{"total":5,"by":"run3@one.example"}`)
	d.happens("signup", "run1@one.example", `{"total":1}`)
	d.do("PATCH", "/contacts/run2@one.example", `{"first_name":"x"}`)
	d.do("PATCH", "/contacts/run3@one.example", `{"first_name":"x"}`)
	d.runs(id, "running", 4)
	runs := "/automations/" + id + "/runs"
	d.pages(runs)
	d.do("GET", runs+"/"+d.pages(runs+"?status=running"), "")
	d.do("GET", runs+"?status=running,cancelled,failed", "")
	d.exportsRuns("run1@one.example")
	d.happens("paid", "run1@one.example", "")
	d.runs(id, "completed", 1)
	d.do("DELETE", "/contacts/run2@one.example", "")
	d.erases("run3@one.example")
	d.do("POST", "/automations/"+id+"/stop", "")
	d.do("GET", runs+"?status=cancelled&limit=1", "")
	d.runs(id, "cancelled", 2)
	d.happens("signup", "run0@one.example", "")
	d.do("DELETE", "/automations/"+copied, "")
	d.change(`UPDATE automations SET deleted_at = 1 WHERE id = $1 AND team_id = $2`, db.ID(copied), db.ID(d.team))
	if err := d.Automations.Sweep(d.t.Context()); err != nil {
		d.t.Error(err)
	}
	kept := d.do("POST", "/automations", `{"name":"Kept","status":"enabled","steps":[{"key":"a","type":"trigger",
		"config":{"event_name":"kept"}},{"key":"b","type":"delay","config":{"duration":"1 day"}}],
		"connections":[{"from":"a","to":"b"}]}`)
	d.happens("kept", "run0@one.example", "")
	d.runs(kept, "running", 1)
	d.do("POST", "/automations/"+kept+"/runs/"+d.do("GET", "/automations/"+kept+"/runs", "")+"/cancel", "")
	if _, err := d.Automations.RemoveRuns(d.t.Context(), d.team, time.Now().Add(time.Hour), ""); err != nil {
		d.t.Error(err)
	}
	other.do("POST", "/automations", `{"name":"x","status":"enabled","steps":[{"key":"a","type":"trigger",
		"config":{"event_name":"kept"}}],"connections":[]}`)
}

// exportsRuns checks that the personal data exported for an address includes an automation run.
func (d *driver) exportsRuns(address string) {
	d.t.Helper()
	_, stored := d.ask(d.key, http.MethodGet, "/contacts/"+address+"/export", "")
	var document privacy.Document
	if err := json.Unmarshal([]byte(stored), &document); err != nil || len(document.Automations) != 1 ||
		document.Automations[0].Status != string(automations.Running) || document.Automations[0].Event != "signup" ||
		len(document.Automations[0].Steps) != 3 {
		d.t.Errorf("what is stored about %s: %v %s", address, err, stored)
	}
}

// erases erases an address that occurs in two automation runs: one for the address's own contact and one for another
// contact.
func (d *driver) erases(address string) {
	d.t.Helper()
	a, err := erasure.Parse(address)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		found, err := d.Automations.EraseAddress(d.t.Context(), a, erasure.Scope{Teams: []string{d.team},
			DryRun: dry})
		if err != nil || len(found) != 2 {
			d.t.Errorf("%v, %v", found, err)
		}
	}
}
