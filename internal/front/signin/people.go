package signin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
)

var peoplePage = pageOf("people.html")

// peopleShown is the maximum number of members on the page, and the maximum number of invitations. A team cannot have
// more than this of either.
const peopleShown = 200

// people is the content of the page that lists a team's members.
type people struct {
	Team, TeamID  string
	Done, Problem string
	Members       []member
	Invitations   []openInvitation
	MayInvite     bool
	Invite        *web.Form
	NoMail        bool   // whether the installation sends no invitations, so that the page shows links instead
	Link, LinkFor string // the link of a new invitation, and the invited address
}

// member is a team member, together with the changes that the visitor may make.
type member struct {
	members.Membership
	Self, Removable bool
	Roles           []teams.Role // roles that the visitor may assign; nil if the visitor may not change the role
}

// openInvitation is an invitation that has not been accepted. Expired is also true if the inviter is no longer allowed
// to invite people.
type openInvitation struct {
	members.Invitation
	Expired bool
}

var errRole = fault.Forbiddenf("", "Your role in this team does not allow this. Ask an owner or admin.")

// inTeam returns the visitor as an actor in one of the visitor's teams, or a fault if the actor lacks the scope.
func (p *Pages) inTeam(r *http.Request, v *web.Visitor, teamID string, needs teams.Scope) (teams.Actor, error) {
	if !slices.ContainsFunc(v.Teams, func(m members.Membership) bool { return m.TeamID == teamID }) {
		return teams.Actor{}, fault.Forbiddenf("", "You are not a member of this team. Ask one of its owners or "+
			"admins to invite you.")
	}
	a, err := p.Members.Actor(r.Context(), v.User.ID, teamID)
	if err == nil {
		err = a.Require(needs)
	}
	return a, explainScope(err)
}

// explainScope replaces a fault about a missing scope with a fault whose message users can understand.
func explainScope(err error) error {
	if fault.KindOf(err) == fault.OutOfScope {
		return errRole.Because(err)
	}
	return err
}

// readTeamForm reads a form that changes a team. The form contains the team's id, because the visitor may have switched
// teams since the page was shown.
func (p *Pages) readTeamForm(w http.ResponseWriter, r *http.Request, v *web.Visitor, needs teams.Scope) (teams.Actor,
	url.Values, error) {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return teams.Actor{}, nil, err
	}
	a, err := p.inTeam(r, v, typed.Get("team"), needs)
	return a, typed, err
}

// teamName returns the name of one of the visitor's teams.
func teamName(v *web.Visitor, teamID string) string {
	return v.Teams[slices.IndexFunc(v.Teams, func(m members.Membership) bool { return m.TeamID == teamID })].TeamName
}

// grantableRoles returns the roles that an actor may assign.
func grantableRoles(a *teams.Actor) (roles []teams.Role) {
	for _, role := range teams.Roles {
		if role.Scopes()&^a.Scopes == 0 {
			roles = append(roles, role)
		}
	}
	return roles
}

// roleSummaries describes each role in a few words, for the hint of a form field.
var roleSummaries = map[teams.Role]string{teams.Owner: "everything", teams.Admin: "everything except managing owners",
	teams.Member: "emails, domains, webhooks, contacts", teams.Viewer: "read only"}

func inviteForm(a *teams.Actor) *web.Form {
	role := &web.Field{Name: "role", Label: "Role", Value: string(teams.Member)}
	var may []string
	for _, x := range grantableRoles(a) {
		role.Options = append(role.Options, web.Choice{Value: string(x), Label: string(x)})
		may = append(may, string(x)+": "+roleSummaries[x])
	}
	role.Hint = strings.Join(may, "; ") + "."
	return web.NewForm(&web.Field{Name: "email", Label: "Email address", Type: "email", Autocomplete: "off"}, role)
}

func (p *Pages) showPeople(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	m, ok := v.Team()
	if !ok {
		return web.Redirect(w, r, "/app/account/team")
	}
	a, err := p.inTeam(r, &v, m.TeamID, teams.MembersRead)
	if err != nil {
		return err
	}
	return p.peoplePage(w, r, v, &a, http.StatusOK, inviteForm(&a), "", invitationLink{})
}

// invitationLink is the link of an invitation that was just created, which the page shows once.
type invitationLink struct{ url, email string }

