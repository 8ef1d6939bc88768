package wire

import (
	"context"
	"testing"

	"github.com/postrider/postrider/internal/lib/id"
)

// Served is called for every request, and gets the operation's path instead of the request's.
func TestServed(t *testing.T) {
	t.Parallel()
	var seen []ServedRequest
	emailID := id.New()
	f := newRoute(t, Options{Served: func(r ServedRequest) { seen = append(seen, r) }},
		func(_ context.Context, c *Call, in echo) (echo, error) {
			c.RecordEmails([]StoredEmail{{ID: emailID}})
			return in, nil
		})
	for _, x := range []struct {
		request, route, group string
		status                int
		team, email, parent   string
	}{
		{"POST /test\nTraceparent: 00-a-b-01\n\n{\"text\":\"x\"}", "/test", "test", 200, f.Acme.TeamID, emailID, "00-a-b-01"},
		{"DELETE //api-keys/secret/", "/api-keys/{api_key_id}", "api-keys", 200, f.Acme.TeamID, "", ""},
		{"DELETE /api-keys/x\nAuthorization: sending", "/api-keys/{api_key_id}", "api-keys", 401, f.Acme.TeamID, "", ""},
		{"GET /healthz\nAuthorization: -", "/healthz", "healthz", 200, "", "", ""},
		{"POST /test\nAuthorization: Bearer re_x\n\n{}", "/test", "test", 401, "", "", ""},
		{"GET /nowhere/at/all\nAuthorization: -", "", "unknown", 401, "", "", ""},
		{"PUT /emails", "", "unknown", 405, f.Acme.TeamID, "", ""},
	} {
		seen = nil
		w := f.do(t, x.request)
		if len(seen) != 1 {
			t.Fatalf("%s: %+v", x.request, seen)
		}
		r := seen[0]
		email := ""
		if len(r.Emails) == 1 {
			email = r.Emails[0].ID
		}
		if r.Route != x.route || r.Group != x.group || r.Status != x.status || r.Status != w.Code || r.TeamID != x.team ||
			email != x.email || r.Traceparent != x.parent || r.Start.IsZero() || r.Duration <= 0 || r.ID == "" || r.Streamed {
			t.Errorf("%s: %+v", x.request, r)
		}
	}
}
