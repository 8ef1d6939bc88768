package api

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

const scopesFile = "testdata/scopes.txt"

// bearing returns a handler that adds the token to each request and passes the request to the API.
func (f *fixture) bearing(token string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+token)
		f.ServeHTTP(w, r)
	})
}

// Every kind of actor requests every operation, and the results match the table in testdata. Run the test with -update
// to write the table, and review the diff. Each new operation adds a line to the table.
func TestScopes(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(scopesFile)
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.Services.Live.Close() // actors that are allowed to listen to events get a stream that ends
		domain, err := f.Services.Domains.Create(t.Context(), f.Acme.TeamID, domains.NewDomain{Name: "example.org"})
		if err != nil {
			t.Fatal(err)
		}
		_, ofDomain := f.Key(f.Acme.TeamID, teams.NewKey{Name: "one domain", Permission: teams.SendingAccess,
			DomainID: domain.ID})
		unknown, ofUnknown := f.Key(f.Acme.TeamID, teams.NewKey{Name: "unknown"})
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE api_keys SET permission = 'unknown' WHERE id = $1`, db.ID(unknown.ID))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		all := teams.FullAccess.Scopes()
		var readers teams.Scopes
		for _, o := range f.Operations() {
			if strings.HasSuffix(o.Scope.String(), ":read") {
				readers |= teams.NewScopes(o.Scope)
			}
		}
		as := func(kind teams.ActorKind, scopes teams.Scopes) http.Handler {
			return f.ServeAs(teams.Actor{Kind: kind, ID: dbtest.ID("x"), TeamID: f.Acme.TeamID, Scopes: scopes})
		}
		type asked struct {
			name string
			http.Handler
		}
		actors := []asked{
			{"key: full_access", f.bearing(f.keys["full"])},
			{"key: sending_access", f.bearing(f.keys["sending"])},
			{"key: one domain", f.bearing(ofDomain)},
			{"key: unknown", f.bearing(ofUnknown)},
			{"user: all", as(teams.UserActor, all)},
			{"user: *:read", as(teams.UserActor, readers)},
			{"grant: all", as(teams.GrantActor, all)},
			{"grant: emails:send", as(teams.GrantActor, teams.NewScopes(teams.EmailsSend))},
			{"grant: domains:write", as(teams.GrantActor, teams.NewScopes(teams.DomainsWrite))},
			{"grant: none", as(teams.GrantActor, 0)},
			{"system", f.ServeAs(teams.System(f.Acme.TeamID))},
		}
		for _, role := range teams.Roles {
			by := f.Member(f.Acme.TeamID, string(role)+"@acme.example", role)
			actors = append(actors, asked{"role: " + string(role), f.ServeAs(by)})
		}
		var table bytes.Buffer
		w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		fmt.Fprint(w, "operation\tscope")
		for _, a := range actors {
			fmt.Fprint(w, "\t", a.name)
		}
		fmt.Fprintln(w)
		line := func(method, path string, scope teams.Scope, body string) {
			name := scope.String()
			if scope == wire.Open {
				name = "-"
			}
			fmt.Fprint(w, method, " ", path, "\t", name)
			for _, a := range actors {
				fmt.Fprint(w, "\t", may(t, a, method, withIDs(path), body))
			}
			fmt.Fprintln(w)
		}
		for _, o := range f.Operations() {
			line(o.Method, o.Path, o.Scope, "{}")
		}
		line("GET", "/webhooks/listen", listenScope, "")
		w.Flush()
		got := strings.ReplaceAll(table.String(), " \n", "\n")
		if *update {
			if err := os.WriteFile(scopesFile, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if diff := gocmp.Diff(string(want), got); diff != "" {
			t.Errorf("the file, - and who may, +; run with -update to accept it:\n%s", diff)
		}
	})
}

// Exporting an address's personal data requires the scopes for all exported kinds of data.
func TestScopesOfThePersonalExport(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		kinds := []teams.Scope{teams.ContactsRead, teams.EmailsRead, teams.ReceivingRead, teams.SuppressionsRead,
			teams.BroadcastsRead, teams.AutomationsRead}
		asks := func(scopes []teams.Scope) string {
			return may(t, f.ServeAs(teams.Actor{Kind: teams.GrantActor, ID: dbtest.ID("x"), TeamID: f.Acme.TeamID,
				Scopes: teams.NewScopes(scopes...)}), http.MethodGet, "/contacts/ann@reader.example/export", "")
		}
		if got := asks(kinds); got != "yes" {
			t.Errorf("with all: %s", got)
		}
		for i, s := range kinds {
			if got := asks(slices.Delete(slices.Clone(kinds), i, i+1)); got != "403" {
				t.Errorf("without %s: %s", s, got)
			}
		}
	})
}

// refusals maps status codes to the error names that an actor without the required scope receives.
var refusals = map[int]string{http.StatusUnauthorized: "restricted_api_key", http.StatusForbidden: "invalid_permission"}

// may requests an operation. The result is "yes" if the actor has the required scope, even if the request fails for
// another reason. If the actor lacks the scope, the result is the status code.
func may(t *testing.T, h http.Handler, method, path, body string) string {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	var e wire.ErrorBody
	if w.Code >= 400 {
		if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code >= 500 {
			t.Errorf("%s %s: %d %s, %v", method, path, w.Code, w.Body, err)
		}
	}
	if name, refused := refusals[w.Code]; refused {
		if e.Name != name {
			t.Errorf("%s %s: %d %s, want %s", method, path, w.Code, w.Body, name)
		}
		return fmt.Sprint(w.Code)
	}
	return "yes"
}
