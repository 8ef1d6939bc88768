//go:build chaos

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

// TestChaosPeople signs users in and uses OAuth codes and tokens while SQLite's disk is full or PostgreSQL is down.
// During the fault, responses ask clients to retry. The retries succeed after the fault, because no failed request was
// partly executed. TestChaosPeople mounts a file system, which requires root.
func TestChaosPeople(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "postrider-full-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.Remove(dir) })
		if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,mode=0755"); err != nil {
			t.Fatalf("mount a small file system on %s: %v (this needs root, and that mounting is allowed)", dir, err)
		}
		t.Cleanup(func() { syscall.Unmount(dir, syscall.MNT_DETACH) })
		n := prepare(t, binary, []string{"POSTRIDER_BLOB_URL=" + filepath.Join(t.TempDir(), "blobs")}, "--data-dir",
			dir)
		ballast := ""
		n.withoutDisk(func() { ballast = fill(t, dir) }, func() {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		})
	})
	t.Run("postgres", func(t *testing.T) {
		p, err := pgproxy.Start(dbtest.PostgresURL(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		n := prepare(t, binary, []string{"POSTRIDER_DATABASE_URL=" + p.URL()})
		n.withoutDisk(func() { p.Refuse() }, func() {
			if err := p.Pass(); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func (n *node) withoutDisk(fail, heal func()) {
	t := n.t
	n.tail = 6000
	n.launch()
	n.addDomain("acme.example")
	owner := caller{addr: n.addr, bearer: key}
	must := func(c caller, method, path string, body any, want int) reply {
		t.Helper()
		a, err := c.ask(t.Context(), method, path, body)
		if err != nil || a.status != want {
			t.Fatalf("%s %s is answered with %d %v: %s", method, path, a.status, err, a.text)
		}
		return a
	}
	must(owner, http.MethodPost, "/team/invitations", map[string]any{"email": "ada@example.net", "role": "admin"}, 201)
	invitation := invitationLink.FindString(n.captured("ada@example.net").Text())
	must(owner, http.MethodPost, "/team/invitations", map[string]any{"email": "bob@example.net", "role": "admin"}, 201)
	bob := invitationLink.FindString(n.captured("bob@example.net").Text())
	must(caller{addr: n.addr}, http.MethodPost, bob, url.Values{"password": {password}}, 303)
	p, err := granted(t.Context(), n.addr, key, "full_access")
	if err != nil {
		t.Fatal(err)
	}
	var wanted struct{ ID, Status string }
	a := must(n.asking(t), http.MethodPost, "/approvals", map[string]any{"from": "a@acme.example",
		"to": "b@example.net", "subject": "Wanted", "text": "t"}, 201)
	if err := json.Unmarshal([]byte(a.text), &wanted); err != nil {
		t.Fatal(err)
	}
	ask := authorizePath(anyLoopback, grants.CLI, "full_access")
	code := codeIn(must(owner, http.MethodGet, ask, nil, 302).location)
	exchange := codeFor(code)
	signIn := url.Values{"email": {"bob@example.net"}, "password": {password}}
	limits := map[string]any{"limits": map[string]any{"emails_per_day": 5}}

	anybody := caller{addr: n.named()}
	steps := []struct {
		by     caller
		method string
		path   string
		body   any
		after  int
	}{
		{anybody, http.MethodPost, "/sign-in", signIn, 303},
		{anybody, http.MethodPost, invitation, url.Values{"password": {password}}, 303},
		{owner, http.MethodGet, ask, nil, 302},
		{anybody, http.MethodPost, "/oauth/token", exchange, 200},
		{anybody, http.MethodPost, "/oauth/token", url.Values{"grant_type": {"refresh_token"},
			"client_id": {grants.CLI}, "refresh_token": {p.Refresh}}, 200},
		{owner, http.MethodPost, "/approvals/" + wanted.ID + "/approve", nil, 200},
		{owner, http.MethodPatch, "/oauth/grants/" + p.grantID(t), limits, 200},
		{owner, http.MethodPost, "/team/invitations", map[string]any{"email": "eve@example.net", "role": "member"},
			201},
		{anybody, http.MethodPost, "/oauth/register", map[string]any{"client_name": "Notes",
			"redirect_uris": []string{anyLoopback}}, 201},
	}
	fail()
	for range 12 { // failed requests must not count as wrong passwords, which are limited per hour
		for _, s := range steps {
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			c := s.by
			c.jar = jar
			a, err := c.ask(t.Context(), s.method, s.path, s.body)
			site, _ := url.Parse("http://" + s.by.addr)
			switch {
			case err != nil:
				t.Errorf("%s %s without a disk: %v", s.method, s.path, err)
			case a.status != http.StatusServiceUnavailable:
				t.Errorf("%s %s without a disk is answered with %d: %.300s", s.method, s.path, a.status, a.text)
			case strings.Contains(strings.ToLower(a.text), "sqlite") || strings.Contains(a.text, "pgx") ||
				len(jar.Cookies(site)) > 0:
				t.Errorf("%s %s without a disk says %.300s", s.method, s.path, a.text)
			}
		}
	}
	heal()
	n.must(http.MethodGet, "/domains", "", nil)
	for _, s := range steps {
		a, err := s.by.ask(t.Context(), s.method, s.path, s.body)
		if err != nil || a.status != s.after {
			t.Errorf("%s %s is then answered with %d %v: %.600s", s.method, s.path, a.status, err, a.text)
		}
	}
	var emails struct{ Data []struct{ Subject string } }
	n.must(http.MethodGet, "/emails?limit=100", "", &emails)
	if count := strings.Count(fmt.Sprint(emails.Data), "Wanted"); count != 1 {
		t.Errorf("what was approved is there %d times", count)
	}
}

func codeIn(location string) string {
	to, err := url.Parse(location)
	if err != nil {
		return ""
	}
	return to.Query().Get("code")
}
