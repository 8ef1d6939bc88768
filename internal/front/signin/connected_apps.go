package signin

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/templates"
)

var connectedAppsPage = pageOf("connected_apps.html")

const (
	appsPerPage    = 20 // on one page
	templatesShown = 20 // templates with unpublished versions on one page
)

// connectedApps is the content of the page that lists a team's connected apps.
type connectedApps struct {
	Team, TeamID  string
	Done, Problem string
	Apps          []connectedApp
	Query         string               // query of this page; "" on the first page
	Said          string               // nothing, because the number of apps is not counted
	Newer, Older  string               // links to the neighboring pages; "" if there is none
	Templates     []templates.Template // with unpublished versions, if the visitor may publish them
}

// connectedApp is a grant, together with the changes that the visitor may make to it.
type connectedApp struct {
	grants.Grant
	By        string // name of the user who allowed the grant
	Full      bool   // whether the grant has full access without limits
	May       []string
	MayLimit  bool
	MayLoosen bool // whether the visitor may also loosen the limits
	MayRevoke bool

	Automations []automations.AppAutomation
}

// revokedReasons maps each reason why a grant ended to a description.
var revokedReasons = map[grants.Reason]string{
	grants.FromAPI:      "it was revoked through the API",
	grants.FromSite:     "it was revoked on this page",
	grants.ByClient:     "the app revoked it",
	grants.TokenReused:  "a refresh token was used twice, so somebody may have stolen it",
	grants.CodeReused:   "a code was used twice, so somebody may have stolen it",
	grants.UserLeft:     "the person who allowed it has left the team or was disabled",
	grants.KeyDeleted:   "the API key that allowed it was deleted",
	grants.GrantExpired: "the app did not use it for two months",
}

// Why returns the reason why the grant ended.
func (g connectedApp) Why() string {
	if why, ok := revokedReasons[g.RevokedReason]; ok {
		return why
	}
	return string(g.RevokedReason)
}

func (p *Pages) showConnectedApps(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	m, ok := v.Team()
	if !ok {
		return web.Redirect(w, r, "/app/account/team")
	}
	a, err := p.inTeam(r, &v, m.TeamID, teams.GrantsRead)
	if err != nil {
		return err
	}
	return p.connectedAppsPage(w, r, v, &a, http.StatusOK, "")
}

// pageFromQuery returns the requested page of the list. Invalid cursors are ignored.
func pageFromQuery(r *http.Request) page.Page {
	at := page.Page{Limit: appsPerPage}
	q := r.URL.Query()
	if after := strings.ToLower(q.Get("after")); id.Valid(after) {
		at.After = after
	} else if before := strings.ToLower(q.Get("before")); id.Valid(before) {
		at.Before = before
	}
	return at
}

func (p *Pages) connectedAppsPage(w http.ResponseWriter, r *http.Request, v web.Visitor, a *teams.Actor, status int,
	problem string) error {
	of := connectedApps{Team: teamName(&v, a.TeamID), TeamID: a.TeamID, Problem: problem}
	if r.Method == http.MethodGet {
		of.Done = doneMessage(r)
	}
	at := pageFromQuery(r)
	all, more, err := p.Grants.List(r.Context(), a.TeamID, at)
	if err != nil {
		return err
	}
	if at.After != "" {
		of.Query = with("", "after", at.After)
	} else if at.Before != "" {
		of.Query = with("", "before", at.Before)
	}
	if n := len(all); n > 0 {
		if at.After != "" || at.Before != "" && more {
			of.Newer = with("/app/apps", "before", all[0].ID)
		}
		if at.Before != "" || more {
			of.Older = with("/app/apps", "after", all[n-1].ID)
		}
	}
	if a.Scopes.Has(teams.TemplatesWrite) {
		if of.Templates, err = p.Templates.Unpublished(r.Context(), a.TeamID, templatesShown); err != nil {
			return err
		}
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].ID
	}
	owned, err := p.Automations(r.Context(), a.TeamID, ids)
	if err != nil {
		return err
	}
	who := p.whoGranted(r, a.TeamID)
	for _, g := range all {
		by, role, err := who(g.UserID)
		if err != nil {
			return err
		}
		x := connectedApp{Grant: g, By: by, Full: g.Scopes.Full && !g.Limits.Any()}
		may := g.Scopes.All()
		if g.RevokedAt.IsZero() {
			if role != "" {
				may = role.Scopes()
			}
			x.MayLimit, x.MayLoosen = a.Scopes.Has(teams.ApprovalsWrite), g.MayLoosen(*a)
			x.MayRevoke = a.Scopes.Has(teams.GrantsWrite) || g.UserID == v.User.ID
		}
		x.May = grants.DescribeScopes(g.AllowedScopes(may), g.Limits.Any())
		for _, one := range owned {
			if one.GrantID == g.ID {
				x.Automations = append(x.Automations, one)
			}
		}
		of.Apps = append(of.Apps, x)
	}
	return p.Site.Show(w, r, status, connectedAppsPage, of, web.Class("form"),
		web.Crumbs(of.Team, "/app/emails", "Connected apps"))
}