func (p *Pages) peoplePage(w http.ResponseWriter, r *http.Request, v web.Visitor, a *teams.Actor, status int,
	invite *web.Form, problem string, link invitationLink) error {
	of := people{Team: teamName(&v, a.TeamID), TeamID: a.TeamID, Problem: problem, Invite: invite,
		MayInvite: a.Scopes.Has(teams.MembersWrite), NoMail: !p.Members.SendsMail(), Link: link.url, LinkFor: link.email}
	if r.Method == http.MethodGet {
		of.Done = doneMessage(r)
	}
	all, _, err := p.Members.List(r.Context(), a.TeamID, page.Page{Limit: peopleShown})
	if err != nil {
		return err
	}
	for _, m := range all {
		x := member{Membership: m, Self: m.UserID == v.User.ID}
		if of.MayInvite && (m.Role != teams.Owner || a.Scopes.Has(teams.OwnersWrite)) {
			x.Roles, x.Removable = grantableRoles(a), !x.Self
		}
		of.Members = append(of.Members, x)
	}
	slices.Reverse(of.Members) // oldest first
	open, _, err := p.Members.Invitations(r.Context(), a.TeamID, page.Page{Limit: peopleShown})
	if err != nil {
		return err
	}
	for _, x := range open {
		of.Invitations = append(of.Invitations, openInvitation{x, p.Members.Expired(x)})
	}
	return p.Site.Show(w, r, status, peoplePage, of, web.Class("form"), web.Crumbs(of.Team, "/app/emails", "People"))
}

// peopleDone responds to a change on the members page, either with a redirect to the page and a message, or with the
// page and the error.
func (p *Pages) peopleDone(w http.ResponseWriter, r *http.Request, v web.Visitor, a *teams.Actor, what string,
	err error) error {
	if err == nil {
		return web.Redirect(w, r, with("/app/people", "done", what))
	}
	f := web.NewForm()
	status, err := f.SetError(explainScope(err))
	if err != nil {
		return err
	}
	return p.peoplePage(w, r, v, a, status, inviteForm(a), f.Problem, invitationLink{})
}

func (p *Pages) invite(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.readTeamForm(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	if p.Members.SendsMail() {
		_, err = p.Members.Invite(r.Context(), a, typed.Get("email"), teams.Role(typed.Get("role")))
	} else {
		var one members.Invitation
		var link string
		one, link, err = p.Members.InviteLink(r.Context(), a, typed.Get("email"), teams.Role(typed.Get("role")))
		if err == nil {
			return p.peoplePage(w, r, v, &a, http.StatusOK, inviteForm(&a), "", invitationLink{link, one.Email})
		}
	}
	if err == nil {
		return web.Redirect(w, r, "/app/people?done=invited")
	}
	f := inviteForm(&a).Fill(typed)
	status, err := f.SetError(explainScope(err))
	if err != nil {
		return err
	}
	return p.peoplePage(w, r, v, &a, status, f, "", invitationLink{})
}

func (p *Pages) resend(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, _, err := p.readTeamForm(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	if !p.Members.SendsMail() {
		one, link, err := p.Members.NewLink(r.Context(), a, pathID(r))
		if err != nil {
			return p.peopleDone(w, r, v, &a, "", err)
		}
		return p.peoplePage(w, r, v, &a, http.StatusOK, inviteForm(&a), "", invitationLink{link, one.Email})
	}
	_, err = p.Members.Resend(r.Context(), a, pathID(r))
	return p.peopleDone(w, r, v, &a, "resent", err)
}

func (p *Pages) revoke(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, _, err := p.readTeamForm(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	return p.peopleDone(w, r, v, &a, "revoked", p.Members.Revoke(r.Context(), a, pathID(r)))
}

func (p *Pages) setRole(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.readTeamForm(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	_, err = p.Members.SetRole(r.Context(), a, pathID(r), teams.Role(typed.Get("role")))
	return p.peopleDone(w, r, v, &a, "role-changed", err)
}

func (p *Pages) remove(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.readTeamForm(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	m, err := p.Members.Get(r.Context(), a.TeamID, pathID(r))
	if err == nil {
		err = confirm(typed, m.Email)
	}
	if err == nil {
		err = p.Members.Remove(r.Context(), a, m.UserID)
	}
	return p.peopleDone(w, r, v, &a, "removed", err)
}

// confirm returns a fault if a form has not the text that its typed confirmation asks for.
func confirm(typed url.Values, want string) error {
	if web.Confirms(typed.Get("confirm"), want) {
		return nil
	}
	return fault.Invalidf("", "The text differs from %s. Type it exactly. Nothing was changed.", web.Confirmation(want))
}

// leave ends the visitor's own membership. Members with any role may leave.
func (p *Pages) leave(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.readTeamForm(w, r, &v, teams.MembersRead)
	if err != nil {
		return err
	}
	if err = confirm(typed, teamName(&v, a.TeamID)); err == nil {
		err = p.Members.Leave(r.Context(), a.TeamID, v.User.ID)
	}
	if err != nil {
		return p.peopleDone(w, r, v, &a, "", err)
	}
	return web.Redirect(w, r, "/app/account?done=left")
}
