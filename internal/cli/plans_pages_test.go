package cli

import (
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/outbound/waiting"
)

// lookups calls what only pages call: the palette, the counts of the navigation, and forms of ended sessions.
func (d *driver) lookups() {
	d.t.Helper()
	ctx := d.t.Context()
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	_, err := d.Contacts.Find(ctx, d.team, "Ann", 6)
	must(err)
	_, err = d.Broadcasts.Find(ctx, d.team, "news", 6)
	must(err)
	_, err = waiting.Of(ctx, d.DB, d.team)
	must(err)
	token, err := d.Users.KeepForm(ctx, d.team, users.KeptForm{Page: "/app/keys/new",
		Action: "/app/keys/new", Form: "name=x"})
	must(err)
	_, _, err = d.Users.TakeForm(ctx, token, "/app/keys/new")
	must(err)
}
