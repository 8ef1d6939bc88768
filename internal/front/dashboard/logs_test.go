package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// The log shows requests with their bodies and leads to the email that a request made.
func TestLogs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Admin)
		email := b.send("laura@example.org", "Invoice <1>")
		b.eventually("the request is logged", func() bool {
			_, page := v.get("/app/logs?method=POST&path=/emails")
			return strings.Contains(page, "POST /emails")
		})
		page := v.shows("/app/logs?method=POST&path=/emails&status=2xx&in=24h", 200, "POST /emails", "production", "Clear")
		path := regexp.MustCompile(`/app/logs/[0-9a-f-]{36}`).FindString(page)
		v.shows(path, 200, "200 OK", "Invoice \\u003c1\\u003e", `href="/app/emails/`+email+`"`, "production")
		v.shows("/app/logs?status=5xx", 200, "No request matches", "1 filter is set.")
		v.shows("/app/logs?status=teapot", 422, "4xx")
		v.shows("/app/logs?method=BREW", 422, "method")
		v.shows("/app/logs?key=x", 200, "No request matches")
		for _, path := range []string{"/app/logs?path=%00", "/app/logs/export?path=%ff", "/app/domains?q=%00",
			"/app/settings/audit?action=%00"} {
			v.shows(path, 400, "no text")
		}

		// A viewer may not send emails, so the bodies of a request that sends one stay hidden.
		if page := b.visitor(teams.Viewer).shows(path, 200,
			"You may not read the bodies"); strings.Contains(page, "Invoice") {
			t.Errorf("a viewer reads the body of a request that sends an email:\n%s", page)
		}
		b.visitorOf(b.other.TeamID, teams.Owner).shows(path, 404)
	})
}

// An export has the columns and the rows of the API's, and the same scope. It is recorded in the audit log.
func TestExports(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		b.send("laura@example.org", "=1+1")
		v := b.visitor(teams.Viewer)
		b.eventually("the request is logged", func() bool {
			_, page := v.get("/app/logs")
			return strings.Contains(page, "POST /emails")
		})
		for path, want := range map[string]string{
			"/app/emails/export":                          "created_at,scheduled_at,from,recipient,",
			"/app/logs/export?method=POST&path=%2Femails": "created_at,method,endpoint,response_status,",
		} {
			r, err := http.NewRequestWithContext(t.Context(), "GET", b.url+path, nil)
			b.must(err)
			w, err := v.c.Do(r)
			b.must(err)
			w.Body.Close()
			if h := w.Header; w.StatusCode != 200 || !strings.HasPrefix(h.Get("Content-Type"), "text/csv") ||
				!strings.HasPrefix(h.Get("Content-Disposition"), "attachment; filename=") || h.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %d %v", path, w.StatusCode, h)
			}
			status, text := v.get(path)
			if lines := strings.Split(text, "\r\n"); status != 200 || !strings.HasPrefix(text, want) || len(lines) != 3 {
				t.Errorf("%s: %d\n%s", path, status, text)
			}
		}
		if _, text := v.get("/app/emails/export"); !strings.Contains(text, ",'=1+1,") {
			t.Errorf("a formula is not quoted:\n%s", text)
		}
		if _, text := v.get("/app/emails/export?formulas=keep"); !strings.Contains(text, ",=1+1,") {
			t.Errorf("a formula is quoted against the request:\n%s", text)
		}
		if _, text := v.get("/app/emails/export?status=delivered&in=24h"); !strings.HasPrefix(text, "created_at,") {
			t.Errorf("the export of a filter:\n%s", text)
		}
		v.shows("/app/emails/export?format=xlsx", 422, "format")
		for _, path := range []string{"/app/emails", "/app/emails/export", "/app/receiving", "/app/logs",
			"/app/logs/export"} {
			v.shows(path+"?in=yesterday", 422, "cannot be read")
		}
		v.shows("/app/emails?in=24h", 200, `href="/app/emails/export?in=24h"`)
		names := b.auditNames()
		for _, action := range []string{"emails.exported", "logs.exported"} {
			if !strings.Contains(names, `"`+action+`"`) {
				t.Errorf("the audit log lacks %s: %s", action, names)
			}
		}
	})
}
