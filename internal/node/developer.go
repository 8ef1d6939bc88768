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

// developer is the email address of the development user. In development, visitors are automatically signed in as this
// user. The address does not receive mail.
const developer = "developer@postrider.localhost"

// newPages builds the HTML pages, such as those for sign-in and settings, and registers them with the mux.
func (n *Node) newPages() error {
	n.site = web.New(web.Config{PublicURL: n.Config.PublicURL, Limits: n.limits,
		Auto: func(r *http.Request) (string, bool) {
			if n.developer == nil {
				return "", false
			}
			return n.signDeveloperIn(r)
		}}, n.Users, n.Members, n.Log)
	pages, err := signin.New(signin.Deps{Site: n.site, DB: n.DB, Users: n.Users, Members: n.Members, Teams: n.Teams,
		Audit: n.Audit, Grants: n.Grants, Approvals: n.Approvals, Templates: n.Templates, Automations: n.Automations.OfApps})
	if err == nil {
		pages.Register(n.mux)
	}
	return err
}

// EnsureDeveloper creates the development user if it does not exist, and adds it as an owner of the team. After a call
// to EnsureDeveloper, visitors from this machine are signed in as the development user.
func (n *Node) EnsureDeveloper(ctx context.Context, teamID string) error {
	u, err := n.Users.ByEmail(ctx, developer)
	if fault.KindOf(err) == fault.NotFound {
		u, err = n.Users.Create(ctx, users.NewUser{Email: developer, Name: "Developer"})
	}
	if err != nil {
		return fmt.Errorf("create the development user: %w", err)
	}
	if _, err = n.Members.Actor(ctx, u.ID, teamID); fault.KindOf(err) == fault.NotFound {
		err = n.DB.Update(ctx, func(tx *db.Tx) error { return n.Members.AddIn(ctx, tx, teamID, u.ID, teams.Owner) })
	}
	if err != nil {
		return fmt.Errorf("make the development user an owner of the team: %w", err)
	}
	n.developer = &u
	return nil
}

// signDeveloperIn starts a session as the development user for a visitor on this machine. As with the outbox, requests
// are refused if their host name is not a loopback name. Requests forwarded by a proxy are also refused, because the
// client may be on another machine.
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
		n.Log.Error("could not sign in the development user", "error", err)
		return "", false
	}
	return token, true
}
