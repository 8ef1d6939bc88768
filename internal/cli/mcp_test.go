package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A node serves MCP at /mcp to clients with an API key, and the request log records the calls and the client.
func TestMCP(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := strings.TrimSpace(p.key("Acme"))
		n := p.start()
		post := func(path, body string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost"+path,
				strings.NewReader(body))
			r.RemoteAddr = "192.0.2.7:99"
			for name, value := range map[string]string{"Authorization": "Bearer " + key, "User-Agent": "agent/1",
				"Content-Type": "application/json", "Accept": "application/json, text/event-stream"} {
				r.Header.Set(name, value)
			}
			w := httptest.NewRecorder()
			n.Handler().ServeHTTP(w, r)
			return w
		}
		for _, path := range []string{"/mcp", "/mcp/", "//mcp"} {
			if w := post(path, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`); w.Code != 200 ||
				!strings.Contains(w.Body.String(), `"name":"explain_delivery"`) {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
		w := post("/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"create_contact",
			"arguments":{"email":"jo@example.net"}}}`)
		if w.Code != 200 || strings.Contains(w.Body.String(), `"isError":true`) {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if found := n.count(`SELECT COUNT(*) FROM audit_log WHERE action = 'contact.created' AND address = '192.0.2.7'
			AND user_agent LIKE 'Postrider-MCP/% agent/1'`); found != 1 {
			t.Errorf("%d entries in the audit log", found)
		}
	})
}

// TestMCPOfCapturedMail checks that MCP says that an email was captured, and does not say that servers accepted it.
func TestMCPOfCapturedMail(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		status, body := n.ask(key, http.MethodPost, "/emails", hello)
		_, emailID, ok := strings.Cut(body, `"id":"`)
		if status != 200 || !ok {
			t.Fatalf("%d %s", status, body)
		}
		emailID, _, _ = strings.Cut(emailID, `"`)
		eventually(t, "the email is captured", func() bool {
			_, body := n.ask(key, http.MethodGet, "/emails/"+emailID, "")
			return strings.Contains(body, `"last_event":"delivered"`)
		})
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"explain_delivery","arguments":{"email_id":"`+
				emailID+`"}}}`))
		for name, value := range map[string]string{"Authorization": "Bearer " + key, "Content-Type": "application/json",
			"Accept": "application/json, text/event-stream"} {
			r.Header.Set(name, value)
		}
		w := httptest.NewRecorder()
		n.Handler().ServeHTTP(w, r)
		if text := w.Body.String(); strings.Contains(text, "servers accepted it") ||
			!strings.Contains(text, "captured by this installation's outbox") {
			t.Errorf("%d %s", w.Code, text)
		}
	})
}
