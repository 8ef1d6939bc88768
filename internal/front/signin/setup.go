package signin

import (
	"cmp"
	"context"
	"net/http"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

var setupPage = pageOf("setup.html")

// teamsOffered is the maximum number of existing teams that the first owner can choose from. Owners of other teams are
// added on the command line.
const teamsOffered = 200

// setupForm returns the form for the first account and its team. The team is either a new team or one that the operator
// has created.
func (p *Pages) setupForm(ctx context.Context) (*web.Form, error) {
	f := web.NewForm(emailField(), &web.Field{Name: "name", Label: "Your name", Autocomplete: "name", Optional: true,
		Max: 100}, &web.Field{Name: "password", Label: "Password", Type: "password", Autocomplete: "new-password",
		Hint: "At least 10 characters."})
	all, err := p.Teams.List(ctx, "", teamsOffered)
	if err != nil {
		return nil, err
	}
	newTeam := &web.Field{Name: "new_team", Label: "Name of the team", Autocomplete: "organization"}
	if len(all) == 0 {
		f.Fields = append(f.Fields, newTeam)
		return f, nil
	}
	choice := &web.Field{Name: "team", Label: "Team", Value: all[0].ID}
	for _, t := range all {
		choice.Options = append(choice.Options, web.Choice{Value: t.ID, Label: t.Name})
	}
	choice.Options = append(choice.Options, web.Choice{Label: "A new team"})
	newTeam.Label, newTeam.Optional = "Name of the new team", true
	f.Fields = append(f.Fields, choice, newTeam)
	return f, nil
}

func (p *Pages) setupPage(w http.ResponseWriter, r *http.Request, status int, f *web.Form, token string) error {
	return p.Site.Show(w, r, status, setupPage, struct {
		Form  *web.Form
		Token string
	}{f, token}, web.Bare())
}

func (p *Pages) showSetup(w http.ResponseWriter, r *http.Request) error {
	token := r.URL.Query().Get("token")
	if token == "" {
		return p.setupHint(w, r)
	}
	if err := p.Users.CheckSetup(r.Context(), token); err != nil {
		return p.badLink(w, r, err)
	}
	f, err := p.setupForm(r.Context())
	if err != nil {
		return err
	}
	return p.setupPage(w, r, http.StatusOK, f, token)
}

// setupHint tells the first visitor of a new installation where the set-up link is. If users exist, it redirects to the
// sign-in page.
func (p *Pages) setupHint(w http.ResponseWriter, r *http.Request) error {
	any, err := p.Users.Any(r.Context())
	if err != nil {
		return err
	}
	if any {
		return web.Redirect(w, r, "/sign-in")
	}
	return p.messagePage(w, r, http.StatusOK, message{Title: "Set up this installation", Text: "No account exists yet. " +
		"Open the set-up link in the output of “postrider serve”. Restart it to get a new link; the link works for " +
		"three days."})
}

func (p *Pages) setup(w http.ResponseWriter, r *http.Request) error {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return err
	}
	token := typed.Get("token")
	if err := p.Users.CheckSetup(r.Context(), token); err != nil {
		return p.badLink(w, r, err)
	}
	session, err := p.makeOwner(r, token, owner{users.NewUser{Email: typed.Get("email"), Name: typed.Get("name"),
		Password: typed.Get("password")}, typed.Get("team"), typed.Get("new_team")})
	if err == nil {
		p.Site.SignIn(w, r, session)
		return web.Redirect(w, r, "/app/emails")
	}
	if fault.KindOf(err) == fault.NotFound && p.Users.CheckSetup(r.Context(), token) != nil {
		return p.badLink(w, r, err) // another visitor used the link after the page was shown
	}
	f, ours := p.setupForm(r.Context())
	if ours != nil {
		return ours
	}
	status, err := f.Fill(typed).SetError(err)
	if err != nil {
		return err
	}
	return p.setupPage(w, r, status, f, token)
}

// owner is the first user and the team that the user will own. The team is either an existing team with the id in
// teamID, or a new team with the name in newTeam.
type owner struct {
	users.NewUser
	teamID, newTeam string
}

// makeOwner uses a setup link to create the first user, and starts a session.
func (p *Pages) makeOwner(r *http.Request, token string, o owner) (session string, err error) {
	if o.Password == "" {
		return "", fault.Invalidf("password", "Choose a password.")
	}
	draft, err := p.Users.Prepare(r.Context(), o.NewUser)
	if err != nil {
		return "", err
	}
	err = p.DB.Update(r.Context(), func(tx *db.Tx) error {
		ctx := r.Context()
		if err := p.Users.UseSetupIn(ctx, tx, token); err != nil {
			return err
		}
		u, err := p.Users.CreateIn(ctx, tx, draft)
		if err != nil {
			return err
		}
		teamID := o.teamID
		if teamID == "" {
			t, err := p.Teams.CreateIn(ctx, tx, o.newTeam, u.Email)
			if err != nil {
				return renameField(err, "new_team")
			}
			teamID = t.ID
		}
		if err := p.Members.AddIn(ctx, tx, teamID, u.ID, teams.Owner); err != nil {
			return err
		}
		p.Audit.Record(ctx, tx, audit.Entry{TeamID: teamID, ActorKind: string(teams.UserActor), ActorID: u.ID,
			ActorName: u.Email, Action: audit.MemberJoined, Target: u.ID,
			Detail: u.Email + " as owner, by the set-up link"})
		session, err = p.Users.StartIn(ctx, tx, u, "setup", client(r))
		return err
	})
	return session, p.Users.AddressError(err)
}

// renameField changes a fault about the field "name" into a fault about another form field.
func renameField(err error, field string) error {
	if e, ok := err.(*fault.Error); ok && e.Field == "name" {
		return fault.New(e.Kind, field, "%s", cmp.Or(e.Message, "Give the team a name.")).Because(err)
	}
	return err
}
