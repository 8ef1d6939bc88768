package cli

import (
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// memberships calls all operations on team members and reads the audit log.
func (d *driver) memberships() {
	d.t.Helper()
	ctx := d.t.Context()
	must := func(err error) {
		d.t.Helper()
		if err != nil {
			d.t.Fatal(err)
		}
	}
	team := d.do("GET", "/team", "")
	var member string
	for _, email := range []string{"owner@acme.example", "ann@acme.example", "bob@acme.example"} {
		u, err := d.Users.Create(ctx, users.NewUser{Email: email})
		must(err)
		must(d.DB.Update(ctx, func(tx *db.Tx) error {
			return d.Members.AddIn(ctx, tx, team, u.ID, map[bool]teams.Role{true: teams.Owner,
				false: teams.Member}[member == ""])
		}))
		member = u.ID
	}
	d.pages("/team/members")
	d.do("PATCH", "/team/members/"+member, `{"role":"viewer"}`)
	_, err := d.Members.Actor(ctx, member, team)
	must(err)
	_, err = d.Members.ListByUser(ctx, member)
	must(err)
	must(d.Members.Leave(ctx, team, member))

	d.do("POST", "/team/invitations", `{"email":"new@acme.example","role":"admin"}`)
	d.do("POST", "/team/invitations", `{"email":"new@acme.example","role":"viewer"}`)
	d.pages("/team/invitations")
	sent := d.do("POST", "/team/invitations", `{"email":"other@acme.example","role":"admin"}`)
	d.do("POST", "/team/invitations/"+sent+"/resend", "")
	d.do("DELETE", "/team/invitations/"+sent, "")
	_, link, err := d.Members.InviteLink(ctx, teams.System(team), "late@acme.example", teams.Owner)
	must(err)
	m, err := d.Members.AcceptAsNew(ctx, link[strings.LastIndexByte(link, '/')+1:], users.NewUser{}, nil)
	must(err)
	d.do("DELETE", "/team/members/"+d.do("GET", "/team/members?limit=1&after="+m.UserID, ""), "")
	must(d.Users.Delete(ctx, m.UserID))

	first := d.pages("/audit")
	actor := d.made(d.key, "/api-keys", `{"name":"acts"}`)
	for _, filter := range []string{"actor_id=" + actor, "action=member.invited", "target_id=" + first,
		"action=member.invited&target_id=" + first, "from=2020-01-01&to=2099-01-01", "actor_id=" + actor +
			"&from=2020-01-01"} {
		d.do("GET", "/audit?"+filter, "")
		d.do("GET", "/audit?limit=2&"+filter+"&after="+first, "")
	}
	d.do("GET", "/audit/export?format=ndjson&action=member.invited", "")
	_, _, err = d.Members.List(ctx, team, page.Page{})
	must(err)
}
