package signin

import (
	"context"
	"fmt"
	"net/http"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// invitationPath is the path prefix of invitation links, which is followed by the token.
const invitationPath = "/invitations/"

var invitationPage = pageOf("invitation.html")

// roleDescriptions describes the permissions of each role.
var roleDescriptions = map[teams.Role]string{
	teams.Owner:  "An owner can do everything, including adding and removing owners.",
	teams.Admin:  "An admin can do everything except add and remove owners.",
	teams.Member: "A member can work with emails, domains, webhooks and contacts, but cannot invite or remove people.",
	teams.Viewer: "A viewer can see everything except secrets, and can change nothing.",
}

// invitation is the content of an invitation page.
type invitation struct {
	members.Invitation
	Team, Inviter, Means, Path, Problem, Provider string
	SignedIn, Known                               bool // Known: the address has an account
	Form                                          *web.Form
}

func joinForm() *web.Form {
	return web.NewForm(&web.Field{Name: "name", Label: "Your name", Autocomplete: "name", Optional: true, Max: 100},
		&web.Field{Name: "password", Label: "Password", Type: "password", Autocomplete: "new-password",
			Hint: "At least 10 characters."})
}

// invitation returns the content of the invitation page. The page reveals whether the invited address has an account,
// because the link was sent only to that address.
func (p *Pages) invitation(r *http.Request) (of invitation, v web.Visitor, err error) {
	ctx, token := r.Context(), r.PathValue("token")
	of.Invitation, err = p.Members.Invitation(ctx, token)
	if err != nil {
		return of, v, err
	}
	of.Team, of.Means, of.Path = of.TeamName, roleDescriptions[of.Role], invitationPath+token
	of.Form, of.Provider = joinForm(), p.Users.OIDCName()
	if of.By.Kind == teams.UserActor {
		switch u, err := p.Users.Get(ctx, of.By.ID); {
		case err == nil && u.Name != "":
			of.Inviter = u.Name + " (" + u.Email + ")"
		case err == nil:
			of.Inviter = u.Email
		case fault.KindOf(err) != fault.NotFound:
			return of, v, err
		}
	}
	if v, of.SignedIn, err = p.Site.Visitor(r); err != nil {
		return of, v, err
	}
	if of.SignedIn {
		if v.User.Email != of.Email {
			of.Problem = fmt.Sprintf("You are signed in as %s. Sign out and open the link again as %s.", v.User.Email,
				of.Email)
		}
		return of, v, nil
	}
	switch _, err := p.Users.ByEmail(ctx, of.Email); {
	case err == nil:
		of.Known = true
	case fault.KindOf(err) != fault.NotFound:
		return of, v, err
	}
	return of, v, nil
}

func (p *Pages) showInvitation(w http.ResponseWriter, r *http.Request) error {
	of, _, err := p.invitation(r)
	if err != nil {
		return p.badInvitation(w, r, err)
	}
	return p.Site.Show(w, r, http.StatusOK, invitationPage, of, web.Bare())
}

// accept adds the visitor to the team. If the invited address has no account, accept also creates one and signs the
// visitor in.
func (p *Pages) accept(w http.ResponseWriter, r *http.Request) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	of, v, err := p.invitation(r)
	if err != nil {
		return p.badInvitation(w, r, err)
	}
	var session string
	switch {
	case of.SignedIn:
		_, err = p.Members.Accept(r.Context(), r.PathValue("token"), v.User.ID, func(ctx context.Context, tx *db.Tx,
			teamID string) error {
			return p.Users.SetTeamIn(ctx, tx, v.Session.ID, teamID)
		})
	case of.Known:
		return web.Redirect(w, r, with("/sign-in", "next", of.Path))
	default:
		if typed.Get("password") == "" {
			err = fault.Invalidf("password", "Choose a password.")
			break
		}
		_, err = p.Members.AcceptAsNew(r.Context(), r.PathValue("token"), users.NewUser{Name: typed.Get("name"),
			Password: typed.Get("password")}, func(ctx context.Context, tx *db.Tx, u users.User) (err error) {
			session, err = p.Users.StartIn(ctx, tx, u, "invitation", client(r))
			return err
		})
	}
	if err != nil {
		if of.SignedIn && of.Problem != "" {
			return p.Site.Show(w, r, http.StatusForbidden, invitationPage, of, web.Bare())
		}
		status, ours := of.Form.Fill(typed).SetError(err)
		if ours != nil || of.Form.Problem != "" {
			return p.badInvitation(w, r, err)
		}
		return p.Site.Show(w, r, status, invitationPage, of, web.Bare())
	}
	if session != "" {
		p.Site.SignIn(w, r, session)
	}
	return web.Redirect(w, r, "/app/people?done=joined")
}

// badInvitation shows a page that explains that an invitation has been used, revoked or replaced, or has expired.
func (p *Pages) badInvitation(w http.ResponseWriter, r *http.Request, err error) error {
	if fault.KindOf(err) != fault.NotFound {
		return err
	}
	return p.messagePage(w, r, http.StatusNotFound, message{"This invitation no longer works",
		err.Error(), "/sign-in", "Go to sign-in"})
}
