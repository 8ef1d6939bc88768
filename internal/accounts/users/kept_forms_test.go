package users_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A kept form is returned once, for its page and within an hour. At most 500 are kept, 20 of them of one user.
func TestKeptForms(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		form := users.KeptForm{Page: "/app/keys/new", Action: "/app/keys/new?x", Form: "name=production"}
		keepOf := func(user string) string {
			t.Helper()
			token, err := x.KeepForm(ctx, dbtest.ID(user), form)
			x.must(err)
			return token
		}
		keep := func() string { t.Helper(); return keepOf("ada") }
		take := func(token, page string, want bool) {
			t.Helper()
			got, ok, err := x.TakeForm(ctx, token, page)
			x.must(err)
			if ok != want || ok && got != form {
				t.Errorf("the form for %s is %v %+v, want %v", page, ok, got, want)
			}
		}
		token := keep()
		take(token, "/app/keys", false)
		take("x", form.Page, false)
		take(keep()[:42]+"~", form.Page, false)
		take(token, form.Page, true)
		take(token, form.Page, false)
		late := keep()
		x.pass(time.Hour)
		take(late, form.Page, false)
		x.pass(time.Second)
		x.must(x.Sweep(ctx))
		for i := range 500 {
			if keepOf(fmt.Sprint("user ", i/20)) == "" {
				t.Fatalf("form %d was not kept, though there are few", i)
			}
			if i == 20 && keepOf("user 0") != "" {
				t.Error("more than 20 forms of a user are kept")
			}
		}
		if keep() != "" {
			t.Error("more than 500 forms are kept")
		}
		x.pass(time.Hour + time.Second)
		x.must(x.Sweep(ctx))
		take(keep(), form.Page, true)
	})
}

// A browser's token names its user. A value that this installation did not create names none.
func TestBrowserToken(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ada, bob := dbtest.ID("ada"), dbtest.ID("bob")
		token := x.BrowserToken(ada)
		if got := x.BrowserUser(token); got != ada {
			t.Errorf("the token names %q, want %q", got, ada)
		}
		for _, forged := range []string{"", ".", ada, ada + ".", bob + token[len(ada):], token + "A", "x" + token} {
			if got := x.BrowserUser(forged); got != "" {
				t.Errorf("%q names %q", forged, got)
			}
		}
	})
}
