package signin

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// Malformed requests are refused and never cause an internal error. The queries and bodies with valid values make sure
// that requests reach the page, instead of being refused for the query or for the team.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", teams.Owner)
		b := x.browser(t).signIn("ada@acme.example")
		own := "team=" + x.Acme.TeamID
		queries := []string{"", "?token=%00&next=%00", "?token=%ff&next=%ff", "?token=x&next=//evil.example&state=%E2%80%AE",
			"?token=" + strings.Repeat("x", 9<<10), "?token=x;next=%zz", "?" + own + "&after=%F0%9F%92%A9&before=x"}
		bodies := []string{"", "%00", "a=%00&team=%ff", "{", `{"token":"\u0000"}`, strings.Repeat("x", 70<<10), own,
			own + "&name=%00", own + "&name=%ff&role=%ff&email=%ff",
			own + "&name=&role=king&email=x&confirm=&password=&code=&daily=-1&decision=maybe",
			own + "&confirm=" + strings.Repeat("x", 60<<10), own + "&" + own + "&role=owner&role=viewer&token=x&token=y"}
		reached := map[string]bool{}
		for _, o := range (&Pages{}).routes() {
			method, path, _ := strings.Cut(o.pattern, " ")
			if path == "/sign-out" {
				continue
			}
			for _, id := range []string{"%00", "%00%ff", "%ff", "x", strings.Repeat("x", 5000), x.Acme.TeamID,
				"%E2%80%AE", "..%2f"} {
				if !strings.Contains(path, "{") && id != "x" {
					continue
				}
				at := strings.NewReplacer("{id}", id, "{token}", id).Replace(path)
				try := func(query, body, kind string) {
					t.Helper()
					r := b.posting(at+query, nil)
					r.Method, r.Body = method, http.NoBody
					if method == "POST" {
						r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), -1
					}
					r.Header.Set("Content-Type", kind)
					b.do(r)
					if b.status >= 500 || b.status == http.StatusTooManyRequests && b.header.Get("Retry-After") != "" {
						t.Fatalf("%s %s%s with %.60q as %q is answered with %d: %s", method, at, query, body, kind, b.status, b.body)
					}
					if b.status != http.StatusBadRequest {
						reached[o.pattern] = true
					}
				}
				for _, query := range queries {
					try(query, own, "application/x-www-form-urlencoded")
				}
				if method == "POST" {
					for _, body := range bodies {
						try("", body, "application/x-www-form-urlencoded")
					}
					for _, kind := range []string{"application/json", "multipart/form-data; boundary=x", "", "/"} {
						try("", own, kind)
						try("", `{"token":"\u0000"}`, kind)
					}
				}
			}
		}
		for _, o := range (&Pages{}).routes() {
			if !reached[o.pattern] && o.pattern != "POST /sign-out" {
				t.Errorf("no request reached %s", o.pattern)
			}
		}
		b.get("/app/account").want(200, "Your account") // the requests were those of a signed-in user
		b.get("/app/people/nothing/here").want(404)
		b.post("/app/people", nil).want(404)
	})
}
