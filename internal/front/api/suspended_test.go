package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A suspended team can read its emails, broadcasts and automations, and can stop them. All other operations are refused
// with suspended_api_key.
func TestSuspendedTeam(t *testing.T) {
	t.Parallel()
	stops := map[string]bool{"POST /emails/{email_id}/cancel": true, "POST /broadcasts/{broadcast_id}/pause": true,
		"POST /broadcasts/{broadcast_id}/cancel": true, "POST /automations/{automation_id}/stop": true}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		allowed := 0
		for _, o := range f.Operations() {
			if o.Scope == wire.Open {
				continue
			}
			name := o.Method + " " + o.Path
			reads := o.Method == http.MethodGet && (o.Path == "/emails" || strings.HasPrefix(o.Path, "/emails/") &&
				!strings.HasPrefix(o.Path, "/emails/receiving") || o.Path == "/broadcasts" ||
				strings.HasPrefix(o.Path, "/broadcasts/") || o.Path == "/automations" ||
				strings.HasPrefix(o.Path, "/automations/") && o.Path != "/automations/signing-secret")
			w := f.do(t, o.Method+" "+withIDs(o.Path)+"\nAuthorization: suspended\n\n{}")
			if !reads && !stops[name] {
				wantError(t, w, 403, "suspended_api_key")
				continue
			}
			allowed++
			if w.Code == http.StatusForbidden {
				t.Errorf("%s is answered with %d %s", name, w.Code, w.Body)
			}
		}
		if allowed < 15 {
			t.Errorf("a suspended team may use only %d operations", allowed)
		}
		wantError(t, f.do(t, "GET /nothing\nAuthorization: suspended"), 403, "suspended_api_key")
		wantError(t, f.do(t, "DELETE /emails\nAuthorization: suspended"), 403, "suspended_api_key")
	})
}

// A suspended team can cancel a scheduled email and a broadcast that the suspension has paused.
func TestSuspendedTeamStops(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("acme.example")
		create := func(path, body string) string {
			t.Helper()
			var made struct {
				ID string `json:"id"`
			}
			w := f.do(t, "POST "+path+"\n\n"+body)
			if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code >= 300 {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			return made.ID
		}
		scheduled := create("/emails", `{"from":"a@acme.example","to":"b@example.net","subject":"s","text":"t",
			"scheduled_at":"in 1 hour"}`)
		broadcast := create("/broadcasts", `{"from":"a@acme.example","subject":"s","text":"t","send":true,
			"segment_id":"`+f.segment("b@example.net")+`"}`)
		f.Must(f.Services.Teams.SetSuspended(t.Context(), f.Acme.TeamID, true))
		w := f.do(t, "GET /broadcasts/"+broadcast+"\nAuthorization: full")
		if text := w.Body.String(); w.Code != 200 || !strings.Contains(text, `"paused"`) ||
			!strings.Contains(text, `"team_suspended"`) {
			t.Errorf("%d %s", w.Code, text)
		}
		for _, path := range []string{"/emails/" + scheduled + "/cancel", "/broadcasts/" + broadcast + "/cancel"} {
			if w := f.do(t, "POST "+path+"\nAuthorization: full"); w.Code != 200 {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		wantError(t, f.do(t, "POST /broadcasts/"+broadcast+"/resume\nAuthorization: full"), 403, "suspended_api_key")
		wantError(t, f.do(t, "POST /emails/"+id.New()+"/share\nAuthorization: full"), 403, "suspended_api_key")
	})
}
