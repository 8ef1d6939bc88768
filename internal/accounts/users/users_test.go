package users_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

const (
	publicURL = "https://postrider.test"
	password  = "seven lamps, one bridge"
	other     = "a quiet green harbour"
)

var home = users.Client{Address: "192.0.2.7", UserAgent: "Browser/1"}

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

// TestNoEnumeration checks that the responses are the same for an existing account, a disabled account, an account
// without a password, and an unknown address.
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
		for range 20 { // an unacceptable new password does not count as a wrong password
			if f := x.field(x.SetPassword(ctx, s, password, "short", home)); f != "password" {
				t.Errorf("a short password is blamed on %q", f)
			}
		}
		if f := x.field(x.SetPassword(ctx, s, "not the password", other, home)); f != "current" {
			t.Errorf("a wrong password is blamed on %q", f)
		}
		x.must(x.SetPassword(ctx, s, password, other, home))
		x.of(out)
		_, _, err = x.Session(ctx, elsewhere.Token)
		x.is(err, fault.BadCredential)
		_, err = x.attempt(u.Email, password)
		x.is(err, fault.BadCredential)
		x.session(u.Email, other)
		if did := x.took(); !strings.Contains(did, "password_changed") {
			t.Errorf("recorded %q", did)
		}

		// A proof of identity is valid for 15 minutes.
		x.pass(15 * time.Minute)
		s = x.of(out)
		if _, err := x.BeginTOTP(ctx, s); !errors.Is(err, users.ErrProve) {
			t.Errorf("an old proof: %v", err)
		}
		x.is(x.ProvePassword(ctx, s, password, home), fault.Invalid)
		x.must(x.ProvePassword(ctx, s, other, home))
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
		// If two concurrent transactions create a user with the same address, the unique index rejects one of them.
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
		x.is(x.SetTeam(ctx, s.ID, dbtest.ID("t")), fault.BadCredential)
		_, err = x.Get(ctx, u.ID)
		x.is(err, fault.NotFound)
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
