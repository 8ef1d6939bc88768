package outbox

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// snippet is an example in one language that waits for an email.
type snippet struct{ ID, Label, Text string }

// origin returns the address at which the visitor reaches this node.
func origin(r *http.Request) string {
	host := r.Host
	if host == "" || strings.ContainsFunc(host, func(c rune) bool {
		return !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.ContainsRune(".-:[]", c))
	}) {
		host = "localhost:3000"
	}
	if r.TLS != nil {
		return "https://" + host
	}
	return "http://" + host
}

// waitSnippets returns examples that wait for an email to a recipient. The recipient's address may have been chosen by
// an attacker, so each language quotes it.
func waitSnippets(r *http.Request, to string) []snippet {
	wait := origin(r) + Path + "/wait"
	script, err := json.Marshal(to)
	if err != nil { // only an address that is not UTF-8
		script = []byte(`""`)
	}
	return []snippet{
		{"curl", "curl", `curl "` + wait + "?to=" + strings.ReplaceAll(url.QueryEscape(to), "%40", "@") + `&timeout=30s"`},
		{"playwright", "Playwright", `const since = new Date().toISOString();
// … what sends the email …
const response = await fetch('` + wait + `?' +
  new URLSearchParams({ to: ` + string(script) + `, since, timeout: '20s' }));
const email = await response.json();
await page.goto(email.links[0].url);`},
		{"go", "Go", `since := time.Now()
// … what sends the email …
response, err := http.Get("` + wait + `?" + url.Values{
	"to":    {` + strconv.Quote(to) + `},
	"since": {since.Format(time.RFC3339Nano)},
}.Encode())`},
	}
}

// sample returns a command that sends an email.
func sample(r *http.Request) string {
	return `curl ` + origin(r) + `/emails \
  -H 'Authorization: Bearer re_your_key' \
  -H 'Content-Type: application/json' \
  -d '{"from":"onboarding@resend.dev","to":"ann@example.org","subject":"Hello","html":"<p>It works.</p>"}'`
}
