package users_test

import (
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	publicURL = "https://postrider.test"
	password  = "seven lamps, one bridge"
	other     = "a quiet green harbour"
)

var home = users.Client{Address: "192.0.2.7", UserAgent: "Browser/1"}

// fixture is a service with a clock of its own, and what it did.
type fixture struct {
	*testing.T
	*users.Service
	d    *db.DB
	keys *keyring.Keyring

	mu    sync.Mutex
	at    time.Time
	mails []string
	told  map[string]bool // entries of the audit log
}

// each runs a test on both engines.
func each(t *testing.T, f func(t *testing.T, x *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, newFixture(t, d, users.Config{PublicURL: publicURL})) })
}

func newFixture(t *testing.T, d *db.DB, c users.Config) *fixture {
	t.Helper()
	keys, err := keyring.New(make([]byte, keyring.MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	x := &fixture{T: t, d: d, keys: keys, at: d.Now(), told: map[string]bool{}}
	c.HashMemory = 64
	x.Service, err = users.New(c, users.Deps{DB: d, Keys: keys, Log: slog.New(slog.DiscardHandler), Audit: audit.New(d, 0),
		TeamsOf:       func(context.Context, db.Reader, string) ([]string, error) { return nil, nil },
		OnUserDelete:  func(context.Context, *db.Tx, string) error { return nil },
		OnUserDisable: func(context.Context, *db.Tx, string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	x.Now = x.now
	x.Mail = func(_ context.Context, tx *db.Tx, to, subject, text string) error {
		tx.AfterCommit(func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.mails = append(x.mails, to+"\n"+subject+"\n"+text)
		})
		return nil
	}
	return x
}

func (x *fixture) now() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.at
}

// pass lets time pass.
func (x *fixture) pass(d time.Duration) {
	x.mu.Lock()
	x.at = x.at.Add(d)
	x.mu.Unlock()
	x.d.Hint(users.HintTopic, "") // the cache is kept by another clock
}

// settle does what waits to be done apart from requests.
func (x *fixture) settle() {
	x.Helper()
	ctx, cancel := context.WithCancel(x.Context())
	cancel()
	x.must(x.Service.Run(ctx))
}

// took returns what was recorded since it was called last.
func (x *fixture) took() string {
	x.Helper()
	x.settle()
	entries, _, _, err := x.Audit.List(x.Context(), "", audit.Filter{}, page.Page{Limit: 100})
	x.must(err)
	var all []string
	for _, e := range slices.Backward(entries) {
		if !x.told[e.ID] {
			x.told[e.ID] = true
			all = append(all, strings.TrimPrefix(e.Action, "user."))
		}
	}
	return strings.Join(all, " ")
}

// mailed returns the emails since it was called last.
func (x *fixture) mailed() []string {
	x.settle()
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.mails
	x.mails = nil
	return all
}

func (x *fixture) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// is fails the test unless err is a fault of the kind.
func (x *fixture) is(err error, kind fault.Kind) {
	x.Helper()
	if _, ok := errors.AsType[*fault.Error](err); !ok || fault.KindOf(err) != kind {
		x.Fatalf("error %v, want a fault of kind %d", err, kind)
	}
}

// field returns which field a fault of the kind Invalid is of.
func (x *fixture) field(err error) string {
	x.Helper()
	x.is(err, fault.Invalid)
	e, _ := errors.AsType[*fault.Error](err)
	return e.Field
}

func (x *fixture) user(email string) users.User {
	x.Helper()
	u, err := x.Create(x.Context(), users.NewUser{Email: email, Name: "Ada", Password: password})
	x.must(err)
	return u
}

func (x *fixture) attempt(email, password string) (users.Outcome, error) {
	return x.SignIn(x.Context(), users.Attempt{Email: email, Password: password, Client: home})
}

// session signs in and returns the session.
func (x *fixture) session(email, password string) users.Session {
	x.Helper()
	out, err := x.attempt(email, password)
	x.must(err)
	return x.of(out)
}

// of returns the session of an outcome.
func (x *fixture) of(out users.Outcome) users.Session {
	x.Helper()
	if out.Token == "" || out.Pending != "" {
		x.Fatalf("no session was begun: %+v", out)
	}
	s, _, err := x.Session(x.Context(), out.Token)
	x.must(err)
	return s
}

func TestSignIn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		u := x.user("Ada@Example.com")
		if u.Email != "ada@example.com" || !u.HasPassword || u.HasTOTP {
			t.Errorf("created %+v", u)
		}
		out, err := x.attempt(" ADA@example.COM ", password)
		x.must(err)
		s, got, err := x.Session(t.Context(), out.Token)
		x.must(err)
		if got.ID != u.ID || s.UserID != u.ID || s.Address != home.Address || s.UserAgent != home.UserAgent {
			t.Errorf("session %+v of %+v", s, got)
		}
		if got, err := x.Get(t.Context(), u.ID); err != nil || !got.LastSignInAt.Equal(x.now()) {
			t.Errorf("user %+v, %v; want the time of the sign-in %v", got, err, x.now())
		}
		again, err := x.attempt("ada@example.com", password)
		x.must(err)
		if again.Token == out.Token {
			t.Error("two sign-ins have one token")
		}
		if did := x.took(); did != "created signed_in signed_in" {
			t.Errorf("recorded %q", did)
		}
	})
}

