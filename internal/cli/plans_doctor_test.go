package cli

import (
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
	"github.com/postrider/postrider/internal/sending/domains"
)

// examination runs the statements with which doctor reads the domains. A node in development does not examine itself.
func (d *driver) examination() {
	d.t.Helper()
	for _, s := range []domains.Selection{{Limit: 10}, {TeamID: d.team, Limit: 10}, {Name: "acme.example", Limit: 10}} {
		if _, _, err := domains.Select(d.t.Context(), d.DB.Reader, s); err != nil {
			d.t.Error(err)
		}
	}
	if _, err := dmarcreports.WaitingToday(d.t.Context(), d.DB.Reader, d.DB.Now()); err != nil {
		d.t.Error(err)
	}
	if _, err := teams.OperatorIn(d.t.Context(), d.DB.Reader, ""); err != nil {
		d.t.Error(err)
	}
}
