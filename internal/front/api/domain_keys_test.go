package api

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A rotation returns the keys with their records, and so does the set-up of the domain afterwards. A second rotation is
// refused unless it is an emergency. Rotations by other teams and of unverified domains are refused.
func TestRotateKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		f := newFixtureOn(t, d, Options{}, dns, "")
		acme := f.add(t, "full", `{"name":"shop.example"}`)
		path := "POST /domains/" + acme.ID + "/keys/rotate"
		refused := func(what string, want int, key, body string) {
			t.Helper()
			if code, _, text := f.call(t, key, path, body); code != want {
				t.Errorf("%s: %d %s", what, code, text)
			}
		}
		refused("a domain that is not verified", 422, "full", `{}`)
		dns.install("shop.example", acme)
		f.looked(t, "full", acme.ID, "the domain is verified", isVerified)
		refused("another team", 404, "other", `{}`)
		refused("an unknown field", 422, "full", `{"emergency":"yes"}`)
		for _, body := range []string{`{}`, `{"emergency":true}`} {
			code, _, text := f.call(t, "full", path, body)
			var got struct {
				Object, ID string
				Keys       []map[string]any
			}
			if err := json.Unmarshal([]byte(text), &got); err != nil || code != 200 || got.ID != acme.ID || len(got.Keys) != 4 {
				t.Fatalf("%s: %d %s, %v", body, code, text, err)
			}
			next := got.Keys[2]
			if next["state"] != "next" || next["emergency"] != (body != `{}`) || next["seen_at"] != nil ||
				next["name"] != next["selector"].(string)+"._domainkey.shop.example" || next["advice"] == "" {
				t.Errorf("%v", next)
			}
			refused("a second one", 409, "full", body)
			var setup struct{ Keys []map[string]any }
			_, _, text = f.call(t, "full", "GET /domains/"+acme.ID+"/setup", "")
			if err := json.Unmarshal([]byte(text), &setup); err != nil || !reflect.DeepEqual(setup.Keys, got.Keys) {
				t.Errorf("the setup shows the keys %v, want %v; %v", setup.Keys, got.Keys, err)
			}
		}
	})
}
