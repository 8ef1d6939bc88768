package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// Development pages are served only under loopback host names, which prevents DNS rebinding.
func TestDevelopmentPagesAreForThisMachine(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.must("keys", "create", "--team", "Acme")
		n := p.start()
		if status, body := n.ask(key, http.MethodPost, "/emails", hello); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		var id string
		eventually(t, "the email is captured", func() bool {
			all, err := n.Delivery.Outbox(t.Context())
			if err == nil && len(all) == 1 {
				id = all[0].ID
			}
			return id != ""
		})
		get := func(path, host string) (int, string) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil {
				t.Fatal(err)
			}
			return answer.StatusCode, string(text)
		}
		for host, want := range map[string]int{
			"": 200, "localhost": 200, "LocalHost:3000": 200, "localhost.": 200, "mail.localhost:3000": 200, "127.0.0.1": 200,
			"127.8.9.1:80": 200, "[::1]": 200, "[::1]:3000": 200, "[::ffff:127.0.0.1]:3000": 200,
			"evil.example": 421, "evil.example:3000": 421, "localhost.evil.example": 421, "notlocalhost": 421,
			"127.0.0.1.evil.example": 421,
			"10.0.0.1":               421, "0.0.0.0:3000": 421, "[::]": 421, "[2001:db8::1]:3000": 421, "2130706433": 421,
			"0x7f.1": 421,
		} {
			for _, path := range []string{"/dev/outbox", "/dev/waiting", "/dev/outbox/" + id, "/dev/nothing", "/dev/"} {
				status, body := get(path, host)
				shown := want
				if want == 200 && (path == "/dev/nothing" || path == "/dev/") {
					shown = 404
				}
				if status != shown || want == 421 && (strings.Contains(body, id) || strings.Contains(body, "b@one.example")) {
					t.Errorf("%s at %q: %d %s", path, host, status, body)
				}
			}
		}
	})
}
