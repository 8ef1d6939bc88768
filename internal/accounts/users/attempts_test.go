package users_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

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
		x.session("ada@example.com", password) // a successful sign-in refunds only its own attempt
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

		// All addresses in an IPv6 /64 count as one network; a /56 and a /48 have higher limits.
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
		for i := range 3 { // successful attempts leave no rows
			_, err := x.SignIn(t.Context(), users.Attempt{Email: "ada@example.com", Password: password,
				Client: users.Client{Address: fmt.Sprintf("2001:db8:5:%d::1", i)}})
			x.must(err)
		}
		if n := x.attempts(); n != rows {
			t.Errorf("three sign-ins left %d rows", n-rows)
		}
	})
}

// attempts returns the number of rows in the table of counted attempts.
func (x *fixture) attempts() (n int) {
	x.Helper()
	x.must(x.d.QueryRow(x.Context(), `SELECT COUNT(*) FROM user_attempts`).Scan(&n))
	return n
}

// TestAttemptsThatAreNotJudged checks that a sign-in attempt does not count if the server is too busy with other hashes
// to check the password.
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
			x.is(x.ProvePassword(ctx, s, password, home), fault.TooFast)
		}
		leave()
		x.session("ada@example.com", password)
	})
}

// TestLimitsAfterAWrongClock checks that attempts counted while the clock was wrong do not keep an account locked once
// the clock has been corrected.
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

// Other people's wrong passwords do not keep a signed-in user from confirming a change, even if they come from the same
// network. Each session has a limit on wrong passwords, and so have all sessions of a user together.
func TestLimitsOfProofs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		s := x.session(u.Email, password)
		var err error
		for i := range 60 {
			_, err = x.SignIn(ctx, users.Attempt{Email: fmt.Sprintf("user%d@example.com", i), Password: "not the password",
				Client: home})
		}
		x.is(err, fault.TooFast)
		x.must(x.ProvePassword(ctx, s, password, home))

		elsewhere := users.Client{Address: "198.51.100.77"}
		session := func() users.Session {
			out, err := x.SignIn(ctx, users.Attempt{Email: u.Email, Password: password, Client: elsewhere})
			x.must(err)
			return x.of(out)
		}
		for range 10 {
			x.is(x.ProvePassword(ctx, s, "not the password", home), fault.Invalid)
		}
		x.is(x.ProvePassword(ctx, s, password, home), fault.TooFast)
		for range 4 {
			other := session()
			for range 10 {
				x.is(x.ProvePassword(ctx, other, "not the password", elsewhere), fault.Invalid)
			}
		}
		x.is(x.ProvePassword(ctx, session(), password, elsewhere), fault.TooFast)
		x.pass(time.Hour)
		x.must(x.ProvePassword(ctx, s, password, home))
	})
}

// TestAttemptsAtOnce checks that concurrent requests with wrong passwords cannot exceed the attempt limit.
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
