package api

import (
	"cmp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// deletedAnyway lists the operations whose response does not depend on whether the resource exists.
var deletedAnyway = []string{"DELETE /segments/{segment_id}", "DELETE /audiences/{audience_id}",
	"DELETE /audiences/{audience_id}/contacts/{contact}"}

// Every operation responds with 404 to IDs that belong to another team.
func TestOtherTeams(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		ids := f.createEverything(t)
		body := `{"name":"x","email":"d@example.org","topics":[],"fallback_value":"x","scheduled_at":"in 2 hours",` +
			`"tls":"enforced","role":"viewer","setup":"records","since":"` +
			time.Now().Add(-time.Hour).Format(time.RFC3339) + `"}`
		asked := 0
		for _, o := range f.Operations() {
			if !strings.Contains(o.Path, "{") {
				continue
			}
			path := pathParam.ReplaceAllStringFunc(o.Path, func(p string) string {
				if ids[p[1:len(p)-1]] == "" {
					t.Errorf("%s: this test makes no %s", o.Path, p)
				}
				return ids[p[1:len(p)-1]]
			})
			asked++
			w := f.do(t, o.Method+" "+path+"\nAuthorization: other\n\n"+cmp.Or(rightBodies[o.Method+" "+o.Path], body))
			if slices.Contains(deletedAnyway, o.Method+" "+o.Path) {
				if w.Code != 200 {
					t.Errorf("%s %s: %d %s", o.Method, path, w.Code, w.Body)
				}
				continue
			}
			wantError(t, w, 404, "not_found")
			if strings.Contains(w.Body.String(), "example") {
				t.Errorf("%s %s tells of another team: %s", o.Method, path, w.Body)
			}
		}
		if asked < 15 {
			t.Errorf("%d operations asked", asked)
		}
		if w := f.do(t, "GET /segments/"+ids["segment_id"]+"/contacts"); !strings.Contains(w.Body.String(), ids["contact"]) {
			t.Errorf("another team deleted a segment or a contact: %d %s", w.Code, w.Body)
		}
		for _, path := range []string{"/emails", "/domains", "/suppressions", "/contacts", "/contacts/imports", "/segments",
			"/audiences", "/topics", "/contact-properties", "/events", "/oauth/grants"} {
			w := f.do(t, "GET "+path+"\nAuthorization: other")
			if w.Body.String() != `{"object":"list","has_more":false,"data":[]}` {
				t.Errorf("%s: %s", path, w.Body)
			}
		}
		if w := f.do(t, "GET /emails/"+ids["email_id"]); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"last_event":"scheduled"`) {
			t.Errorf("the email afterwards: %s", w.Body)
		}
	})
}

// createEverything creates one resource of each kind in the team Acme, and returns a map from path parameter names to
// resource IDs.
func (f *fixture) createEverything(t *testing.T) map[string]string {
	t.Helper()
	create := func(path, body string) string {
		t.Helper()
		w := f.do(t, "POST "+path+"\n\n"+body)
		var made struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code >= 300 {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		return made.ID
	}
	ids := map[string]string{
		"domain_id":   f.verified("example.org").ID,
		"api_key_id":  create("/api-keys", `{"name":"x"}`),
		"webhook_id":  create("/webhooks", `{"endpoint":"https://hooks.example.org","events":["suppression.added"]}`),
		"suppression": create("/suppressions", `{"email":"a@example.org"}`),
		"template":    create("/templates", `{"name":"x","html":"<p>example</p>"}`),
		"version":     "1",
		"import_id":   f.importing(t, "email\na@example.org\n", nil),
		"contact":     create("/contacts", `{"email":"c@example.org"}`),
		"segment_id":  create("/segments", `{"name":"x"}`),
		"erasure_id":  create("/contacts/nobody@example.org/erase", "{}"),
		"topic_id":    create("/topics", `{"name":"x","default_subscription":"opt_in"}`),
		"event":       create("/events", `{"name":"x"}`),
		"user_id":     f.Member(f.Acme.TeamID, "member@example.org", teams.Member).ID,

		"invitation_id": create("/team/invitations", `{"email":"a@example.net","role":"viewer"}`),

		"contact_property_id": create("/contact-properties", `{"key":"x","type":"string"}`),
		"broadcast_id": create("/broadcasts", `{"from":"a@example.org","subject":"s","text":"t","segment_id":"`+
			f.segment("c@example.org")+`"}`),
		"automation_id": create("/automations", `{"name":"x","status":"enabled","connections":[],"steps":`+
			`[{"key":"a","type":"trigger","config":{"event_name":"e"}}]}`),
		"other": "1",
		"email_id": create("/emails", `{"from":"a@example.org","to":"b@example.net","subject":"s","text":"t",`+
			`"scheduled_at":"in 1 hour",`+
			`"attachments":[{"filename":"a","content":"YQ=="}]}`),
	}
	f.do(t, "PATCH /domains/"+ids["domain_id"]+"\n\n"+`{"capabilities":{"receiving":"enabled"}}`)
	f.reported(t, f.Acme.TeamID, ids["domain_id"])
	var reports wire.List[ref]
	if err := json.Unmarshal(f.do(t, "GET /domains/"+ids["domain_id"]+"/reports").Body.Bytes(), &reports); err != nil ||
		len(reports.Data) == 0 {
		t.Fatalf("%+v, error %v", reports, err)
	}
	ids["received_report_id"] = reports.Data[0].ID
	ids["forward_id"] = create("/domains/"+ids["domain_id"]+"/forwards", `{"match":"*","address":"a@example.net"}`)
	var files wire.List[ref]
	if err := json.Unmarshal(f.do(t, "GET /emails/"+ids["email_id"]+"/attachments").Body.Bytes(), &files); err != nil ||
		len(files.Data) != 1 {
		t.Fatalf("%+v, error %v", files, err)
	}
	ids["attachment_id"] = files.Data[0].ID
	f.remember(t)
	f.do(t, "GET /api-keys")
	var logs wire.List[ref]
	if err := json.Unmarshal(f.do(t, "GET /logs").Body.Bytes(), &logs); err != nil || len(logs.Data) != 1 {
		t.Fatalf("%+v, error %v", logs, err)
	}
	ids["log_id"] = logs.Data[0].ID
	var told wire.List[ref]
	if err := json.Unmarshal(f.do(t, "GET /webhooks/"+ids["webhook_id"]+"/events").Body.Bytes(), &told); err != nil ||
		len(told.Data) != 1 {
		t.Fatalf("%+v, error %v", told, err)
	}
	f.do(t, `POST /events/send`+"\n\n"+`{"event":"e","email":"c@example.org"}`)
	var runs wire.List[ref]
	if err := json.Unmarshal(f.do(t, "GET /automations/"+ids["automation_id"]+"/runs").Body.Bytes(), &runs); err != nil ||
		len(runs.Data) != 1 {
		t.Fatalf("%+v, error %v", runs, err)
	}
	ids["run_id"] = runs.Data[0].ID
	ids["approval_id"] = create("/approvals", `{"from":"x@example.org","to":"c@reader.example","subject":"x","text":"x"}`)
	f.grant("full_access")
	var granted wire.List[ref]
	if err := json.Unmarshal(f.do(t, "GET /oauth/grants").Body.Bytes(), &granted); err != nil || len(granted.Data) != 1 {
		t.Fatalf("%+v, error %v", granted, err)
	}
	ids["oauth_grant_id"] = granted.Data[0].ID
	ids["webhook_event_id"] = told.Data[0].ID
	ids["audience_id"] = ids["segment_id"]
	create("/contacts/"+ids["contact"]+"/segments/"+ids["segment_id"], "")
	return ids
}
