package users_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
)

// A kept form is returned once, for its page and within an hour. There are at most 500.
func TestKeptForms(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		form := users.KeptForm{Page: "/app/keys/new", Action: "/app/keys/new?x", Form: "name=production"}
		keep := func() string {
			t.Helper()
			token, err := x.KeepForm(ctx, form)
			x.must(err)
			return token
		}
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
		for range 500 {
			if keep() == "" {
				t.Fatal("a form was not kept, though there are few")
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
