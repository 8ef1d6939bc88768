package api

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A connected app with limits may write a template but not publish it. An app without limits may publish it.
func TestAppsPublish(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		for name, c := range map[string]struct {
			limits grants.Limits
			status int
		}{
			"free":     {grants.Limits{}, http.StatusOK},
			"approval": {grants.Limits{Approval: true}, http.StatusForbidden},
			"numbers":  {grants.Limits{Emails: 100}, http.StatusForbidden},
		} {
			app, token := f.Connect(f.Acme, "templates:write templates:read", c.limits)
			f.keys[name] = token
			status, _, text := f.call(t, name, "POST /templates", `{"name":"`+name+`","alias":"`+name+`","html":"<p>Hi</p>"}`)
			if status != http.StatusCreated && status != http.StatusOK {
				t.Fatalf("%s writes: %d %s", name, status, text)
			}
			status, _, text = f.call(t, name, "POST /templates/"+name+"/publish", "")
			if status != c.status || status == http.StatusForbidden && (!strings.Contains(text, `"invalid_permission"`) ||
				!strings.Contains(text, "does not publish templates")) {
				t.Errorf("%s publishes: %d %s", name, status, text)
			}
			published := f.Count(`SELECT COUNT(*) FROM templates WHERE alias = $1 AND published_id IS NOT NULL`, name)
			if (published == 1) != (c.status == http.StatusOK) {
				t.Errorf("%s: %d published", name, published)
			}
			// The limit applies as soon as it is set, and only as long as it is set.
			f.Limit(app, grants.Limits{})
			if status, _, text := f.call(t, name, "POST /templates/"+name+"/publish", ""); status != http.StatusOK {
				t.Errorf("%s publishes without limits: %d %s", name, status, text)
			}
		}
	})
}
