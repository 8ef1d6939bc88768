package node

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/signin"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// developer is the address of the user who is signed in by itself in development. No mail is sent there.
const developer = "developer@postrider.localhost"

// newPages builds the pages for people and registers them with the mux.
func (n *Node) newPages() error {
	n.site = web.New(web.Config{PublicURL: n.Config.PublicURL, Limits: n.limits,
		Auto: func(r *http.Request) (string, bool) {
			if n.developer == nil {
				return "", false
			}
			return n.signDeveloperIn(r)
		}}, n.Users, n.Members, n.Log)
	pages, err := signin.New(signin.Deps{Site: n.site, DB: n.DB, Users: n.Users, Members: n.Members, Teams: n.Teams,
		Audit: n.Audit, Grants: n.Grants, Approvals: n.Approvals})
	if err == nil {
		pages.Register(n.mux)
	}
	return err
}

// EnsureDeveloper creates the user of development, an owner of the team, unless it exists. From then on, visitors from
// this machine are signed in as that user.
func (n *Node) EnsureDeveloper(ctx context.Context, teamID string) error {
	u, err := n.Users.ByEmail(ctx, developer)
	if fault.KindOf(err) == fault.NotFound {
		u, err = n.Users.Create(ctx, users.NewUser{Email: developer, Name: "Developer"})
	}
	if err != nil {
		return fmt.Errorf("make the user of development: %w", err)
	}
	if _, err = n.Members.Actor(ctx, u.ID, teamID); fault.KindOf(err) == fault.NotFound {
		err = n.DB.Update(ctx, func(tx *db.Tx) error { return n.Members.AddIn(ctx, tx, teamID, u.ID, teams.Owner) })
	}
	if err != nil {
		return fmt.Errorf("make the user of development an owner: %w", err)
	}
	n.developer = &u
	return nil
}

// signDeveloperIn begins a session of the user of development for a visitor on this machine. Names of other hosts that
// resolve to this machine are refused, as for the outbox, and so is what a proxy passes on: its client may be anybody.
func (n *Node) signDeveloperIn(r *http.Request) (token string, ok bool) {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() || !isLoopbackName(r.Host) {
		return "", false
	}
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "Via"} {
		if r.Header.Get(name) != "" {
			return "", false
		}
	}
	err = n.DB.Update(r.Context(), func(tx *db.Tx) (err error) {
		token, err = n.Users.StartIn(r.Context(), tx, *n.developer, "development", users.Client{
			Address: from.Addr().String(), UserAgent: r.UserAgent()})
		return err
	})
	if err != nil {
		n.Log.Error("the user of development could not be signed in", "error", err)
		return "", false
	}
	return token, true
}
