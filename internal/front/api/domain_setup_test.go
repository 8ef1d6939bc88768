package api

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A team reads and changes the set-up of its domains. The public field `records` is that of the chosen set-up.
func TestDomainSetup(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixtureOn(t, d, Options{}, newZone(), "")
		dom := f.add(t, "full", `{"name":"mail.setup.example"}`)
		at := "/domains/" + dom.ID + "/setup"
		type answer struct {
			setupWire
			Keys []struct{ Selector string } `json:"keys"` // instead of the field with times, which are only written
		}
		read := func(request, body string) (v answer) {
			t.Helper()
			w := f.do(t, request+"\nAuthorization: full\n\n"+body)
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || w.Code != 200 {
				t.Fatalf("%s: %d %s", request, w.Code, w.Body)
			}
			return v
		}
		v := read("GET "+at, "")
		if v.Setup != "records" || v.FormerSetup != nil || len(v.Setups) != 3 || len(v.Records) != 4 ||
			len(v.Keys) != 2 || !v.Setups[1].Available || v.Setups[1].Reason != nil || v.Records[0].FullName != "send.mail.setup.example" {
			t.Errorf("a new domain has %+v", v)
		}
		v = read("PUT "+at, `{"setup":"cname"}`)
		if v.Setup != "cname" || v.Status != "pending" || len(v.Records) != 3 ||
			len(v.Keys) != 1 || v.Keys[0].Selector != "s1" ||
			!strings.HasSuffix(v.Records[1].Value, ".s1.dns.postrider.test") {
			t.Errorf("after the change it has %+v", v)
		}
		if _, shown, _ := f.call(t, "full", "GET /domains/"+dom.ID, ""); len(shown.Records) != 3 ||
			shown.record("DKIM", "CNAME") != "pending" {
			t.Errorf("the domain shows %+v", shown)
		}
		if again := read("PUT "+at, `{"setup":"cname"}`); again.Records[1].Value != v.Records[1].Value {
			t.Errorf("a second request changes %s to %s", v.Records[1].Value, again.Records[1].Value)
		}
		for _, c := range []struct {
			request, body, name, text string
			code                      int
		}{
			{"PUT " + at + "\nAuthorization: full", `{"setup":"mx"}`, "validation_error", "`setup`", 422},
			{"PUT " + at + "\nAuthorization: full", `{"setup":null}`, "", "setup", 422},
			{"PUT " + at + "\nAuthorization: full", `{}`, "", "`setup`", 422},
			{"PUT " + at + "\nAuthorization: full", `{"setup":["cname"]}`, "", "setup", 422},
			{"PUT " + at + "\nAuthorization: other", `{"setup":"records"}`, "not_found", "", 404},
			{"GET " + at + "\nAuthorization: other", "", "not_found", "", 404},
			{"PUT " + at + "\nAuthorization: sending", `{"setup":"records"}`, "restricted_api_key", "", 401},
			{"PUT /domains/x/setup\nAuthorization: full", `{"setup":"records"}`, "", "UUID", 422},
		} {
			w := f.do(t, c.request+"\n\n"+c.body)
			if text := w.Body.String(); w.Code != c.code && !(c.code == 422 && w.Code == 400) ||
				!strings.Contains(text, c.name) || !strings.Contains(text, c.text) {
				t.Errorf("%s %s: %d %s", c.request, c.body, w.Code, text)
			}
		}
		claim := f.do(t, "POST /domains/claim\nAuthorization: other\n\n"+`{"name":"mail.setup.example"}`)
		var made struct {
			DomainID string `json:"domain_id"`
		}
		if err := json.Unmarshal(claim.Body.Bytes(), &made); err != nil || made.DomainID == "" {
			t.Fatalf("claim: %d %s", claim.Code, claim.Body)
		}
		w := f.do(t, "PUT /domains/"+made.DomainID+"/setup\nAuthorization: other\n\n"+`{"setup":"cname"}`)
		if w.Code != 422 || !strings.Contains(w.Body.String(), "claimed from another team") {
			t.Errorf("a claimed domain: %d %s", w.Code, w.Body)
		}
	})
}
