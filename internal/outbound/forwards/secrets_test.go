package forwards_test

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/signing"
)

// request is a request that a receiver got.
type request struct {
	body   string
	header http.Header
}

// receiver is a server that keeps the last request to each path.
type receiver struct {
	URL string

	mu  sync.Mutex
	got map[string]request
}

func newReceiver(t *testing.T) *receiver {
	x := &receiver{got: map[string]request{}}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		x.mu.Lock()
		defer x.mu.Unlock()
		x.got[r.URL.Path] = request{string(body), r.Header}
	}))
	t.Cleanup(s.Close)
	x.URL = s.URL
	return x
}

func (x *receiver) last(t *testing.T, path string) request {
	t.Helper()
	x.mu.Lock()
	defer x.mu.Unlock()
	r, ok := x.got[path]
	if !ok {
		t.Fatalf("there was no request to %s", path)
	}
	return r
}

// verify verifies a request with a secret, as a receiver does: one of the signatures must match. It returns the number
// of signatures, too.
func verify(t *testing.T, secret string, r request) (signatures int, ok bool) {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) != 32 {
		t.Fatalf("the secret %q has %d bytes: %v", secret, len(key), err)
	}
	at, err := strconv.ParseInt(r.header.Get("webhook-timestamp"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	again := http.Header{}
	signing.Sign(again, r.header.Get("webhook-id"), time.Unix(at, 0), r.body, key)
	all := strings.Fields(r.header.Get("webhook-signature"))
	return len(all), slices.Contains(all, again.Get("webhook-signature"))
}

// secret returns the signing secret of a rule.
func (f *fixture) secret(r forwards.Rule) string {
	f.t.Helper()
	got, err := f.rules.GetSecret(f.t.Context(), r.TeamID, r.DomainID, r.ID)
	f.Must(err)
	return got.Secret
}

// forwardOne has a message forwarded by the rules for sales.
func (f *fixture) forwardOne() {
	f.t.Helper()
	f.deliver(f.signed(""), "ann@author.example", "sales@in.acme.example")
	f.run(0)
}

// Each rule has its own secret: a receiver of one rule cannot forge a request of another rule, or of an automation.
func TestSecretsOfRulesDiffer(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		x := newReceiver(t)
		created, err := f.rules.Create(t.Context(), f.Acme.TeamID, f.domain.ID, forwards.NewRule{Local: "sales",
			URL: x.URL + "/a"})
		f.Must(err)
		a, b := f.secret(created), f.secret(f.rule("sales", x.URL+"/b"))
		if a == "" || a != created.Secret || a == b {
			t.Fatalf("the secrets are %q (created as %q) and %q", a, created.Secret, b)
		}
		if r := f.get(created); r.Secret != "" {
			t.Error("Get returns the secret")
		}
		f.forwardOne()
		team := f.webhooks.CallSecret(f.Acme.TeamID)
		for _, test := range []struct {
			path, secret string
			want         bool
		}{{"/a", a, true}, {"/b", b, true}, {"/b", a, false}, {"/a", b, false}, {"/a", team, false}} {
			if n, ok := verify(t, test.secret, x.last(t, test.path)); n != 1 || ok != test.want {
				t.Errorf("%s with %s: %d signatures, verified: %v", test.path, test.secret, n, ok)
			}
		}
		// The database has the secret only in encrypted form.
		var sealed []byte
		f.Must(f.DB.QueryRow(t.Context(), `SELECT secret FROM forwards WHERE target = $1`, x.URL+"/a").Scan(&sealed))
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(a, "whsec_"))
		f.Must(err)
		if len(sealed) <= len(key) || strings.Contains(string(sealed), string(key)) {
			t.Errorf("the stored secret is %x", sealed)
		}
	})
}

// After a rotation, both secrets sign until the overlap ends. A second rotation ends the use of the oldest secret.
func TestRotation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		x := newReceiver(t)
		r := f.rule("sales", x.URL+"/a")
		rotate := func() string {
			t.Helper()
			secret, err := f.rules.Rotate(t.Context(), r.TeamID, r.DomainID, r.ID)
			f.Must(err)
			if got := f.secret(r); got != secret {
				t.Fatalf("the secret is %s after a rotation to %s", got, secret)
			}
			return secret
		}
		verifies := func(want map[string]bool, count int) {
			t.Helper()
			f.forwardOne()
			for secret, want := range want {
				if n, ok := verify(t, secret, x.last(t, "/a")); n != count || ok != want {
					t.Errorf("%s: %d signatures, verified: %v", secret, n, ok)
				}
			}
		}
		first := f.secret(r)
		second := rotate()
		if first == second {
			t.Fatal("the secret stays")
		}
		verifies(map[string]bool{first: true, second: true}, 2)
		var until int64
		f.Must(f.DB.QueryRow(t.Context(), `SELECT old_until FROM forwards WHERE id = $1`, db.ID(r.ID)).Scan(&until))
		if left := db.Time(until).Sub(f.DB.Now()); left > signing.Overlap || left < signing.Overlap-time.Hour {
			t.Errorf("the overlap lasts %v", left)
		}
		third := rotate()
		verifies(map[string]bool{first: false, second: true, third: true}, 2)
		f.exec(`UPDATE forwards SET old_until = $1`, f.DB.Now().Add(-time.Second).UnixMicro()) // as a day later
		verifies(map[string]bool{second: false, third: true}, 1)
	})
}

