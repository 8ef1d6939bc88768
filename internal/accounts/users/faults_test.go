package users_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A sign-in with a wrong password, or a request for a reset link, runs the same SQL statements whether or not an active
// account exists. If the statements differed, the response time would reveal which accounts exist.
func TestSameWork(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		x := newFixture(t, d, users.Config{PublicURL: publicURL})
		x.user("ada@example.com")
		off := x.user("off@example.com")
		x.must(x.SetDisabled(t.Context(), off.ID, true))
		seen := map[string][]string{}
		for _, email := range []string{"ada@example.com", "off@example.com", "nobody@example.com"} {
			trace.Take()
			_, err := x.attempt(email, "not the password")
			x.is(err, fault.BadCredential)
			x.must(x.RequestReset(t.Context(), email, home))
			for _, s := range trace.Take() {
				seen[email] = append(seen[email], s.SQL)
			}
			x.settle()
			if !slices.Equal(seen[email], seen["ada@example.com"]) {
				t.Errorf("for %s:\n%s\nand not\n%s", email, strings.Join(seen[email], "\n"),
					strings.Join(seen["ada@example.com"], "\n"))
			}
		}
		if len(seen["ada@example.com"]) < 4 {
			t.Errorf("only %q was asked", seen["ada@example.com"])
		}
	})
}

// TestBroken makes each SQL statement fail in turn. TestBroken checks that each failure is an internal error and that
// the operation can be retried, because a failed transaction does not consume a code, link or challenge.
func TestBroken(t *testing.T) {
	t.Parallel()
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		x := newFixture(t, d, users.Config{PublicURL: publicURL})
		ctx := t.Context()
		u := x.user("ada@example.com")
		v, key := x.passkey(x.session(u.Email, password), "")
		secret, codes := x.withTOTP(x.session(u.Email, password))
		x.pass(time.Minute)
		fresh := func() { // delete the counts of failed attempts
			x.must(d.Update(ctx, func(tx *db.Tx) error {
				_, err := tx.Exec(ctx, `DELETE FROM user_attempts`)
				return err
			}))
		}
		try := func(name string, least int, act func() error) {
			t.Helper()
			if failed := trace.EachBroken(t, fresh, act, nil); failed < least {
				t.Errorf("%s: %d statements broke, want %d at least", name, failed, least)
			}
		}
		var out users.Outcome
		try("SignIn", 4, func() (err error) {
			out, err = x.attempt(u.Email, password)
			return err
		})
		try("SecondFactor", 8, func() (err error) {
			_, err = x.SecondFactor(ctx, out.Pending, code(t, secret, x.now()), home)
			return err
		})
		out, err := x.attempt(u.Email, password)
		x.must(err)
		pending := out.Pending
		try("SecondFactor by a recovery code", 8, func() (err error) {
			out, err = x.SecondFactor(ctx, pending, codes[0], home)
			return err
		})
		x.d.Hint(users.HintTopic, u.ID)
		try("Session", 1, func() error {
			_, _, err := x.Session(ctx, out.Token)
			return err
		})
		s := x.of(out)
		c, err := x.BeginPasskeySignIn(ctx)
		x.must(err)
		v.key.Counter = 1
		answer := v.sign(c)
		try("FinishPasskeySignIn", 6, func() error {
			_, err := x.FinishPasskeySignIn(ctx, c.Token, answer, home)
			return err
		})
		var setup users.TOTPSetup
		try("BeginTOTP", 1, func() (err error) {
			setup, err = x.BeginTOTP(ctx, s)
			return err
		})
		try("ResumeTOTP", 1, func() error { _, err := x.ResumeTOTP(ctx, s, setup.Token); return err })
		try("ConfirmTOTP", 5, func() error {
			_, err := x.ConfirmTOTP(ctx, s, setup.Token, code(t, setup.Secret, x.now()), home)
			return err
		})
		try("NewRecoveryCodes", 4, func() error { _, err := x.NewRecoveryCodes(ctx, s, home); return err })
		try("RenamePasskey", 1, func() error { return x.RenamePasskey(ctx, s, key.ID, "x", home) })
		try("RemovePasskey", 3, func() error { return x.RemovePasskey(ctx, s, key.ID, home) })
		try("DisableTOTP", 3, func() error { return x.DisableTOTP(ctx, s, home) })
		try("SetTeam", 1, func() error { return x.SetTeam(ctx, s.ID, dbtest.ID("team")) })
		try("ProvePassword", 3, func() error { return x.ProvePassword(ctx, s, password, home) })
		try("SetPassword", 6, func() error { return x.SetPassword(ctx, s, password, other, home) })
		x.breakLinks(u, try)
		x.breakReads(u, try)
	})
}

// breakLinks runs the operations on links and users while SQL statements fail.
func (x *fixture) breakLinks(u users.User, try func(name string, least int, act func() error)) {
	ctx := x.Context()
	x.must(x.RequestReset(ctx, u.Email, home))
	link, err := x.ResetLink(ctx, u.ID)
	x.must(err)
	token := linkToken(x.T, link, "/password/reset")
	try("CheckReset", 2, func() error { _, err := x.CheckReset(ctx, token); return err })
	try("Reset", 7, func() error { return x.Reset(ctx, token, password, home) })
	try("SetDisabled", 4, func() error { return x.SetDisabled(ctx, u.ID, true) })
	try("Delete", 4, func() error { return x.Delete(ctx, u.ID) })
	var setupLink string
	try("SetupLink", 3, func() (err error) {
		setupLink, err = x.SetupLink(ctx)
		return err
	})
	draft, err := x.Prepare(ctx, users.NewUser{Email: "owner@example.com"})
	x.must(err)
	try("UseSetupIn", 5, func() error {
		return x.d.Update(ctx, func(tx *db.Tx) error {
			if err := x.UseSetupIn(ctx, tx, linkToken(x.T, setupLink, "/setup")); err != nil {
				return err
			}
			_, err := x.CreateIn(ctx, tx, draft)
			return err
		})
	})
}

// breakReads runs the sweep and the read-only operations while SQL statements fail.
func (x *fixture) breakReads(u users.User, try func(name string, least int, act func() error)) {
	ctx := x.Context()
	try("Sweep", 4, func() error { return x.Sweep(ctx) })
	try("List", 1, func() error { _, err := x.List(ctx, "", 10); return err })
	try("Sessions", 1, func() error { _, err := x.Sessions(ctx, u.ID); return err })
	try("Passkeys", 1, func() error { _, err := x.Passkeys(ctx, u.ID); return err })
	try("Identities", 1, func() error { _, err := x.Identities(ctx, u.ID); return err })
	try("RecoveryCodesLeft", 1, func() error { _, err := x.RecoveryCodesLeft(ctx, u.ID); return err })
}
