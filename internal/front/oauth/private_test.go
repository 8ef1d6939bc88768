package oauth

import (
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// A browser never follows a redirect URI with a private scheme. After consent, after a refusal and for every error, a
// page names the client and the scheme and has a link.
func TestPrivateSchemes(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		const back = "cursor://anysphere.cursor-mcp/callback?x=1"
		client := f.register("Editor <b>", back)
		f.signIn("ann@acme.example", map[string]teams.Role{f.Acme.TeamID: teams.Owner})
		wantPage := func(what string, w *httptest.ResponseRecorder, status int, in ...string) {
			t.Helper()
			text := w.Body.String()
			if w.Code != status || w.Header().Get("Location") != "" {
				t.Errorf("%s: %d, to %q", what, w.Code, w.Header().Get("Location"))
			}
			for _, part := range append(in, "Editor &lt;b&gt;", "<code>cursor:</code>",
				`<a href="cursor://anysphere.cursor-mcp/callback?x=1&amp;`, "&amp;state=s", `rel="noreferrer"`) {
				if !strings.Contains(text, part) {
					t.Errorf("%s: the page lacks %q: %s", what, part, text)
				}
			}
			if strings.Contains(text, "<b>") || strings.Contains(text, "ZgotmplZ") {
				t.Errorf("%s: %s", what, text)
			}
		}
		q := query(client, back, "emails:send")
		q.Set("state", "s")
		for _, decision := range []string{"deny", "allow"} {
			form := ptr(readPage(t, f.ask("GET", "/oauth/authorize?"+q.Encode(), nil))).form(t, "post", "/oauth/authorize")
			form.fields.Set("decision", decision)
			w := f.ask("POST", "/oauth/authorize", form.fields)
			if decision == "deny" {
				wantPage(decision, w, 200, "error=access_denied", "was not granted")
			} else {
				wantPage(decision, w, 200, "code=", "may act for the team")
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM oauth_codes`); n != 1 {
			t.Errorf("%d codes were made", n)
		}
		for name, value := range map[string]string{"scope": "nonsense", "response_type": "token",
			"resource":       "https://a.example",
			"code_challenge": "x", "code_challenge_method": "plain"} {
			wrong := query(client, back, "emails:send")
			wrong.Set("state", "s")
			wrong.Set(name, value)
			for _, accept := range []string{"text/html", "application/json", ""} {
				wantPage(name, f.ask("GET", "/oauth/authorize?"+wrong.Encode(), nil, "Accept", accept), 400, "error=",
					"was not granted")
			}
		}
	})
}

// The consent page shows fillers and variation selectors in the name of a client as code points, so that the name does
// not look like that of another client.
func TestHiddenCharactersInName(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		client := f.register("Claude\u3164\ufe0f", "https://app.example/callback")
		f.signIn("ann@acme.example", map[string]teams.Role{f.Acme.TeamID: teams.Owner})
		w := f.ask("GET", "/oauth/authorize?"+query(client, "https://app.example/callback", "emails:send").Encode(), nil)
		if text := w.Body.String(); !strings.Contains(text, "Claude[U&#43;3164][U&#43;FE0F]") ||
			strings.Contains(text, "\u3164") {
			t.Errorf("%d %s", w.Code, text)
		}
	})
}