// TestNoEnumeration compares what those see who do not sign in: an account, a disabled one, one without a password, and
// none.
func TestNoEnumeration(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.user("ada@example.com")
		off := x.user("off@example.com")
		x.must(x.SetDisabled(t.Context(), off.ID, true))
		_, err := x.Create(t.Context(), users.NewUser{Email: "bare@example.com"})
		x.must(err)
		seen := map[string]string{}
		for i, email := range []string{"ada@example.com", "off@example.com", "bare@example.com", "nobody@example.com"} {
			from := users.Client{Address: fmt.Sprintf("192.0.2.%d", 100+i)}
			for _, given := range []string{"wrong wrong wrong", "", strings.Repeat("x", 5000), other} {
				_, err := x.SignIn(t.Context(), users.Attempt{Email: email, Password: given, Client: from})
				x.is(err, fault.BadCredential)
				seen[email] += err.Error() + "\n"
			}
			for range 8 {
				_, err := x.SignIn(t.Context(), users.Attempt{Email: email, Password: "wrong wrong", Client: from})
				seen[email] += err.Error() + "\n"
			}
			for range 7 {
				seen[email] += fmt.Sprintln(x.RequestReset(t.Context(), email, from))
			}
			if seen[email] != seen["ada@example.com"] {
				t.Errorf("%s sees\n%s\nand not\n%s", email, seen[email], seen["ada@example.com"])
			}
		}
		if !strings.Contains(seen["ada@example.com"], "Try again in 60 minutes") {
			t.Errorf("no limit was met:\n%s", seen["ada@example.com"])
		}
		if _, err := x.attempt("off@example.com", password); fault.KindOf(err) != fault.TooFast {
			t.Errorf("sign-in of a disabled user: %v", err)
		}
		var to []string
		for _, m := range x.mailed() {
			address, _, _ := strings.Cut(m, "\n")
			to = append(to, address)
		}
		if got := strings.Join(to, " "); !strings.HasPrefix(got, "ada@example.com") || strings.Contains(got, "off@") ||
			strings.Contains(got, "nobody@") || len(to) != 10 {
			t.Errorf("mailed %q, want five each to the two who can use it", got)
		}
	})
}

