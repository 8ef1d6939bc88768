package users_test

import (
	"encoding/base32"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
)

// code returns the TOTP code for a secret at a given time.
func code(t *testing.T, secret string, at time.Time) string {
	t.Helper()
	c, err := totp.GenerateCode(secret, at)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// withTOTP turns on the TOTP second factor and returns the secret and the recovery codes.
func (x *fixture) withTOTP(s users.Session) (secret string, codes []string) {
	x.Helper()
	setup, err := x.BeginTOTP(x.Context(), s)
	x.must(err)
	codes, err = x.ConfirmTOTP(x.Context(), s, setup.Token, code(x.T, setup.Secret, x.now()), home)
	x.must(err)
	return setup.Secret, codes
}

// pending signs in with the password and returns the token for the second factor.
func (x *fixture) pending(u users.User) string {
	x.Helper()
	out, err := x.attempt(u.Email, password)
	x.must(err)
	if out.Token != "" || out.Pending == "" {
		x.Fatalf("no second factor is required: %+v", out)
	}
	_, _, err = x.Session(x.Context(), out.Pending)
	x.is(err, fault.BadCredential)
	return out.Pending
}

// A TOTP secret becomes the second factor only when the user for whom it was created confirms it with a code.
func TestConfirmTOTP(t *testing.T) {
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
			t.Errorf("set up by %q, %v, and %d bytes", setup.URL, err, len(setup.PNG))
		}
		b, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(setup.Secret)
		if err != nil || len(b) < 20 {
			t.Errorf("the secret has %d bytes, %v", len(b), err)
		}
		eve := x.user("eve@example.com")
		_, err = x.ConfirmTOTP(ctx, x.session(eve.Email, password), setup.Token, code(t, setup.Secret, x.now()), home)
		x.is(err, fault.Invalid)
		_, err = x.ConfirmTOTP(ctx, s, setup.Token, "000000x", home)
		x.is(err, fault.Invalid)
		if u, _ := x.Get(ctx, u.ID); u.HasTOTP {
			t.Error("the second factor is on before it was confirmed")
		}
		_, codes := x.withTOTP(s)
		if left, err := x.RecoveryCodesLeft(ctx, u.ID); err != nil || left != 10 || len(codes) != 10 {
			t.Errorf("%d recovery codes of %d, %v", left, len(codes), err)
		}
	})
}

// A TOTP code works once, may be off by one time step, and must be entered within five minutes after the password.
func TestTOTP(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		s := x.session(u.Email, password)
		secret, _ := x.withTOTP(s)
		second := func(pending, code string) (users.Outcome, error) { return x.SecondFactor(ctx, pending, code, home) }
		// The TOTP code that confirmed the secret cannot be used for a sign-in.
		p := x.pending(u)
		_, err := second(p, code(t, secret, x.now()))
		x.is(err, fault.Invalid)
		x.pass(time.Minute)
		now := code(t, secret, x.now())
		out, err := second(p, now[:3]+" "+now[3:])
		x.must(err)
		x.of(out)
		_, err = second(p, now)
		x.is(err, fault.BadCredential)
		_, err = second(x.pending(u), now)
		x.is(err, fault.Invalid)

		// A TOTP code may be one time step early or late, but not two.
		x.pass(time.Hour)
		_, err = second(x.pending(u), code(t, secret, x.now().Add(-time.Minute)))
		x.is(err, fault.Invalid)
		_, err = second(x.pending(u), code(t, secret, x.now().Add(time.Minute)))
		x.is(err, fault.Invalid)
		_, err = second(x.pending(u), code(t, secret, x.now().Add(-30*time.Second)))
		x.must(err)
		_, err = second(x.pending(u), code(t, secret, x.now().Add(30*time.Second)))
		x.must(err)
		_, err = second(x.pending(u), code(t, secret, x.now()))
		x.is(err, fault.Invalid) // refused because a code from a later step has been used

		// The second factor must be entered before the pending sign-in expires.
		x.pass(time.Hour)
		p = x.pending(u)
		x.pass(5 * time.Minute)
		_, err = second(p, code(t, secret, x.now()))
		x.is(err, fault.BadCredential)
	})
}

// Each recovery code works once, and creating new recovery codes invalidates the old ones.
func TestRecoveryCodes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		s := x.session(u.Email, password)
		_, codes := x.withTOTP(s)
		second := func(pending, code string) (users.Outcome, error) { return x.SecondFactor(ctx, pending, code, home) }
		// Recovery codes are accepted regardless of case, spaces and hyphens.
		out, err := second(x.pending(u), strings.ToUpper(strings.ReplaceAll(codes[3], "-", " ")))
		x.must(err)
		_, err = second(x.pending(u), codes[3])
		x.is(err, fault.Invalid)
		if left, err := x.RecoveryCodesLeft(ctx, u.ID); err != nil || left != 9 {
			t.Errorf("%d recovery codes left, %v", left, err)
		}
		s = x.of(out)
		anew, err := x.NewRecoveryCodes(ctx, s, home)
		x.must(err)
		_, err = second(x.pending(u), codes[4])
		x.is(err, fault.Invalid)
		_, err = second(x.pending(u), anew[4])
		x.must(err)
	})
}

// Turning off the second factor requires a recent proof of identity, is recorded once in the audit log, and deletes the
// recovery codes.
func TestDisableTOTP(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		out, err := x.attempt(u.Email, password)
		x.must(err)
		s := x.of(out)
		x.withTOTP(s)
		x.pass(time.Hour)
		if err := x.DisableTOTP(ctx, s, home); !errors.Is(err, users.ErrProve) {
			t.Errorf("turned off without a proof: %v", err)
		}
		x.must(x.ProvePassword(ctx, s, password, home))
		s, _, err = x.Session(ctx, out.Token)
		x.must(err)
		x.took()
		x.must(x.DisableTOTP(ctx, s, home))
		x.must(x.DisableTOTP(ctx, s, home)) // a second call changes nothing and is not recorded
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
		x.is(err, fault.TooFast) // an account allows ten wrong codes, regardless of the number of pending sign-ins
		x.pass(time.Hour)
		_, err = x.SecondFactor(ctx, pending(), code(t, secret, x.now()), home)
		x.must(err)
		for _, bad := range []string{"", "x", p} {
			_, err = x.SecondFactor(ctx, bad, code(t, secret, x.now()), home)
			x.is(err, fault.BadCredential)
		}
	})
}

// TestOneCodeAtOnce checks that only one of two concurrent sign-ins with the same TOTP code succeeds.
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
