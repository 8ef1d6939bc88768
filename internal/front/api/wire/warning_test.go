package wire

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// Each unknown query parameter of a list has a line of its own in the header Postrider-Warning. The response is the
// same as without the parameter. Known parameters, and operations without query parameters, cause no warning.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	nothing := Endpoint(func(context.Context, *Call, None) (None, error) { return None{}, nil })
	f := newFixture(t, Options{}, Operation{Method: http.MethodGet, Path: "/list", Scope: teams.LogsRead, Status: 200,
		Query: []string{"limit", "after", "before", "status"}, Handler: nothing})
	unknown := func(name string) string { return "The query parameter " + name + " is unknown and was ignored." }
	for query, want := range map[string][]string{
		"":                                  nil,
		"?limit=3&after=x&status=a":         nil,
		"?stauts=bounced":                   {unknown(`"stauts"`)},
		"?to=a&limit=1&Status=b&to=c":       {unknown(`"Status"`), unknown(`"to"`)},
		"?a%0D%0ASet-Cookie:%20x=1":         {unknown(`"a\r\nSet-Cookie: x"`)},
		"?%C3%A9%22=1":                      {unknown(`"\u00e9\""`)},
		"?" + strings.Repeat("x", 500):      {unknown(`"` + strings.Repeat("x", maxWarningName) + `"`)},
		"?" + strings.Repeat("é", 33) + "=": {unknown(`"` + strings.Repeat(`\u00e9`, 32) + `"`)},
	} {
		w := f.do(t, "GET /list"+query)
		if diff := gocmp.Diff(want, w.Header()[WarningHeader]); w.Code != 200 || diff != "" {
			t.Errorf("%q: %d %s", query, w.Code, diff)
		}
	}
	var many []string
	for i := range maxWarnings + 3 {
		many = append(many, fmt.Sprintf("x%d=", i))
	}
	lines := f.do(t, "GET /list?"+strings.Join(many, "&")).Header()[WarningHeader]
	if len(lines) != maxWarnings+1 || lines[maxWarnings] != "3 more query parameters are unknown and were ignored." {
		t.Errorf("%q", lines)
	}
	if w := f.do(t, "GET /api-keys?x=1"); w.Code != 200 || w.Header().Get(WarningHeader) != "" {
		t.Errorf("an operation without parameters: %v", w.Header())
	}
}
