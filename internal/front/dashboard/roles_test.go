package dashboard

import (
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api"
)

// Every form that changes something needs a scope beyond reading, and every change that the API's audit log names is
// named for the dashboard too. Pages only read.
func TestRoutesNeedScopes(t *testing.T) {
	t.Parallel()
	viewer := teams.Viewer.Scopes()
	for _, r := range (&Pages{}).routes() {
		method, path, _ := strings.Cut(r.pattern, " ")
		switch {
		case !strings.HasPrefix(path, "/app"):
			t.Errorf("%s is not below /app", r.pattern)
		case method == http.MethodGet && r.action != "":
			t.Errorf("%s is a page, and has the action %q", r.pattern, r.action)
		case method == http.MethodPost && r.own:
			if r.scope == 0 || r.action != "" || !strings.Contains(path, "/filters") {
				t.Errorf("%s is not a form for saved filters", r.pattern)
			}
		case method == http.MethodPost && (r.scope == 0 || viewer.Has(r.scope)):
			t.Errorf("%s changes something, and a viewer may submit it", r.pattern)
		case method == http.MethodPost && r.action == "" && r.scope != teams.EmailsSend:
			t.Errorf("%s has no action for the audit log", r.pattern)
		}
	}
}

// An action has the same name in the audit log whether a page or the API did it. The API has no operation that renames
// a team; the command has the same name for it.
func TestActionsHaveTheNamesOfTheAPI(t *testing.T) {
	t.Parallel()
	known := map[string]bool{teamRenamed: true}
	for _, o := range api.New(api.Options{Log: slog.New(slog.DiscardHandler)}).Operations() {
		known[o.Audit.Name] = true
	}
	for _, r := range (&Pages{}).routes() {
		if r.action != "" && !known[r.action] {
			t.Errorf("%s has the action %q, which no operation of the API has", r.pattern, r.action)
		}
	}
}
