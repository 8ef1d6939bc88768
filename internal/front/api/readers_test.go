package api

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/netguard"
)

// as contains the Authorization header of a request that uses the access token from [fixture.grant].
const as = "\nAuthorization: granted\n\n"

// created sends a request that creates an object, and returns the object's ID.
func (f *fixture) created(t *testing.T, request string) string {
	t.Helper()
	w := f.do(t, request)
	var made ref
	if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code/100 != 2 || made.ID == "" {
		t.Fatalf("%s: %d %s", request, w.Code, w.Body)
	}
	return made.ID
}

// logged returns the ids of all entries in the request log, by method and path.
func (f *fixture) logged(t *testing.T) map[string]string {
	t.Helper()
	var list struct {
		Data []struct{ ID, Method, Endpoint string }
	}
	if err := json.Unmarshal(f.do(t, "GET /logs?limit=100").Body.Bytes(), &list); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, e := range list.Data {
		ids[e.Method+" "+e.Endpoint] = e.ID
	}
	return ids
}

// Actors that may not change webhooks and automations do not see the credentials in them: the values of header fields
// and the queries of URLs. The request log contains these credentials for no reader.
func TestReadersSeeNoCredentials(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusTeapot)
		}))
		defer receiver.Close()
		f := newFixtureWith(t, d, Options{}, testnode.Options{Guard: netguard.Options{AllowLoopback: true}})
		f.remember(t)
		secrets := []string{"h3ader", "qu3ry", "4nother"}
		none := func(what, text string) {
			t.Helper()
			for _, secret := range secrets {
				if strings.Contains(text, secret) {
					t.Errorf("%s contains %s:\n%s", what, secret, text)
				}
			}
		}
		endpoint := f.created(t, "POST /webhooks\n\n"+
			`{"endpoint":"https://one.example/hook?key=4nother#frag","events":["email.sent"]}`)
		steps := `"steps":[{"key":"start","type":"trigger","config":{"event_name":"signed.up"}},
			{"key":"post","type":"webhook","config":{"url":"` + receiver.URL + `/hook?key=qu3ry",
				"headers":{"X-Source":"h3ader"},"payload":{"url":"https://example.net/?page=1"}}}],
			"connections":[{"from":"start","to":"post"}]`
		automation := f.created(t, "POST /automations\n\n"+`{"name":"Posts","status":"enabled",`+steps+`}`)
		f.created(t, "POST /contacts\n\n"+`{"email":"ann@example.net"}`)
		f.do(t, "POST /events/send\n\n"+`{"event":"signed.up","email":"ann@example.net","payload":{}}`)
		f.goOn()
		var runs struct{ Data []ref }
		if err := json.Unmarshal(f.do(t, "GET /automations/"+automation+"/runs").Body.Bytes(), &runs); err != nil ||
			len(runs.Data) != 1 {
			t.Fatalf("runs %+v, %v", runs, err)
		}
		scenario := `{"scenario":{"contact":{"email":"ann@example.net"},"event":{"name":"signed.up","payload":{}}}}`
		requests := []string{"GET /webhooks", "GET /automations/" + automation,
			"GET /automations/" + automation + "/runs/" + runs.Data[0].ID,
			"POST /automations/" + automation + "/simulate"}
		ask := func(request, head string) string {
			t.Helper()
			if strings.HasPrefix(request, "POST") {
				head += scenario
			}
			w := f.do(t, request+head)
			if w.Code != 200 {
				t.Fatalf("%s: %d %s", request, w.Code, w.Body)
			}
			return w.Body.String()
		}

		f.grant("webhooks:read automations:read")
		for _, request := range requests {
			text := ask(request, as)
			none("the reader's "+request, text)
			if host := "one.example/hook"; request == requests[0] && !strings.Contains(text, host) {
				t.Errorf("the reader's %s does not say %s", request, host)
			}
		}
		if text := ask(requests[1], as); !strings.Contains(text, "X-Source") || !strings.Contains(text, "page=1") ||
			!strings.Contains(text, receiver.URL+"/hook?[redacted]") {
			t.Errorf("the reader sees %s", text)
		}
		for i, request := range requests {
			text := ask(request, "\n\n")
			if want := []string{"4nother", "h3ader", "qu3ry", "h3ader"}[i]; !strings.Contains(text, want) {
				t.Errorf("with all scopes %s does not contain %s:\n%s", request, want, text)
			}
		}
		f.grant("webhooks:write webhooks:read automations:write automations:read")
		if text := ask(requests[0], as) + ask(requests[1], as); !strings.Contains(text, "4nother") ||
			!strings.Contains(text, "h3ader") || !strings.Contains(text, "qu3ry") {
			t.Errorf("with the scopes for writing one sees %s", text)
		}
		f.do(t, "PATCH /webhooks/"+endpoint+"\n\n"+`{"endpoint":"https://one.example/hook?key=4nother"}`)
		f.do(t, "PATCH /automations/"+automation+"\n\n{"+steps+"}")

		rows, err := d.Query(t.Context(), `SELECT endpoint || ' ' || request_body || ' ' || response_body
			FROM request_logs`)
		kept, err := db.Collect(rows, err, func(r db.Row) (text string, err error) {
			err = r.Scan(&text)
			return text, err
		})
		if err != nil || len(kept) < 14 {
			t.Fatalf("%d entries, %v", len(kept), err)
		}
		for _, text := range kept {
			none("the request log", text)
		}
	})
}

