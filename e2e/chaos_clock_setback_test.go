//go:build chaos

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestChaosClockSetBack sets a node's clock forward by an hour, past midnight, and then back again. With SQLite, emails
// still count against the next day's quota after the clock is set back, so neither day's quota is exceeded. With
// PostgreSQL, the clock change has no effect on quotas, because the database server uses its own clock. Sessions and
// tokens remain valid throughout the clock changes.
func TestChaosClockSetBack(t *testing.T) {
	for _, engine := range both {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			setClockBack(t, engine)
		})
	}
}

func setClockBack(t *testing.T, engine string) {
	shifted := buildShifted(t)
	env := []string{"POSTRIDER_BLOB_URL=" + filepath.Join(t.TempDir(), "blobs"),
		"POSTRIDER_SECRET_KEY=" + sharedSecret}
	if engine == "postgres" {
		env = append(env, "POSTRIDER_DATABASE_URL="+dbtest.PostgresURL(t))
	}
	midnight := time.Now().UTC().Truncate(24 * time.Hour).Add(48 * time.Hour)
	n := prepare(t, shifted, env)
	n.tail = 4000
	at := func(clock time.Time) { n.startAt(env, clock) }
	at(midnight.Add(-30 * time.Minute))
	n.addDomain("acme.example")
	if _, errOut, err := command(t, append(n.env, "POSTRIDER_DATA_DIR="+n.dir()), "teams", "limit",
		"Development", "--daily", "10"); err != nil {
		t.Fatalf("%v %s", err, errOut)
	}
	owner := caller{addr: n.addr, bearer: key}
	ok := func(c caller, method, path string, body any, want int) reply {
		return c.wants(t, method, path, body, want)
	}
	p, err := granted(t.Context(), n.addr, key, "full_access")
	if err != nil {
		t.Fatal(err)
	}
	ok(owner, http.MethodPatch, "/oauth/grants/"+p.grantID(t), map[string]any{"limits": map[string]any{
		"emails_per_day": 5}}, http.StatusOK)
	email := map[string]any{"from": "a@acme.example", "to": "b@example.net", "subject": "s", "text": "t"}
	send := func(most int) int { return n.sendUntilRefused(t, p.Access, email, most) }
	renew := func() { p = p.renewed(t, n.addr) }
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	ada := caller{addr: n.named(), jar: jar}
	ok(owner, http.MethodPost, "/team/invitations", map[string]any{"email": "ada@example.net",
		"role": "admin"}, 201)
	text := n.captured("ada@example.net").Text()
	first := send(2) // the invitation email also counts against the team's quota

	at(midnight.Add(30 * time.Minute))
	renew()
	second := send(2)
	ok(ada, http.MethodPost, invitationLink.FindString(text), url.Values{"password": {password}}, 303)
	var wanted struct{ ID, Status string }
	asks := n.asking(t)
	made := ok(asks, http.MethodPost, "/approvals", email, 201)
	if err := json.Unmarshal([]byte(made.text), &wanted); err != nil {
		t.Fatal(err)
	}

	at(midnight.Add(-20 * time.Minute))
	if a := ok(ada, http.MethodGet, "/app/people", nil, 200); !strings.Contains(a.text, "ada@example.net (you)") {
		t.Error("the session has ended")
	}
	ok(caller{addr: n.addr, bearer: p.Access}, http.MethodGet, "/domains", nil, 200)
	renew()
	third := send(20)
	fresh, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	ok(caller{addr: n.named(), jar: fresh}, http.MethodPost, "/sign-in", url.Values{"email": {"ada@example.net"},
		"password": {password}}, 303)
	a := ok(owner, http.MethodPost, "/approvals/"+wanted.ID+"/approve", nil, 200)
	if err := json.Unmarshal([]byte(a.text), &wanted); err != nil || wanted.Status != "approved" {
		t.Errorf("approved with the clock set back: %s", a.text)
	}
	if p, err = granted(t.Context(), n.addr, key, "full_access"); err != nil { // authorize the app again
		t.Fatal(err)
	}
	limited := p
	next, r, err := limited.refresh(t.Context(), n.addr)
	if err != nil || r.status != http.StatusOK || next.Refresh == "" {
		t.Errorf("tokens of a new grant: %d %v %s", r.status, err, r.text)
	}

	at(midnight.Add(10 * time.Minute))
	ok(ada, http.MethodGet, "/app/people", nil, 200)
	a = ok(owner, http.MethodGet, "/usage", nil, 200)
	t.Logf("sent %d, %d, %d; %s", first, second, third, a.text)
	if sum := second + third; engine == "sqlite" && sum != 5 || engine == "postgres" && first+sum != 5 {
		t.Errorf("a program that may send 5 a day sent %d, then %d and %d", first, second, third)
	}
}

// wants makes a request and fails the test unless the response has the given status.
func (c caller) wants(t *testing.T, method, path string, body any, status int) reply {
	t.Helper()
	a, err := c.ask(t.Context(), method, path, body)
	if err != nil || a.status != status {
		t.Fatalf("%s %s is answered with %d %v: %s", method, path, a.status, err, a.text)
	}
	return a
}

// sendUntilRefused sends emails with an access token until one is refused or the maximum is reached, and returns the
// number of accepted emails.
func (n *node) sendUntilRefused(t *testing.T, token string, email map[string]any, most int) (sent int) {
	t.Helper()
	for sent < most {
		a, err := caller{addr: n.addr, bearer: token}.ask(t.Context(), http.MethodPost, "/emails", email)
		if err != nil || a.status != http.StatusOK && a.status != http.StatusTooManyRequests {
			t.Fatalf("a program sends: %d %v %s", a.status, err, a.text)
		}
		if a.status == http.StatusTooManyRequests {
			break
		}
		sent++
	}
	return sent
}

// startAt starts or restarts the node with its clock set to the given time.
func (n *node) startAt(env []string, clock time.Time) {
	n.t.Helper()
	if n.cmd != nil {
		n.stop()
	}
	n.env = append(env[:len(env):len(env)], fmt.Sprintf("%s=%d", clockShift, int(time.Until(clock).Seconds())))
	n.launch()
}

// renewed refreshes the access token and returns the new pair of tokens.
func (p pair) renewed(t *testing.T, addr string) pair {
	t.Helper()
	next, a, err := p.refresh(t.Context(), addr)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("renew tokens: %d %v %s", a.status, err, a.text)
	}
	return next
}

// asking returns a connected app whose emails require approval.
func (n *node) asking(t *testing.T) caller {
	t.Helper()
	p, err := granted(t.Context(), n.addr, key, "full_access")
	if err != nil {
		t.Fatal(err)
	}
	a, err := caller{addr: n.addr, bearer: key}.ask(t.Context(), http.MethodPatch, "/oauth/grants/"+p.grantID(t),
		map[string]any{"limits": map[string]any{"approval": true}})
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("have a program ask: %d %v", a.status, err)
	}
	return caller{addr: n.addr, bearer: p.Access}
}
