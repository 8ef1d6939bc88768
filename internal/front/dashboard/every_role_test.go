package dashboard_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/dashboard"
)

var parameter = regexp.MustCompile(`\{\w+\}`)

// A member opens each page and submits each form with every role. Those without the scope are refused with 403, and
// an id of no object leads to 404 or, if the values are wrong, to an error that the visitor can correct. Nothing is a
// 500.
func TestEveryRole(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		for _, role := range teams.Roles {
			var v *visitor
			opened := 0
			for _, x := range dashboard.Routes() {
				if opened%10 == 0 { // a user may open 20 pages a second, and some pages redirect to another
					v = b.visitor(role)
				}
				opened++
				method, path, _ := strings.Cut(x.Pattern, " ")
				if path == "/app/live" { // a response without an end
					continue
				}
				path = parameter.ReplaceAllString(strings.TrimSuffix(path, "{$}"), "01890a5d-ac96-774b-bcce-b302099a8057")
				var status int
				var page string
				b.eventually("the visitor may open another page", func() bool { // a user has 20 pages a second
					if method == http.MethodGet {
						status, page = v.get(path)
					} else {
						status, page = v.post(path, nil)
					}
					return status != http.StatusTooManyRequests
				})
				refused := x.Scope != 0 && !role.Scopes().Has(x.Scope)
				if refused != (status == 403) || status >= 500 {
					t.Errorf("%s as %s: %d\n%s", x.Pattern, role, status, page)
				}
			}
		}
	})
}