// whoGranted returns a function that looks up a user's name and role in the team. The role is "" if the user is not a
// member of the team. The function caches its results, so that each user is read from the database only once.
func (p *Pages) whoGranted(r *http.Request, teamID string) func(userID string) (string, teams.Role, error) {
	type granter struct {
		name string
		role teams.Role
	}
	all := map[string]granter{"": {name: "an API key, in development"}}
	return func(userID string) (string, teams.Role, error) {
		if of, ok := all[userID]; ok {
			return of.name, of.role, nil
		}
		of := granter{name: "a person whose account was deleted"}
		m, err := p.Members.Get(r.Context(), teamID, userID)
		switch {
		case err == nil:
			of = granter{m.Email, m.Role}
		case fault.KindOf(err) == fault.NotFound:
			u, err := p.Users.Get(r.Context(), userID)
			if err == nil {
				of.name = u.Email + ", who has left the team"
			} else if fault.KindOf(err) != fault.NotFound {
				return "", "", err
			}
		default:
			return "", "", err
		}
		all[userID] = of
		return of.name, of.role, nil
	}
}

// connectedAppsDone responds to a change on the page of connected apps, either with a redirect to the page and a
// message, or with the page and the error.
func (p *Pages) connectedAppsDone(w http.ResponseWriter, r *http.Request, v web.Visitor, a *teams.Actor, what string,
	err error) error {
	if err == nil {
		q := url.Values{"done": {what}}
		if at := pageFromQuery(r); at.After != "" {
			q.Set("after", at.After)
		} else if at.Before != "" {
			q.Set("before", at.Before)
		}
		return web.Redirect(w, r, "/app/apps?"+q.Encode())
	}
	f := web.NewForm()
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	if status == http.StatusNotFound {
		f.Problem = "This app is not connected to the team, or no longer."
	}
	return p.connectedAppsPage(w, r, v, a, status, f.Problem)
}

// limitConnectedApp changes a grant's limits. The visitor needs the same scopes as for the corresponding API operation.
func (p *Pages) limitConnectedApp(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.readTeamForm(w, r, &v, teams.ApprovalsWrite)
	if err != nil {
		return err
	}
	limits, err := grants.ParseLimits(typed.Get("recipients_per_email"), typed.Get("emails_per_day"),
		typed.Get("approval"))
	if err == nil {
		ctx := audit.With(r.Context(), audit.Entry{TeamID: a.TeamID, Action: audit.GrantUpdated})
		_, err = p.Grants.SetLimits(ctx, a, pathID(r), func(l *grants.Limits) error { *l = limits; return nil })
	}
	return p.connectedAppsDone(w, r, v, &a, "program-limited", err)
}

// revokeConnectedApp revokes a grant. Members with any role may revoke grants that they allowed themselves.
func (p *Pages) revokeConnectedApp(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, _, err := p.readTeamForm(w, r, &v, teams.GrantsRead)
	if err != nil {
		return err
	}
	err = explainScope(p.Grants.RevokeBy(r.Context(), a, pathID(r)))
	return p.connectedAppsDone(w, r, v, &a, "program-revoked", err)
}