// A rule of an earlier program has no secret. Its requests are signed with the team's secret, as before. Once its own
// secret was read, both sign until a rotation, and then for the usual overlap.
func TestRulesWithoutASecret(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		x := newReceiver(t)
		r, other := f.rule("sales", x.URL+"/a"), f.rule("sales", x.URL+"/b")
		f.exec(`UPDATE forwards SET secret = $1`, []byte{})
		team := f.webhooks.CallSecret(f.Acme.TeamID)
		f.forwardOne()
		if n, ok := verify(t, team, x.last(t, "/a")); n != 1 || !ok {
			t.Errorf("before its secret is read: %d signatures, verified: %v", n, ok)
		}
		own := f.secret(r)
		if own == team || own != f.secret(r) {
			t.Fatalf("the secret is %s, and then %s; the team's is %s", own, f.secret(r), team)
		}
		second, err := f.rules.Rotate(t.Context(), other.TeamID, other.DomainID, other.ID)
		f.Must(err)
		f.forwardOne()
		for path, secret := range map[string]string{"/a": own, "/b": second} {
			for _, s := range []string{secret, team} {
				if n, ok := verify(t, s, x.last(t, path)); n != 2 || !ok {
					t.Errorf("%s with %s: %d signatures, verified: %v", path, s, n, ok)
				}
			}
		}
		// The overlap of the rotated rule ends. The other one is not rotated yet.
		f.exec(`UPDATE forwards SET old_until = old_until - $1 WHERE old_until < $2`, 2*signing.Overlap.Microseconds(),
			f.DB.Now().Add(2*signing.Overlap).UnixMicro())
		f.forwardOne()
		if n, ok := verify(t, team, x.last(t, "/b")); n != 1 || ok {
			t.Errorf("after the overlap: %d signatures, verified: %v", n, ok)
		}
		if n, ok := verify(t, team, x.last(t, "/a")); n != 2 || !ok {
			t.Errorf("before a rotation: %d signatures, verified: %v", n, ok)
		}
	})
}

// Rules with an address have no secret, and those of other teams are not found. Deleting a team's rules deletes their
// secrets.
func TestSecretsOfOthers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		ctx := t.Context()
		r, a := f.rule("sales", "https://target.example/x"), f.rule("sales", "bob@target.example")
		if got, err := f.rules.GetSecret(ctx, a.TeamID, a.DomainID, a.ID); err != nil || got.Secret != "" {
			t.Errorf("a rule with an address has the secret %q, %v", got.Secret, err)
		}
		if _, err := f.rules.Rotate(ctx, a.TeamID, a.DomainID, a.ID); fault.KindOf(err) != fault.Invalid {
			t.Errorf("rotate the secret of a rule with an address: %v", err)
		}
		var n int
		count := func() int {
			t.Helper()
			f.Must(f.DB.QueryRow(ctx, `SELECT COUNT(*) FROM forwards WHERE LENGTH(secret) > 0`).Scan(&n))
			return n
		}
		if count() != 1 {
			t.Errorf("%d rules have a secret", n)
		}
		other, _ := f.Team("Other")
		for _, x := range []forwards.Rule{{TeamID: other.TeamID, DomainID: r.DomainID, ID: r.ID},
			{TeamID: r.TeamID, DomainID: r.ID, ID: r.ID}} {
			if _, err := f.rules.GetSecret(ctx, x.TeamID, x.DomainID, x.ID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("read the secret: %v", err)
			}
			if _, err := f.rules.Rotate(ctx, x.TeamID, x.DomainID, x.ID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("rotate the secret: %v", err)
			}
		}
		f.Must(f.rules.EraseTeam(ctx, r.TeamID))
		if count() != 0 {
			t.Errorf("%d secrets are left", n)
		}
	})
}
