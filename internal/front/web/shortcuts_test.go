package web

import (
	"bytes"
	"html/template"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The list of shortcuts and the script go by the same table, and no two links of the navigation have the same key.
func TestShortcuts(t *testing.T) {
	t.Parallel()
	script := string(assets()["app.js"].content)
	_, functions, ok := strings.Cut(script, "const does = {")
	functions, _, closed := strings.Cut(functions, "\n\t};")
	if !ok || !closed {
		t.Fatal("app.js has no table of functions")
	}
	var have, want []string
	for _, m := range regexp.MustCompile(`(?m)^\t\t(\w+)\(`).FindAllStringSubmatch(functions, -1) {
		have = append(have, m[1])
	}
	for _, s := range allShortcuts {
		if s.Does != "" {
			want = append(want, s.Does)
		}
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("app.js has the functions %v, and the shortcuts need %v", have, want)
	}
	used := map[string]string{outboxLink(&http.Request{URL: &url.URL{}}).Key: "Outbox"}
	for _, section := range navigation {
		for _, item := range section.Items {
			if other := used[item.Key]; item.Key != "" && other != "" {
				t.Errorf("g %s leads to %s and to %s", item.Key, other, item.Label)
			}
			used[item.Key] = item.Label
		}
	}
}

// The list of shortcuts names the keys of all links that the visitor sees.
func TestListOfShortcuts(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	nav := []NavSection{{"", []NavItem{{Label: "Emails", Key: "e"}, {Label: "Outbox", Key: "o"}, {Label: "Settings"}}}}
	if err := template.Must(layout().Clone()).ExecuteTemplate(&b, "overlays", layoutData{Nav: nav}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<kbd class="key">e</kbd></dt><dd>Emails`, `<kbd class="key">o</kbd></dt><dd>Outbox`,
		`data-does="next"><kbd class="key">j</kbd>`} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the list lacks %s:\n%s", want, &b)
		}
	}
	if strings.Contains(b.String(), "Settings") {
		t.Errorf("the list has a link without a key:\n%s", &b)
	}
}

// A list with one page has no buttons for others.
func TestPager(t *testing.T) {
	t.Parallel()
	type pager struct{ Newer, Older, Said string }
	for _, x := range []struct {
		pager
		want, not string
	}{
		{pager{}, "", "pager"},
		{pager{Said: "3 emails"}, "3 emails", "Newer"},
		{pager{Older: "?after=1"}, `aria-disabled="true">Newer`, `aria-disabled="true">Older`},
		{pager{Newer: "?before=1"}, `aria-disabled="true">Older`, `aria-disabled="true">Newer`},
	} {
		var b bytes.Buffer
		if err := template.Must(layout().Clone()).ExecuteTemplate(&b, "pager", x.pager); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), x.want) || strings.Contains(b.String(), x.not) {
			t.Errorf("%+v is shown as %q", x.pager, &b)
		}
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "", 1: "1", 99: "99", 100: "99+"} {
		if got := (NavItem{Count: n}).Waiting(); got != want {
			t.Errorf("%d is shown as %q, want %q", n, got, want)
		}
	}
}
