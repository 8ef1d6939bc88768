package signin

import (
	"net/http"
	"net/url"
	"slices"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
)

var peoplePage = pageOf("people.html")

// shownAtOnce is the most members and invitations that the page shows: as many as a team can have.
const shownAtOnce = 200

// people is what the page of a team's people shows.
type people struct {
	Team, TeamID  string
	Done, Problem string
	Members       []member
	Invitations   []invited
	MayInvite     bool
	Invite        *web.Form
}

// member is a member, with what the visitor may do about it.
type member struct {
	members.Membership
	Self, Removable bool
	Roles           []teams.Role // that the visitor may give; none if the role may not be changed
}

// invited is an open invitation, which can no longer be accepted if it has expired or its sender has lost the right to
// it.
type invited struct {
	members.Invitation
	Expired bool
}

var errRole = fault.Forbiddenf("", "Your role in this team does not allow this. Ask an owner or admin.")

// inTeam returns the visitor as an actor for a team of theirs.
func (p *Pages) inTeam(r *http.Request, v *web.Visitor, teamID string, needs teams.Scope) (teams.Actor, error) {
	if !slices.ContainsFunc(v.Teams, func(m members.Membership) bool { return m.TeamID == teamID }) {
		return teams.Actor{}, fault.Forbiddenf("", "You are not a member of this team. Ask one of its owners or "+
			"admins to invite you.")
	}
	a, err := p.Members.Actor(r.Context(), v.User.ID, teamID)
	if err == nil {
		err = a.Require(needs)
	}
	return a, inWords(err)
}

// inWords says to a person what a scope that is missing means.
func inWords(err error) error {
	if fault.KindOf(err) == fault.OutOfScope {
		return errRole.Because(err)
	}
	return err
}

// change reads a form that changes something in a team. The form names the team: the visitor may have chosen another
// one since the page was shown.
func (p *Pages) change(w http.ResponseWriter, r *http.Request, v *web.Visitor, needs teams.Scope) (teams.Actor,
	url.Values, error) {
	typed, err := p.Site.Form(w, r)
	if err != nil {
		return teams.Actor{}, nil, err
	}
	a, err := p.inTeam(r, v, typed.Get("team"), needs)
	return a, typed, err
}

// teamName returns the name of a team of the visitor.
func teamName(v *web.Visitor, teamID string) string {
	return v.Teams[slices.IndexFunc(v.Teams, func(m members.Membership) bool { return m.TeamID == teamID })].TeamName
}

// mayGive returns the roles that an actor may give.
func mayGive(a *teams.Actor) (roles []teams.Role) {
	for _, role := range teams.Roles {
		if role.Scopes()&^a.Scopes == 0 {
			roles = append(roles, role)
		}
	}
	return roles
}

// short says what members with a role may do in as few words as fit into a choice.
var short = map[teams.Role]string{teams.Owner: "everything", teams.Admin: "everything but owners",
	teams.Member: "emails, domains, webhooks, contacts", teams.Viewer: "sees, and changes nothing"}

func inviteForm(a *teams.Actor) *web.Form {
	role := &web.Field{Name: "role", Label: "Role", Value: string(teams.Member)}
	for _, x := range mayGive(a) {
		role.Options = append(role.Options, web.Choice{Value: string(x), Label: string(x) + " – " + short[x]})
	}
	return web.NewForm(&web.Field{Name: "email", Label: "Email address", Type: "email", Autocomplete: "off"}, role)
}

func (p *Pages) showPeople(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	m, ok := v.Team()
	if !ok {
		return web.Redirect(w, r, "/account/team")
	}
	a, err := p.inTeam(r, &v, m.TeamID, teams.MembersRead)
	if err != nil {
		return err
	}
	return p.peoplePage(w, r, v, &a, http.StatusOK, inviteForm(&a), "")
}

func (p *Pages) peoplePage(w http.ResponseWriter, r *http.Request, v web.Visitor, a *teams.Actor, status int,
	invite *web.Form, problem string) error {
	of := people{Team: teamName(&v, a.TeamID), TeamID: a.TeamID, Problem: problem, Invite: invite,
		MayInvite: a.Scopes.Has(teams.MembersWrite)}
	if r.Method == http.MethodGet {
		of.Done = said(r)
	}
	all, _, err := p.Members.List(r.Context(), a.TeamID, page.Page{Limit: shownAtOnce})
	if err != nil {
		return err
	}
	for _, m := range all {
		x := member{Membership: m, Self: m.UserID == v.User.ID}
		if of.MayInvite && (m.Role != teams.Owner || a.Scopes.Has(teams.OwnersWrite)) {
			x.Roles, x.Removable = mayGive(a), !x.Self
		}
		of.Members = append(of.Members, x)
	}
	slices.Reverse(of.Members) // who came first is shown first
	open, _, err := p.Members.Invitations(r.Context(), a.TeamID, page.Page{Limit: shownAtOnce})
	if err != nil {
		return err
	}
	for _, x := range open {
		of.Invitations = append(of.Invitations, invited{x, p.Members.Expired(x)})
	}
	return p.Site.Show(w, r, status, peoplePage, of)
}

// peopleDone answers what was to be changed on the page of a team's people.
func (p *Pages) peopleDone(w http.ResponseWriter, r *http.Request, v web.Visitor, a *teams.Actor, what string,
	err error) error {
	if err == nil {
		return web.Redirect(w, r, with("/people", "done", what))
	}
	f := web.NewForm()
	status, err := f.Blame(inWords(err))
	if err != nil {
		return err
	}
	return p.peoplePage(w, r, v, a, status, inviteForm(a), f.Problem)
}

func (p *Pages) invite(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.change(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	_, err = p.Members.Invite(r.Context(), a, typed.Get("email"), teams.Role(typed.Get("role")))
	if err == nil {
		return web.Redirect(w, r, "/people?done=invited")
	}
	f := inviteForm(&a).Fill(typed)
	status, err := f.Blame(inWords(err))
	if err != nil {
		return err
	}
	return p.peoplePage(w, r, v, &a, status, f, "")
}

func (p *Pages) resend(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, _, err := p.change(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	_, err = p.Members.Resend(r.Context(), a, pathID(r))
	return p.peopleDone(w, r, v, &a, "resent", err)
}

func (p *Pages) revoke(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, _, err := p.change(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	return p.peopleDone(w, r, v, &a, "revoked", p.Members.Revoke(r.Context(), a, pathID(r)))
}

func (p *Pages) setRole(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.change(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	_, err = p.Members.SetRole(r.Context(), a, pathID(r), teams.Role(typed.Get("role")))
	return p.peopleDone(w, r, v, &a, "role-changed", err)
}

func (p *Pages) remove(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, _, err := p.change(w, r, &v, teams.MembersWrite)
	if err != nil {
		return err
	}
	return p.peopleDone(w, r, v, &a, "removed", p.Members.Remove(r.Context(), a, pathID(r)))
}

// leave ends the visitor's own membership, which takes no right.
func (p *Pages) leave(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, _, err := p.change(w, r, &v, teams.MembersRead)
	if err != nil {
		return err
	}
	if err := p.Members.Leave(r.Context(), a.TeamID, v.User.ID); err != nil {
		return p.peopleDone(w, r, v, &a, "", err)
	}
	return web.Redirect(w, r, "/account?done=left")
}
