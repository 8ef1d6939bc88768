package wire

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// WarningHeader is the name of a response header that warns about a request that was carried out.
const WarningHeader = "Postrider-Warning"

// These limits keep the warnings about a hostile query small.
const (
	maxWarnings    = 20
	maxWarningName = 64 // bytes of a parameter's name
)

// TakesFilters reports whether the operation reads a list, or other data that query parameters select. Unknown query
// parameters of such an operation cause warnings, because a misspelt filter would otherwise return too much.
func (o *Operation) TakesFilters() bool { return o.Method == http.MethodGet && len(o.Query) > 0 }

// warnUnknown adds a warning to the response header for each query parameter that the operation does not know.
func (o *Operation) warnUnknown(h http.Header, query url.Values) {
	if len(query) == 0 || !o.TakesFilters() {
		return
	}
	n := 0
	for _, name := range slices.Sorted(maps.Keys(query)) {
		if slices.Contains(o.Query, name) {
			continue
		}
		if n++; n <= maxWarnings {
			if len(name) > maxWarningName {
				name = name[:maxWarningName]
			}
			h.Add(WarningHeader, fmt.Sprintf("The query parameter %+q is unknown and was ignored.", name))
		}
	}
	if n > maxWarnings {
		h.Add(WarningHeader, fmt.Sprintf("%d more query parameters are unknown and were ignored.", n-maxWarnings))
	}
}
