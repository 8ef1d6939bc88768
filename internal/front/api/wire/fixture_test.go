package wire

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire/wiretest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is a server with a few operations and two teams. The team Acme has the API keys "full" and "sending", and the
// other team has the API key "other".
type fixture struct {
	*testnode.Node
	*Server
	keys map[string]string // API tokens by key name
	log  *testnode.Logged
}

// newFixture returns a fixture with the given additional operations.
func newFixture(t testing.TB, o Options, operations ...Operation) *fixture {
	t.Helper()
	n := testnode.Bare(t, dbtest.SQLite(t), testnode.Options{})
	f := &fixture{Node: n, log: &testnode.Logged{}, keys: map[string]string{}}
	n.Acme, f.keys["full"] = n.Team("full")
	_, f.keys["sending"] = n.Key(n.Acme.TeamID, teams.NewKey{Name: "sending", Permission: teams.SendingAccess})
	n.Other, f.keys["other"] = n.Team("other")
	empty := Endpoint(func(context.Context, *Call, None) (None, error) { return None{}, nil })
	o.Operations = append([]Operation{
		{Method: http.MethodGet, Path: "/api-keys", Scope: teams.KeysRead, Status: 200, Handler: empty},
		{Method: http.MethodDelete, Path: "/api-keys/{api_key_id}", Scope: teams.KeysWrite, Status: 200, Handler: empty},
		{Method: http.MethodPost, Path: "/emails", Scope: teams.EmailsSend, Status: 200, Handler: empty},
		{Method: http.MethodGet, Path: "/healthz", Scope: Open, Status: 200, Handler: empty},
	}, operations...)
	o.Teams, o.Audit, o.Log = n.Teams, n.Audit, cmp.Or(o.Log, slog.New(slog.NewTextHandler(f.log, nil)))
	f.Server = New(o)
	return f
}

// newRoute returns a fixture with an additional operation, POST /test, which calls do.
func newRoute[In, Out any](t testing.TB, o Options, do func(context.Context, *Call, In) (Out, error)) *fixture {
	t.Helper()
	return newFixture(t, o, Operation{Method: http.MethodPost, Path: "/test", Scope: teams.LogsRead, Status: 200,
		Handler: Endpoint(do)})
}

// do sends a request in the format of wiretest.Do.
func (f *fixture) do(t testing.TB, text string) *httptest.ResponseRecorder {
	t.Helper()
	return wiretest.Do(t, f, f.keys, text)
}

func wantError(t testing.TB, w *httptest.ResponseRecorder, status int, name string) {
	t.Helper()
	wiretest.WantError(t, w, status, name)
}
