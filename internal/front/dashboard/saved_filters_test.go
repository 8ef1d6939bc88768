package dashboard_test

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

var deletion = regexp.MustCompile(`action="(/app/\w+/filters/[0-9a-f-]+/delete)"`)

// A member saves the filter of each list, opens it, and deletes it. Other members do not see it.
func TestSavedFilters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		b.delivered(b.send("laura@example.org", "One"))
		v := b.visitor(teams.Viewer)
		other := b.visitor(teams.Owner)
		for list, query := range map[string]string{"emails": "status=bounced&status=failed&in=7d", "logs": "status=5xx",
			"suppressions": "origin=bounce", "receiving": "thread=01890a5d-ac96-774b-bcce-b302099a8057"} {
			path := "/app/" + list
			v.shows(path+"?"+query+"&after=01890a5d-ac96-774b-bcce-b302099a8057", 200, "Save filter")
			status, page := v.post(path+"/filters", url.Values{"query": {query + "&before=x&empty="},
				"name": {"  My <b>  list "}})
			if status != 200 || !strings.Contains(page, "The filter “My &lt;b&gt; list” is saved.") ||
				!strings.Contains(page, `aria-current="true">My &lt;b&gt; list</a>`) ||
				strings.Contains(page, "Name of the filter") {
				t.Errorf("saved in %s: %d\n%s", list, status, page)
			}
			values, err := url.ParseQuery(query)
			b.must(err)
			href := strings.ReplaceAll(path+"?"+values.Encode(), "&", "&amp;")
			page = v.shows(path+"?"+query, 200, `href="`+href+`"`)
			if page := other.shows(path+"?"+query, 200); strings.Contains(page, "My &lt;b&gt;") {
				t.Error("another member sees the filter")
			}
			form := deletion.FindStringSubmatch(page)
			if form == nil {
				t.Fatalf("%s has no form that deletes\n%s", list, page)
			}
			if status, _ := other.post(form[1], nil); status != 404 {
				t.Errorf("another member deletes the filter: %d", status)
			}
			if status, page := v.post(form[1], nil); status != 200 || !strings.Contains(page, "is deleted") ||
				!strings.Contains(page, "Name of the filter") {
				t.Errorf("deleted: %d\n%s", status, page)
			}
		}
	})
}

// A form that is refused shows the error beside the field, and keeps the name and the filter.
func TestRefusedFilters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		b.delivered(b.send("laura@example.org", "One"))
		v := b.visitor(teams.Viewer)
		save := func(name, query string) (int, string) {
			return v.post("/app/emails/filters", url.Values{"query": {query}, "name": {name}})
		}
		if status, page := save("Taken", "status=sent"); status != 200 {
			t.Fatalf("%d\n%s", status, page)
		}
		for _, x := range []struct{ name, query, says string }{
			{" ", "status=failed", "Enter a name"},
			{"Taken", "status=failed", "You have a filter with this name"},
			{strings.Repeat("ü", 61), "status=failed", "more than 60 characters"},
			{"a\u202eb", "status=failed", "cannot be seen"},
			{"Empty", "after=1", "No filter is set"},
			{"Long", "other=" + strings.Repeat("a", 2500), "too long"}} {
			status, page := save(x.name, x.query)
			if status != 422 || !strings.Contains(page, x.says) ||
				x.query == "status=failed" && !strings.Contains(page, `value="status=failed"`) {
				t.Errorf("%+v: %d\n%s", x, status, page)
			}
		}
		for _, query := range []string{"%zz", "q=%00", "q=%ff"} {
			if status, page := save(" ", query); status != 404 {
				t.Errorf("the query %q, which cannot be read: %d\n%s", query, status, page)
			}
		}
		for i := range 49 {
			if status, page := save(fmt.Sprint("Filter ", i), "status=failed"); status != 200 {
				t.Fatalf("filter %d: %d\n%s", i, status, page)
			}
		}
		if status, page := save("One too many", "status=failed"); status != 422 ||
			!strings.Contains(page, "You have saved 50 filters") {
			t.Errorf("filter 51: %d\n%s", status, page)
		}

		// The filters end with the membership.
		b.must(b.Members.Leave(t.Context(), b.acme.TeamID, v.user.ID))
		var left int
		b.must(b.DB.QueryRow(t.Context(), `SELECT COUNT(*) FROM saved_filters`).Scan(&left))
		if left != 0 {
			t.Errorf("%d filters are left after their member left", left)
		}
	})
}
