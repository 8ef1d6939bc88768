package api

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// documentedScopes matches the sentence of the OpenAPI document that names an operation's scopes.
var documentedScopes = regexp.MustCompile(`An OAuth client needs the scopes? ([a-z_:, ]+?)\.(?:\s|$)`)

// For each operation of the OpenAPI document, an OAuth client with the scopes that the document names may use the
// operation, and a client without one of them may not.
func TestDocumentedScopesAreEnough(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	f.Services.Live.Close() // a client that may listen to events gets a stream that ends
	doc, _ := readDocOf(t, f)
	ask := func(method, path string, scopes teams.Scopes) string {
		return may(t, f.ServeAs(teams.Actor{Kind: teams.GrantActor, ID: dbtest.ID("x"), TeamID: f.Acme.TeamID,
			Scopes: scopes}), strings.ToUpper(method), withIDs(path), "{}")
	}
	named := 0
	for path, item := range doc.Paths {
		for method, o := range item {
			var scopes teams.Scopes
			m := documentedScopes.FindStringSubmatch(o.Description)
			if strings.Contains(o.Description, "OAuth clients cannot use this operation.") {
				if got := ask(method, path, teams.FullAccess.Scopes()); m != nil || got != "403" {
					t.Errorf("%s %s: a client with full access gets %s: %s", method, path, got, o.Description)
				}
				continue
			}
			if m == nil {
				if got := ask(method, path, 0); got != "yes" {
					t.Errorf("%s %s: the document names no scope, and a client without scopes gets %s", method, path, got)
				}
				continue
			}
			for name := range strings.SplitSeq(strings.ReplaceAll(m[1], " and ", ", "), ", ") {
				s, ok := teams.ParseScope(name)
				if !ok {
					t.Fatalf("%s %s: the document names the unknown scope %q", method, path, name)
				}
				scopes |= teams.NewScopes(s)
				named++
			}
			if got := ask(method, path, scopes); got != "yes" {
				t.Errorf("%s %s: a client with the documented scopes %s gets %s", method, path, scopes, got)
			}
			for name := range strings.FieldsSeq(scopes.String()) {
				s, _ := teams.ParseScope(name)
				if got := ask(method, path, scopes&^teams.NewScopes(s)); got != "403" {
					t.Errorf("%s %s: without the documented scope %s, the result is %s", method, path, name, got)
				}
				rest := teams.FullAccess.Scopes() &^ teams.NewScopes(s)
				if s == teams.ApprovalsRequest {
					rest &^= teams.NewScopes(teams.EmailsSend) // which implies it
				}
				if got := ask(method, path, rest); got != "403" {
					t.Errorf("%s %s: with all scopes but %s, the result is %s", method, path, name, got)
				}
			}
		}
	}
	if named < 100 || doc.Paths["/emails"][strings.ToLower(http.MethodPost)].Description == "" {
		t.Errorf("the document names %d scopes", named)
	}
}
