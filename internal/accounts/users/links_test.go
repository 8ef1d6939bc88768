package users_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

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

// tokenOf creates a set-up link and returns its token.
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
		for range 10 { // lock the account with wrong passwords, as an attacker would
			_, err = x.attempt(u.Email, "not the password")
			x.is(err, fault.BadCredential)
		}
		x.is(x.Reset(ctx, token, "short", home), fault.Invalid)
		x.must(x.Reset(ctx, token, other, home))
		x.is(x.Reset(ctx, token, other, home), fault.NotFound)
		_, _, err = x.Session(ctx, out.Token)
		x.is(err, fault.BadCredential)
		x.session(u.Email, other) // the account is no longer locked

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
