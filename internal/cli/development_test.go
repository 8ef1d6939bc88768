package cli

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// TestDevelopmentPagesAreForThisMachine checks that the outbox answers without a key only if the peer and the Host
// header are this machine. Checking the Host header prevents DNS rebinding.
func TestDevelopmentPagesAreForThisMachine(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		if status, body := n.ask(key, http.MethodPost, "/emails", hello); status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		var id string
		eventually(t, "the email is captured", func() bool {
			all, err := n.Outbox.All(t.Context())
			if err == nil && len(all) == 1 {
				id = all[0].ID
			}
			return id != ""
		})
		get := func(path, host string, header http.Header) (int, string) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = host
			maps.Copy(r.Header, header)
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
		check := func(what string, want int, get func(path string) (int, string)) {
			t.Helper()
			for _, path := range []string{"/dev/outbox", "/dev/waiting", "/dev/outbox/" + id, "/dev/nothing", "/dev/"} {
				status, body := get(path)
				shown := want
				if want == 200 && (path == "/dev/nothing" || path == "/dev/") {
					shown = 404
				}
				if status != shown || want == 401 && (strings.Contains(body, id) || strings.Contains(body, "b@one.example")) {
					t.Errorf("%s at %s: %d %s", path, what, status, body)
				}
			}
		}
		withKey := http.Header{"Authorization": {"Bearer " + devTestKey}}
		for host, want := range map[string]int{
			"": 200, "localhost": 200, "LocalHost:3000": 200, "localhost.": 200, "mail.localhost:3000": 200, "127.0.0.1": 200,
			"127.8.9.1:80": 200, "[::1]": 200, "[::1]:3000": 200, "[::ffff:127.0.0.1]:3000": 200,
			"evil.example": 401, "evil.example:3000": 401, "localhost.evil.example": 401, "notlocalhost": 401,
			"127.0.0.1.evil.example": 401, "127.0.0.1.nip.io:3000": 401,
			"10.0.0.1": 401, "0.0.0.0:3000": 401, "[::]": 401, "[2001:db8::1]:3000": 401, "2130706433": 401,
			"0x7f.1": 401, "127.1": 401, "localhost@evil.example": 401,
		} {
			check(host, want, func(path string) (int, string) { return get(path, host, nil) })
			check(host+" with the key", 200, func(path string) (int, string) { return get(path, host, withKey) })
		}
		for name, header := range map[string]http.Header{
			"X-Forwarded-For": {"X-Forwarded-For": {"127.0.0.1"}}, "Forwarded": {"Forwarded": {"for=127.0.0.1"}},
			"Via": {"Via": {"1.1 proxy"}}, "X-Real-IP": {"X-Real-Ip": {"127.0.0.1"}},
			"an empty header":    {"X-Forwarded-For": {""}},
			"an unusual header":  {"X-Forwarded-Client": {"x"}},
			"another key":        {"Via": {"1.1 proxy"}, "Authorization": {"Bearer " + key}},
			"an empty key":       {"Via": {"1.1 proxy"}, "Authorization": {"Bearer "}},
			"basic":              {"Via": {"1.1 proxy"}, "Authorization": {"Basic " + devTestKey}},
			"a part of the key":  {"Via": {"1.1 proxy"}, "Authorization": {"Bearer " + devTestKey[:10]}},
			"a key in the Query": {"Via": {"1.1 proxy"}, "X-Key": {devTestKey}},
		} {
			check(name, 401, func(path string) (int, string) { return get(path, "localhost", header) })
		}
		from := func(peer string, header http.Header) func(path string) (int, string) {
			return func(path string) (int, string) {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
				r.RemoteAddr, r.Header = peer, header
				w := httptest.NewRecorder()
				n.Handler().ServeHTTP(w, r)
				return w.Code, w.Body.String()
			}
		}
		for _, peer := range []string{"192.0.2.1:99", "[2001:db8::1]:99", "10.0.0.1:99", "@", ""} {
			check("peer "+peer, 401, from(peer, http.Header{}))
			check("peer "+peer+" with the key", 200, from(peer, withKey))
		}
		check("this machine", 200, from("[::ffff:127.0.0.1]:99", http.Header{}))
	})
}

// TestDevelopmentDomainReceives checks that a domain of `dev --domain` stays verified after receiving is enabled and
// after the tracking subdomain is changed, without a request to verify it again.
func TestDevelopmentDomainReceives(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		if _, err := addVerified(t.Context(), n.Node, key, []string{"acme.example"}); err != nil {
			t.Fatal(err)
		}
		who, err := n.Teams.Authenticate(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		d, err := n.Domains.GetByName(t.Context(), who.TeamID, "acme.example")
		if err != nil || d.Status != domains.Verified {
			t.Fatalf("%s, %v", d.Status, err)
		}
		status, body := n.ask(key, http.MethodPatch, "/domains/"+d.ID, `{"capabilities":{"receiving":"enabled"}}`)
		if status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		isVerified := func(record string) func() bool {
			return func() bool {
				_, body = n.ask(key, http.MethodGet, "/domains/"+d.ID, "")
				return strings.Contains(body, `"record":"`+record+`"`) && !strings.Contains(body, "not_started") &&
					strings.Contains(body, `"status":"verified"`) && !strings.Contains(body, "partially")
			}
		}
		eventually(t, "the domain is verified", isVerified("Receiving"))
		status, body = n.ask(key, http.MethodPatch, "/domains/"+d.ID, `{"tracking_subdomain":"go"}`)
		if status != 200 {
			t.Fatalf("%d %s", status, body)
		}
		eventually(t, "the new tracking subdomain is verified", isVerified("Tracking"))
	})
}

// A notice to the team of the development key is captured in the outbox, also if an earlier release made the team.
func TestDevelopmentNotices(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Development")
		n := p.start()
		who, err := n.Teams.Authenticate(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := n.EnsureDeveloper(t.Context(), who.TeamID, func(string) {}); err != nil {
				t.Fatal(err)
			}
		}
		err = n.DB.Update(t.Context(), func(tx *db.Tx) error {
			return n.Notifications.Notify(t.Context(), tx, who.TeamID, "Your webhook fails", "See its page.")
		})
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "the notice is captured", func() bool {
			all, err := n.Outbox.All(t.Context())
			return err == nil && len(all) == 1 && all[0].Subject == "Your webhook fails"
		})
	})
}
