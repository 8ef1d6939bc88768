package api

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// No request causes a response with a status of 500 or higher.
func FuzzRequest(f *testing.F) {
	a := newFixture(f, dbtest.SQLite(f), Options{BodyMax: 1 << 20})
	a.verified("example.org")
	seeds := []string{"GET /emails?limit=1", "GET /emails/metrics?start_date=2026-01-01&dimensions=period,domain",
		"GET /suppressions/a%40b?x=%zz",
		"POST /domains {\"name\":\"xn--a.example\"}",
		"PATCH /emails/0199aaaa-0000-7000-8000-000000000000 {\"scheduled_at\":\"tomorrow\"}",
		`POST /emails {"from":"a@example.org","to":"b@example.net","subject":"s","text":"t",` +
			`"headers":{"X-A":"1"},"tags":[{"name":"a","value":"b"}]}`,
		`POST /emails/batch [{"from":"a@example.org","to":"b@example.net","subject":"s","html":"<p>"}]`,
		"DELETE /suppressions/%C3%A9@example.org",
		`POST /suppressions/batch/add {"emails":["a@b.c","A@B.C"]}`, `POST /api-keys {"name":"x","permission":"full_access"}`}
	for _, s := range seeds {
		head, body, _ := strings.Cut(s, " {")
		if strings.Contains(s, " [") {
			head, body, _ = strings.Cut(s, " [")
			body = "[" + body
		} else if body != "" {
			body = "{" + body
		}
		method, target, _ := strings.Cut(head, " ")
		f.Add(method, target, body)
	}
	f.Fuzz(func(t *testing.T, method, target, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://postrider.test/", strings.NewReader(body))
		if err != nil {
			return
		}
		if r.URL, err = r.URL.Parse(target); err != nil || !strings.HasPrefix(r.URL.Path, "/") {
			return
		}
		r.Header.Set("Authorization", "Bearer "+a.keys["full"])
		w := httptest.NewRecorder()
		a.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Errorf("%s %q %q: %d %s\n%s", method, target, body, w.Code, w.Body, a.log)
		}
		a.log.Take()
		if ct := w.Header().Get("Content-Type"); !strings.HasPrefix(ct, "application/json") && w.Code != 200 {
			t.Errorf("%s %q: Content-Type %q", method, target, ct)
		}
	})
}