// An actor reads the bodies of a logged request only if it has the scope of the logged operation. Bodies of requests
// about approvals are not stored.
func TestLogBodiesNeedTheirScope(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		f.verified("example.org")
		email := f.created(t, "POST /emails\n\n"+
			`{"from":"a@example.org","to":"ann@example.net","subject":"confidential","text":"t"}`)
		f.do(t, "GET /emails/"+email)
		f.created(t, "POST /contacts\n\n"+`{"email":"ann@example.net","first_name":"confidential"}`)
		f.do(t, "GET /contacts/ann@example.net")
		approval := f.created(t, "POST /approvals\n\n"+
			`{"from":"a@example.org","to":"ann@example.net","subject":"confidential","text":"t"}`)
		f.do(t, "GET /approvals/"+approval)
		f.do(t, "GET /approvals")
		f.do(t, "POST /approvals/"+approval+"/reject\n\n"+`{"reason":"confidential"}`)
		f.do(t, "POST /approvals\n\n"+`{"from":"a@example.org","to":"ann@example.net","subject":"confidential"}`) // refused
		f.do(t, "POST /no-such-operation\n\n"+`{"text":"confidential"}`)
		ids := f.logged(t)
		if len(ids) < 9 {
			t.Fatalf("logged: %v", ids)
		}

		readable := func(head string) (some []string) {
			t.Helper()
			for request, id := range ids {
				w := f.do(t, "GET /logs/"+id+head)
				var entry struct{ RequestBody, ResponseBody any }
				if err := json.Unmarshal([]byte(strings.ReplaceAll(w.Body.String(), "_body", "Body")), &entry); err != nil ||
					w.Code != 200 {
					t.Fatalf("%s: %d %s, %v", request, w.Code, w.Body, err)
				}
				if entry.RequestBody != nil || entry.ResponseBody != nil {
					some = append(some, request)
				} else if strings.Contains(w.Body.String(), "confidential") {
					t.Errorf("%s: %s", request, w.Body)
				}
			}
			slices.Sort(some)
			return some
		}
		send, get := "POST /emails", "GET /emails/"+email
		add, read := "POST /contacts", "GET /contacts/ann@example.net"
		if words := grants.DescribeScopes(teams.NewScopes(teams.LogsRead), false); len(words) != 1 ||
			!strings.Contains(words[0], "content of those requests that this app itself may make") {
			t.Errorf("the consent page says %q", words)
		}
		for _, x := range []struct {
			scopes string
			want   []string
		}{
			{"logs:read", nil},
			{"logs:read emails:send", []string{send}},
			{"logs:read emails:read contacts:read", []string{read, get}},
			{"logs:read contacts:write approvals:read approvals:request", []string{add}},
			{"full_access", []string{read, get, add, send}},
		} {
			f.grant(x.scopes)
			if got := readable(as); !slices.Equal(got, x.want) {
				t.Errorf("with %s the bodies of %v can be read, want %v", x.scopes, got, x.want)
			}
		}
		if got, want := readable(""), []string{read, get, add, send, "POST /no-such-operation"}; !slices.Equal(got, want) {
			t.Errorf("with a key the bodies of %v can be read, want %v", got, want)
		}
		if n := f.Count(`SELECT COUNT(*) FROM request_logs WHERE endpoint LIKE '/approvals%' AND
			(request_body <> '' OR response_body <> '')`); n != 0 {
			t.Errorf("%d bodies of requests about approvals are stored", n)
		}
	})
}