func TestLimits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.user("ada@example.com")
		wrong := func(email, address string) error {
			_, err := x.SignIn(t.Context(), users.Attempt{Email: email, Password: "not the password",
				Client: users.Client{Address: address}})
			return err
		}
		for i := range 9 {
			x.is(wrong("ada@example.com", fmt.Sprintf("192.0.2.%d", i)), fault.BadCredential)
		}
		x.session("ada@example.com", password) // gives back what it counted, and no more
		x.is(wrong("ada@example.com", "192.0.2.50"), fault.BadCredential)
		_, err := x.attempt("ada@example.com", password)
		x.is(err, fault.TooFast)
		x.pass(59 * time.Minute)
		_, err = x.attempt("ada@example.com", password)
		x.is(err, fault.TooFast)
		if !strings.Contains(err.Error(), "in 1 minute.") {
			t.Errorf("the wait is %q", err)
		}
		x.pass(time.Minute)
		x.session("ada@example.com", password)

		// The addresses of an IPv6 /64 are one network, and a /56 and a /48 have room for some of the smaller ones. What has
		// been counted already stands for guesses that were made.
		count := func(network string, n int) {
			x.must(x.d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO user_attempts (name, since, n) VALUES ($1, $2, $3)
					ON CONFLICT (name) DO UPDATE SET n = $3`, "network:"+network, db.Micros(x.now()), n)
				return err
			}))
		}
		for _, c := range []struct {
			network      string
			most         int
			within, next string
		}{
			{"2001:db8:1:1::/64", 50, "2001:db8:1:1:ffff::1", "2001:db8:1:2::1"},
			{"2001:db8:2::/56", 150, "2001:db8:2:ff::1", "2001:db8:2:100::1"},
			{"2001:db8:3::/48", 500, "2001:db8:3:ffff::1", "2001:db8:4::1"},
		} {
			count(c.network, c.most-1)
			x.is(wrong("one@example.com", c.within), fault.BadCredential)
			rows := x.attempts()
			x.is(wrong("another@example.com", c.within), fault.TooFast)
			if n := x.attempts(); n != rows {
				t.Errorf("%s: what was refused left %d rows", c.network, n-rows)
			}
			x.is(wrong("more@example.com", c.next), fault.BadCredential)
		}
		rows := x.attempts()
		for i := range 3 { // what succeeds leaves nothing
			_, err := x.SignIn(t.Context(), users.Attempt{Email: "ada@example.com", Password: password,
				Client: users.Client{Address: fmt.Sprintf("2001:db8:5:%d::1", i)}})
			x.must(err)
		}
		if n := x.attempts(); n != rows {
			t.Errorf("three sign-ins left %d rows", n-rows)
		}
	})
}

// attempts counts the rows of what is counted.
func (x *fixture) attempts() (n int) {
	x.Helper()
	x.must(x.d.QueryRow(x.Context(), `SELECT COUNT(*) FROM user_attempts`).Scan(&n))
	return n
}

// TestAttemptsThatAreNotJudged signs in while too many do: what was not judged does not count.
func TestAttemptsThatAreNotJudged(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		x.user("ada@example.com")
		s := x.session("ada@example.com", password)
		leave, err := x.CrowdHashes(ctx)
		x.must(err)
		for range 10 {
			_, err := x.attempt("ada@example.com", password)
			x.is(err, fault.TooFast)
			x.is(x.ProvePassword(ctx, s, password), fault.TooFast)
		}
		leave()
		x.session("ada@example.com", password)
	})
}

// TestLimitsAfterAWrongClock tries while the clock is wrong: when it is right again, nobody waits for that time.
func TestLimitsAfterAWrongClock(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.user("ada@example.com")
		x.pass(365 * 24 * time.Hour)
		for range 10 {
			_, err := x.attempt("ada@example.com", "not the password")
			x.is(err, fault.BadCredential)
		}
		_, err := x.attempt("ada@example.com", password)
		x.is(err, fault.TooFast)
		x.user("bob@example.com")
		out, err := x.attempt("bob@example.com", password)
		x.must(err)
		x.pass(-365 * 24 * time.Hour)
		x.session("ada@example.com", password)
		if s := x.of(out); s.Fresh(x.now()) {
			t.Error("a proof of the next year is recent")
		}
	})
}

// TestAttemptsAtOnce guesses with many requests at the same time: no more are judged than the limit allows.
func TestAttemptsAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.user("ada@example.com")
		var wg sync.WaitGroup
		kinds := make([]fault.Kind, 30)
		for i := range kinds {
			wg.Go(func() {
				_, err := x.attempt("ada@example.com", "not the password")
				kinds[i] = fault.KindOf(err)
			})
		}
		wg.Wait()
		judged := 0
		for _, k := range kinds {
			switch k {
			case fault.BadCredential:
				judged++
			case fault.TooFast:
			default:
				t.Errorf("a fault of kind %d", k)
			}
		}
		if judged != 10 {
			t.Errorf("%d passwords were judged, want 10", judged)
		}
	})
}

func TestSessions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		out, err := x.attempt(u.Email, password)
		x.must(err)
		first := x.of(out)
		if !first.ExpiresAt.Equal(x.now().Add(14 * 24 * time.Hour)) {
			t.Errorf("expires at %v", first.ExpiresAt)
		}
		for _, bad := range []string{"", "x", out.Token[1:], out.Token + "x", strings.ToUpper(out.Token), first.ID} {
			_, _, err := x.Session(ctx, bad)
			x.is(err, fault.BadCredential)
		}

		// It lasts while it is used, and 90 days at most.
		x.pass(13 * 24 * time.Hour)
		used := x.of(out)
		if !used.UsedAt.Equal(x.now()) {
			t.Errorf("used at %v, want %v", used.UsedAt, x.now())
		}
		x.pass(30 * time.Second)
		if again := x.of(out); !again.UsedAt.Equal(used.UsedAt) {
			t.Error("a use within a minute was written")
		}
		for range 5 {
			x.pass(13 * 24 * time.Hour)
			x.of(out)
		}
		x.pass(12*24*time.Hour - time.Minute)
		last := x.of(out)
		if left := last.ExpiresAt.Sub(x.now()); left > time.Minute {
			t.Errorf("it has %v left", left)
		}
		x.pass(time.Minute)
		_, _, err = x.Session(ctx, out.Token)
		x.is(err, fault.BadCredential)

		out, err = x.attempt(u.Email, password)
		x.must(err)
		x.pass(14 * 24 * time.Hour)
		_, _, err = x.Session(ctx, out.Token)
		x.is(err, fault.BadCredential)
		if all, err := x.Sessions(ctx, u.ID); err != nil || len(all) != 0 {
			t.Errorf("sessions %v, %v; want none that has not ended", all, err)
		}

		// Ending one, and all others.
		one, err := x.attempt(u.Email, password)
		x.must(err)
		two, three := x.session(u.Email, password), x.session(u.Email, password)
		x.must(x.SetTeam(ctx, three.ID, "team"))
		if next := x.session(u.Email, password); next.TeamID != "team" {
			t.Errorf("the next session looks at team %q", next.TeamID)
		}
		intruder := x.user("eve@example.com")
		x.is(x.EndSession(ctx, intruder.ID, two.ID), fault.NotFound)
		x.must(x.EndSession(ctx, u.ID, two.ID))
		if all, err := x.Sessions(ctx, u.ID); err != nil || len(all) != 3 || all[0].CreatedAt.Before(all[2].CreatedAt) {
			t.Errorf("sessions %v, %v; want three, newest first", all, err)
		}
		x.must(x.EndSessions(ctx, u.ID, x.of(one).ID))
		if all, err := x.Sessions(ctx, u.ID); err != nil || len(all) != 1 || all[0].ID != x.of(one).ID {
			t.Errorf("sessions %v, %v; want one", all, err)
		}
		x.must(x.SetDisabled(ctx, u.ID, true))
		_, _, err = x.Session(ctx, one.Token)
		x.is(err, fault.BadCredential)
	})
}

// TestSessionEndsOnOtherNodes ends a session that another node has in its cache.
func TestSessionEndsOnOtherNodes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		u := x.user("ada@example.com")
		beside := newFixture(t, x.d, users.Config{PublicURL: publicURL})
		out, err := x.attempt(u.Email, password)
		x.must(err)
		_, _, err = beside.Session(t.Context(), out.Token)
		x.must(err)
		x.must(x.EndSessions(t.Context(), u.ID, ""))
		_, _, err = beside.Session(t.Context(), out.Token)
		x.is(err, fault.BadCredential)
	})
}

func TestTooManySessions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		u := x.user("ada@example.com")
		var first string
		for i := range 52 {
			x.must(x.d.Update(t.Context(), func(tx *db.Tx) error {
				token, err := x.StartIn(t.Context(), tx, u, "a test", home)
				if i == 0 {
					first = token
				}
				return err
			}))
			if i == 49 {
				_, _, err := x.Session(t.Context(), first) // and remember it
				x.must(err)
			}
		}
		if all, err := x.Sessions(t.Context(), u.ID); err != nil || len(all) != 50 {
			t.Errorf("%d sessions, %v; want 50", len(all), err)
		}
		_, _, err := x.Session(t.Context(), first)
		x.is(err, fault.BadCredential)
	})
}

func TestPasswords(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		out, err := x.attempt(u.Email, password)
		x.must(err)
		elsewhere, err := x.attempt(u.Email, password)
		x.must(err)
		s := x.of(out)
		for range 20 { // does not count: the password is not a wrong one
			if f := x.field(x.SetPassword(ctx, s, password, "short")); f != "password" {
				t.Errorf("a short password is blamed on %q", f)
			}
		}
		if f := x.field(x.SetPassword(ctx, s, "not the password", other)); f != "current" {
			t.Errorf("a wrong password is blamed on %q", f)
		}
		x.must(x.SetPassword(ctx, s, password, other))
		x.of(out)
		_, _, err = x.Session(ctx, elsewhere.Token)
		x.is(err, fault.BadCredential)
		_, err = x.attempt(u.Email, password)
		x.is(err, fault.BadCredential)
		x.session(u.Email, other)
		if did := x.took(); !strings.Contains(did, "password_changed") {
			t.Errorf("recorded %q", did)
		}

		// A proof lasts for a quarter of an hour.
		x.pass(15 * time.Minute)
		s = x.of(out)
		if _, err := x.BeginTOTP(ctx, s); !errors.Is(err, users.ErrProve) {
			t.Errorf("an old proof: %v", err)
		}
		x.is(x.ProvePassword(ctx, s, password), fault.Invalid)
		x.must(x.ProvePassword(ctx, s, other))
		if s = x.of(out); !s.Fresh(x.now()) {
			t.Error("the proof was not renewed")
		}
	})
}

func TestUsers(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		if any, err := x.Any(ctx); err != nil || any {
			t.Errorf("any user: %v, %v", any, err)
		}
		u := x.user("ada@example.com")
		for _, n := range []users.NewUser{{Email: "ADA@example.com"}, {Email: "ada"},
			{Email: "b@example.com", Name: "a\x00b"},
			{Email: "b@example.com", Password: "too short"}} {
			_, err := x.Create(ctx, n)
			x.is(err, fault.Invalid)
		}
		// Two at the same time: the index decides.
		var wg sync.WaitGroup
		errs := make([]error, 4)
		for i := range errs {
			wg.Go(func() { _, errs[i] = x.Create(ctx, users.NewUser{Email: "new@example.com"}) })
		}
		wg.Wait()
		made := 0
		for _, err := range errs {
			if err == nil {
				made++
			} else {
				x.is(err, fault.Invalid)
			}
		}
		if made != 1 {
			t.Errorf("%d users have one address", made)
		}
		x.must(x.Rename(ctx, u.ID, " Ada L. "))
		got, err := x.ByEmail(ctx, "Ada@Example.com")
		x.must(err)
		if got.Name != "Ada L." {
			t.Errorf("user %+v", got)
		}
		all, err := x.List(ctx, "", 10)
		x.must(err)
		if len(all) != 2 || all[0].ID != u.ID {
			t.Errorf("users %+v", all)
		}
		if rest, err := x.List(ctx, u.ID, 10); err != nil || len(rest) != 1 {
			t.Errorf("the rest %+v, %v", rest, err)
		}
		s := x.session(u.Email, password)
		x.OnUserDelete = func(context.Context, *db.Tx, string) error { return fault.Forbiddenf("", "The only owner.") }
		x.is(x.Delete(ctx, u.ID), fault.Forbidden)
		x.OnUserDelete = func(context.Context, *db.Tx, string) error { return nil }
		x.must(x.Delete(ctx, u.ID))
		x.is(x.Delete(ctx, u.ID), fault.NotFound)
		x.is(x.SetTeam(ctx, s.ID, "t"), fault.BadCredential)
		_, err = x.Get(ctx, u.ID)
		x.is(err, fault.NotFound)
	})
}

func TestSetupLink(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		old := tokenOf(t, x, "/setup")
		token := tokenOf(t, x, "/setup")
		x.is(x.CheckSetup(ctx, old), fault.NotFound)
		x.must(x.CheckSetup(ctx, token))
		use := func(token, email string) error {
			draft, err := x.Prepare(ctx, users.NewUser{Email: email, Password: password})
			x.must(err)
			return x.d.Update(ctx, func(tx *db.Tx) error {
				if err := x.UseSetupIn(ctx, tx, token); err != nil {
					return err
				}
				_, err := x.CreateIn(ctx, tx, draft)
				return err
			})
		}
		x.is(use(old, "eve@example.com"), fault.NotFound)
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() { errs[i] = use(token, fmt.Sprintf("owner%d@example.com", i)) })
		}
		wg.Wait()
		if all, err := x.List(ctx, "", 10); err != nil || len(all) != 1 {
			t.Errorf("one link made the users %v, %v; %v", all, err, errs)
		}
		if link, err := x.SetupLink(ctx); err != nil || link != "" {
			t.Errorf("a link %q, %v with a user", link, err)
		}
		x.is(x.CheckSetup(ctx, token), fault.NotFound)
	})
	each(t, func(t *testing.T, x *fixture) {
		token := tokenOf(t, x, "/setup")
		x.pass(72 * time.Hour)
		x.is(x.CheckSetup(t.Context(), token), fault.NotFound)
	})
}

// tokenOf makes a set-up link and returns its token.
func tokenOf(t *testing.T, x *fixture, path string) string {
	t.Helper()
	link, err := x.SetupLink(t.Context())
	x.must(err)
	return linkToken(t, link, path)
}

func linkToken(t *testing.T, link, path string) string {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil || u.Scheme+"://"+u.Host != publicURL || u.Path != path || u.Query().Get("token") == "" {
		t.Fatalf("link %q, %v; want one to %s", link, err, path)
	}
	return u.Query().Get("token")
}

func TestReset(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		ask := func() string {
			x.must(x.RequestReset(ctx, "Ada@example.com", home))
			all := x.mailed()
			if len(all) != 1 || !strings.HasPrefix(all[0], u.Email+"\n") {
				t.Fatalf("mailed %q", all)
			}
			for line := range strings.Lines(all[0]) {
				if strings.HasPrefix(line, publicURL) {
					return linkToken(t, strings.TrimSpace(line), "/password/reset")
				}
			}
			t.Fatalf("no link in %q", all[0])
			return ""
		}
		old, token := ask(), ask()
		_, err := x.CheckReset(ctx, old)
		x.is(err, fault.NotFound)
		got, err := x.CheckReset(ctx, token)
		x.must(err)
		if got.ID != u.ID {
			t.Errorf("the link is of %+v", got)
		}
		out, err := x.attempt(u.Email, password)
		x.must(err)
		for range 10 { // someone guesses meanwhile
			_, err = x.attempt(u.Email, "not the password")
			x.is(err, fault.BadCredential)
		}
		x.is(x.Reset(ctx, token, "short", home), fault.Invalid)
		x.must(x.Reset(ctx, token, other, home))
		x.is(x.Reset(ctx, token, other, home), fault.NotFound)
		_, _, err = x.Session(ctx, out.Token)
		x.is(err, fault.BadCredential)
		x.session(u.Email, other) // the account does not wait any more

		token = ask()
		x.pass(time.Hour)
		x.is(x.Reset(ctx, token, password, home), fault.NotFound)

		link, err := x.ResetLink(ctx, u.ID)
		x.must(err)
		x.must(x.SetDisabled(ctx, u.ID, true))
		x.is(x.Reset(ctx, linkToken(t, link, "/password/reset"), password, home), fault.NotFound)
		_, err = x.ResetLink(ctx, u.ID)
		x.is(err, fault.Forbidden)
	})
}

// code is the code of a TOTP secret at a time.
func code(t *testing.T, secret string, at time.Time) string {
	t.Helper()
	c, err := totp.GenerateCode(secret, at)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withTOTP turns the second factor on and returns the secret and the recovery codes.
func (x *fixture) withTOTP(s users.Session) (secret string, codes []string) {
	x.Helper()
	setup, err := x.BeginTOTP(x.Context(), s)
	x.must(err)
	codes, err = x.ConfirmTOTP(x.Context(), s, setup.Token, code(x.T, setup.Secret, x.now()))
	x.must(err)
	return setup.Secret, codes
}

func TestTOTP(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		s := x.session(u.Email, password)
		setup, err := x.BeginTOTP(ctx, s)
		x.must(err)
		if got, err := url.Parse(setup.URL); err != nil || got.Scheme != "otpauth" ||
			got.Query().Get("secret") != setup.Secret || !strings.Contains(got.Path, u.Email) ||
			!strings.HasPrefix(string(setup.PNG), "\x89PNG") {
			t.Errorf("set up by %q, %v, and %d octets", setup.URL, err, len(setup.PNG))
		}
		b, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(setup.Secret)
		if err != nil || len(b) < 20 {
			t.Errorf("the secret has %d octets, %v", len(b), err)
		}
		eve := x.user("eve@example.com")
		_, err = x.ConfirmTOTP(ctx, x.session(eve.Email, password), setup.Token, code(t, setup.Secret, x.now()))
		x.is(err, fault.Invalid)
		_, err = x.ConfirmTOTP(ctx, s, setup.Token, "000000x")
		x.is(err, fault.Invalid)
		if u, _ := x.Get(ctx, u.ID); u.HasTOTP {
			t.Error("the second factor is on before it was confirmed")
		}
		secret, codes := x.withTOTP(s)
		if left, err := x.RecoveryCodesLeft(ctx, u.ID); err != nil || left != 10 || len(codes) != 10 {
			t.Errorf("%d recovery codes of %d, %v", left, len(codes), err)
		}

		pending := func() string {
			out, err := x.attempt(u.Email, password)
			x.must(err)
			if out.Token != "" || out.Pending == "" {
				t.Fatalf("the second factor is not asked for: %+v", out)
			}
			_, _, err = x.Session(ctx, out.Pending)
			x.is(err, fault.BadCredential)
			return out.Pending
		}
		second := func(pending, code string) (users.Outcome, error) {
			return x.SecondFactor(ctx, pending, code, home)
		}
		// The code that confirmed it was used.
		p := pending()
		_, err = second(p, code(t, secret, x.now()))
		x.is(err, fault.Invalid)
		x.pass(time.Minute)
		now := code(t, secret, x.now())
		out, err := second(p, now[:3]+" "+now[3:])
		x.must(err)
		x.of(out)
		_, err = second(p, now)
		x.is(err, fault.BadCredential)
		_, err = second(pending(), now)
		x.is(err, fault.Invalid)

		// A step of drift, and no more.
		x.pass(time.Hour)
		_, err = second(pending(), code(t, secret, x.now().Add(-time.Minute)))
		x.is(err, fault.Invalid)
		_, err = second(pending(), code(t, secret, x.now().Add(time.Minute)))
		x.is(err, fault.Invalid)
		_, err = second(pending(), code(t, secret, x.now().Add(-30*time.Second)))
		x.must(err)
		_, err = second(pending(), code(t, secret, x.now().Add(30*time.Second)))
		x.must(err)
		_, err = second(pending(), code(t, secret, x.now()))
		x.is(err, fault.Invalid) // before the one that was used

		// Recovery codes, each once, however they are written.
		out, err = second(pending(), strings.ToUpper(strings.ReplaceAll(codes[3], "-", " ")))
		x.must(err)
		_, err = second(pending(), codes[3])
		x.is(err, fault.Invalid)
		if left, err := x.RecoveryCodesLeft(ctx, u.ID); err != nil || left != 9 {
			t.Errorf("%d recovery codes left, %v", left, err)
		}
		s = x.of(out)
		anew, err := x.NewRecoveryCodes(ctx, s)
		x.must(err)
		_, err = second(pending(), codes[4])
		x.is(err, fault.Invalid)
		_, err = second(pending(), anew[4])
		x.must(err)

		// The wait for it ends.
		x.pass(time.Hour)
		p = pending()
		x.pass(5 * time.Minute)
		_, err = second(p, code(t, secret, x.now()))
		x.is(err, fault.BadCredential)

		if err := x.DisableTOTP(ctx, s); !errors.Is(err, users.ErrProve) {
			t.Errorf("turned off without a proof: %v", err)
		}
		x.must(x.ProvePassword(ctx, s, password))
		s, _, err = x.Session(ctx, out.Token)
		x.must(err)
		x.took()
		x.must(x.DisableTOTP(ctx, s))
		x.must(x.DisableTOTP(ctx, s)) // changes nothing, and is not recorded
		if did := x.took(); did != "factor_removed" {
			t.Errorf("recorded %q", did)
		}
		x.session(u.Email, password)
		if left, err := x.RecoveryCodesLeft(ctx, u.ID); err != nil || left != 0 {
			t.Errorf("%d recovery codes left, %v", left, err)
		}
	})
}

func TestCodesAreLimited(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		secret, _ := x.withTOTP(x.session(u.Email, password))
		x.pass(time.Minute)
		pending := func() string {
			out, err := x.attempt(u.Email, password)
			x.must(err)
			return out.Pending
		}
		p := pending()
		for range 5 {
			_, err := x.SecondFactor(ctx, p, "abcdef", home)
			x.is(err, fault.Invalid)
		}
		_, err := x.SecondFactor(ctx, p, code(t, secret, x.now()), home)
		x.is(err, fault.BadCredential)
		p = pending()
		for range 4 {
			_, err := x.SecondFactor(ctx, p, "abcdef", home)
			x.is(err, fault.Invalid)
		}
		_, err = x.SecondFactor(ctx, pending(), code(t, secret, x.now()), home)
		x.is(err, fault.TooFast) // ten of the account, however many sign-ins were begun
		x.pass(time.Hour)
		_, err = x.SecondFactor(ctx, pending(), code(t, secret, x.now()), home)
		x.must(err)
		for _, bad := range []string{"", "x", p} {
			_, err = x.SecondFactor(ctx, bad, code(t, secret, x.now()), home)
			x.is(err, fault.BadCredential)
		}
	})
}

// TestOneCodeAtOnce gives one code in two sign-ins at the same time.
func TestOneCodeAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		u := x.user("ada@example.com")
		secret, codes := x.withTOTP(x.session(u.Email, password))
		x.pass(time.Minute)
		for _, given := range []string{code(t, secret, x.now()), codes[0]} {
			var wg sync.WaitGroup
			errs := make([]error, 4)
			for i := range errs {
				out, err := x.attempt(u.Email, password)
				x.must(err)
				wg.Go(func() { _, errs[i] = x.SecondFactor(t.Context(), out.Pending, given, home) })
			}
			wg.Wait()
			used := 0
			for _, err := range errs {
				if err == nil {
					used++
				}
			}
			if used != 1 {
				t.Errorf("a code was used %d times: %v", used, errs)
			}
			x.pass(time.Hour)
		}
	})
}

func TestClearFactors(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		u := x.user("ada@example.com")
		x.withTOTP(x.session(u.Email, password))
		x.must(x.ClearFactors(t.Context(), u.ID))
		x.session(u.Email, password)
		if all, err := x.Sessions(t.Context(), u.ID); err != nil || len(all) != 1 {
			t.Errorf("sessions %v, %v", all, err)
		}
	})
}

func TestSweep(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		x.session(u.Email, password)
		_, err := x.attempt(u.Email, "not the password")
		x.is(err, fault.BadCredential)
		_, err = x.ResetLink(ctx, u.ID)
		x.must(err)
		rows := func() (n [3]int) {
			for i, table := range []string{"user_sessions", "user_tokens", "user_attempts"} {
				x.must(x.d.QueryRow(ctx, `SELECT COUNT(*) FROM `+table).Scan(&n[i]))
			}
			return n
		}
		x.must(x.Sweep(ctx))
		if got := rows(); got != [3]int{1, 1, 2} {
			t.Errorf("rows %v: what has not expired was deleted", got)
		}
		x.pass(14*24*time.Hour + time.Second)
		x.must(x.Sweep(ctx))
		if got := rows(); got != [3]int{} {
			t.Errorf("rows %v are left", got)
		}
	})
}
