package outbox

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestSnippetsQuoteRecipients checks that an address cannot end a string of an example.
func TestSnippetsQuoteRecipients(t *testing.T) {
	r := httptest.NewRequest("GET", "http://localhost:3000/dev/outbox", nil)
	for _, c := range []struct{ host, to, curl, script, program string }{
		{"localhost:3000", "ann+x@one.example",
			`curl "http://localhost:3000/dev/outbox/wait?to=ann%2Bx@one.example&timeout=30s"`,
			`to: "ann+x@one.example",`, `{"ann+x@one.example"}`},
		{"[::1]:3000", `"a$(x)\"'` + "`@one.example",
			`curl "http://[::1]:3000/dev/outbox/wait?to=%22a%24%28x%29%5C%22%27%60@one.example&timeout=30s"`,
			`to: "\"a$(x)\\\"'` + "`@one.example\",", `{"\"a$(x)\\\"'` + "`@one.example\"}"},
		{`x"$(y)`, "a@b.example", `curl "http://localhost:3000/dev/outbox/wait?to=a@b.example&timeout=30s"`, "", ""},
	} {
		r.Host = c.host
		all := waitSnippets(r, c.to)
		if all[0].Text != c.curl || !strings.Contains(all[1].Text, c.script) || !strings.Contains(all[2].Text, c.program) {
			t.Errorf("%s at %s: %+v", c.to, c.host, all)
		}
	}
}
