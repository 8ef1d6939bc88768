package signin

import (
	"bytes"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"text/tabwriter"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

const pagesFile = "testdata/pages.txt"

var update = flag.Bool("update", false, "write what was answered into the table of pages")

// TestPages requests every page without a session, without a team, and in each role, and compares the results with the
// table in testdata. Run the test with -update to write the table, and review the diff. Each new page adds a line to
// the table.
func TestPages(t *testing.T) {
	t.Parallel()
	want, err := os.ReadFile(pagesFile)
	if err != nil && !*update {
		t.Fatal(err)
	}
	each(t, func(t *testing.T, x *fixture) {
		type visitor struct {
			name string
			*browser
		}
		visitors := []visitor{{"nobody", x.browser(t)}, {"no team", x.browser(t)}}
		x.person("alone@acme.example", "")
		visitors[1].signIn("alone@acme.example")
		for _, role := range teams.Roles {
			email := string(role) + "@acme.example"
			x.person(email, role)
			visitors = append(visitors, visitor{string(role), x.browser(t).signIn(email)})
		}
		var table bytes.Buffer
		w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		fmt.Fprint(w, "page")
		for _, v := range visitors {
			fmt.Fprint(w, "\t", v.name)
		}
		fmt.Fprintln(w)
		for _, o := range (&Pages{}).routes() {
			method, path, _ := strings.Cut(o.pattern, " ")
			if path == "/sign-out" {
				continue // this page would end sessions that the test needs; TestSignIn covers it
			}
			fmt.Fprint(w, o.pattern)
			for _, v := range visitors {
				// Reset the attempt counters, so that all visitors get the same response.
				x.Update(func(tx *db.Tx) error {
					_, err := tx.Exec(t.Context(), `DELETE FROM user_attempts`)
					return err
				})
				at := strings.NewReplacer("{id}", id.New(), "{token}", "unknown", "{number}", "0").Replace(path)
				if method == "GET" {
					v.get(at)
				} else {
					form := url.Values{"team": {x.Acme.TeamID}, "confirm": {"Acme"}}
					r := v.posting(at, form)
					if strings.HasSuffix(at, "/begin") || strings.HasSuffix(at, "/finish") {
						r.Header.Set("Accept", "application/json")
					}
					v.do(r)
				}
				result := fmt.Sprint(v.status)
				if v.path != at {
					result = "to " + strings.SplitN(v.path, "?", 2)[0]
				}
				fmt.Fprint(w, "\t", result)
			}
			fmt.Fprintln(w)
		}
		w.Flush()
		got := strings.ReplaceAll(table.String(), " \n", "\n")
		if *update {
			x.Must(os.WriteFile(pagesFile, []byte(got), 0o644))
			return
		}
		if diff := gocmp.Diff(string(want), got); diff != "" {
			t.Errorf("who may do what is not what %s says:\n%s", pagesFile, diff)
		}
	})
}
