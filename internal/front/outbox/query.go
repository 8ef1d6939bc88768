package outbox

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
)

const (
	defaultLimit   = 20
	maxLimit       = 100
	defaultTimeout = 30 * time.Second
	maxTimeout     = 120 * time.Second
)

// filterNames are the query parameters of a filter.
var filterNames = []string{"to", "from", "subject", "since"}

// readQuery returns the query parameters of a request. Each of them must be one of the given names, occur once and have
// a value.
func readQuery(r *http.Request, names ...string) (url.Values, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, fault.Invalidf("", "The query of the URL cannot be read. Encode special characters, such as %%26 for &.")
	}
	for name, values := range query {
		switch {
		case !slices.Contains(names, name) && len(names) == 0:
			return nil, fault.Invalidf(name, "The parameter `%.100s` is unknown. This path has no parameters.", name)
		case !slices.Contains(names, name):
			return nil, fault.Invalidf(name, "The parameter `%.100s` is unknown. This path has the parameters `%s`.", name,
				strings.Join(names, "`, `"))
		case len(values) > 1:
			return nil, fault.Invalidf(name, "The parameter `%s` may occur only once.", name)
		case values[0] == "":
			return nil, fault.Invalidf(name, "The parameter `%s` has no value. Set a value or leave the parameter out.", name)
		}
	}
	return query, nil
}

// readFilter returns the query parameters of a request, and the filter that they contain.
func readFilter(r *http.Request, others ...string) (query url.Values, f capture.Filter, err error) {
	if query, err = readQuery(r, append(slices.Clip(filterNames), others...)...); err != nil {
		return nil, f, err
	}
	f, err = capture.ParseFilter(query.Get("to"), query.Get("from"), query.Get("subject"), query.Get("since"))
	return query, f, err
}

func readLimit(query url.Values) (int, error) {
	if !query.Has("limit") {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(query.Get("limit"))
	if err != nil || n < 1 || n > maxLimit {
		return 0, fault.Invalidf("limit", "The parameter `limit` must be a number from 1 to %d.", maxLimit)
	}
	return n, nil
}

// readTimeout returns how long a request waits. The parameter is a number of seconds or a duration such as 1m30s.
func readTimeout(query url.Values) (time.Duration, error) {
	if !query.Has("timeout") {
		return defaultTimeout, nil
	}
	text := query.Get("timeout")
	if _, err := strconv.Atoi(text); err == nil {
		text += "s"
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxTimeout {
		return 0, fault.Invalidf("timeout", "The parameter `timeout` must be a duration from 0s to %.0fs, such as 30s.",
			maxTimeout.Seconds())
	}
	return d, nil
}
