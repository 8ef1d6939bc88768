package signin

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/page"
)

var programsPage = pageOf("connected_apps.html")

const programsShown = 20 // on one page

// programs is what the page of a team's programs shows.
type programs struct {
	Team, TeamID  string
	Done, Problem string
	Programs      []granted
	Query         string // of this page; "" of the first one
	Newer, Older  string // pages beside this one; "" if there is none
}

// granted is a program that was let act for the team, with what the visitor may do about it.
type granted struct {
	grants.Grant
	By        string // who let it
	Full      bool   // it may do all that programs can
	May       []string
	MayLimit  bool
	MayRevoke bool
}

// ended says in words why a program may not act any more.
var ended = map[grants.Reason]string{
	grants.FromAPI:      "it was revoked by the API",
	grants.FromSite:     "it was revoked on this page",
	grants.ByClient:     "the program has given it up",
	grants.TokenReused:  "a refresh token was used twice, so somebody may have stolen it",
	grants.CodeReused:   "a code was used twice, so somebody may have stolen it",
	grants.UserLeft:     "who allowed it has left the team, or was disabled",
	grants.KeyDeleted:   "the API key that allowed it was deleted",
	grants.GrantExpired: "the program has not used it for two months",
}

// Why says why the program may not act any more.
func (g granted) Why() string {
	if why, ok := ended[g.RevokedReason]; ok {
		return why
	}
	return string(g.RevokedReason)
}

func (p *Pages) showPrograms(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	m, ok := v.Team()
	if !ok {
		return web.Redirect(w, r, "/account/team")
	}
	a, err := p.inTeam(r, &v, m.TeamID, teams.GrantsRead)
	if err != nil {
		return err
	}
	return p.programsPage(w, r, v, &a, http.StatusOK, "")
}

// part returns the part of the list that a request is about. A cursor that is none is as one that is not given.
func part(r *http.Request) page.Page {
	at := page.Page{Limit: programsShown}
	q := r.URL.Query()
	if after := strings.ToLower(q.Get("after")); id.Valid(after) {
		at.After = after
	} else if before := strings.ToLower(q.Get("before")); id.Valid(before) {
		at.Before = before
	}
	return at
}

func (p *Pages) programsPage(w http.ResponseWriter, r *http.Request, v web.Visitor, a *teams.Actor, status int,
	problem string) error {
	of := programs{Team: teamName(&v, a.TeamID), TeamID: a.TeamID, Problem: problem}
	if r.Method == http.MethodGet {
		of.Done = said(r)
	}
	at := part(r)
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
			of.Newer = with("/programs", "before", all[0].ID)
		}
		if at.Before != "" || more {
			of.Older = with("/programs", "after", all[n-1].ID)
		}
	}
	who := p.whoGranted(r, a.TeamID)
	for _, g := range all {
		by, role, err := who(g.UserID)
		if err != nil {
			return err
		}
		x := granted{Grant: g, By: by, Full: g.Scopes.Full && !g.Limits.Any()}
		may := g.Scopes.All()
		if g.RevokedAt.IsZero() {
			if role != "" {
				may = role.Scopes()
			}
			x.MayLimit = a.Scopes.Has(teams.ApprovalsWrite)
			x.MayRevoke = a.Scopes.Has(teams.GrantsWrite) || g.UserID == v.User.ID
		}
		x.May = grants.DescribeScopes(g.AllowedScopes(may), g.Limits.Any())
		of.Programs = append(of.Programs, x)
	}
	return p.Site.Show(w, r, status, programsPage, of)
}

// whoGranted returns a function that names users, and says which role they have in the team, "" if they are no members.
// Each is looked up once.
func (p *Pages) whoGranted(r *http.Request, teamID string) func(userID string) (string, teams.Role, error) {
	type known struct {
		name string
		role teams.Role
	}
	all := map[string]known{"": {name: "an API key, in development"}}
	return func(userID string) (string, teams.Role, error) {
		if of, ok := all[userID]; ok {
			return of.name, of.role, nil
		}
		of := known{name: "somebody whose account is deleted"}
		m, err := p.Members.Get(r.Context(), teamID, userID)
		switch {
		case err == nil:
			of = known{m.Email, m.Role}
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

// programsDone answers what was to be changed on the page of a team's programs.
func (p *Pages) programsDone(w http.ResponseWriter, r *http.Request, v web.Visitor, a *teams.Actor, what string,
	err error) error {
	if err == nil {
		q := url.Values{"done": {what}}
		if at := part(r); at.After != "" {
			q.Set("after", at.After)
		} else if at.Before != "" {
			q.Set("before", at.Before)
		}
		return web.Redirect(w, r, "/programs?"+q.Encode())
	}
	f := web.NewForm()
	status, err := f.Blame(inWords(err))
	if err != nil {
		return err
	}
	if status == http.StatusNotFound {
		f.Problem = "This program may not act for the team, or not any more."
	}
	return p.programsPage(w, r, v, a, status, f.Problem)
}

// limitProgram changes what a program may send, as the API does and with the same right.
func (p *Pages) limitProgram(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.change(w, r, &v, teams.ApprovalsWrite)
	if err != nil {
		return err
	}
	limits, err := grants.ParseLimits(typed.Get("recipients_per_email"), typed.Get("emails_per_day"),
		typed.Get("approval"))
	if err == nil {
		ctx := audit.With(r.Context(), audit.Entry{TeamID: a.TeamID, Action: audit.GrantUpdated})
		_, err = p.Grants.SetLimits(ctx, a, pathID(r), func(l *grants.Limits) error { *l = limits; return nil })
	}
	return p.programsDone(w, r, v, &a, "program-limited", err)
}

// revokeProgram takes back what a program may do. Everybody may take back what they have allowed themselves.
func (p *Pages) revokeProgram(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, _, err := p.change(w, r, &v, teams.GrantsRead)
	if err != nil {
		return err
	}
	return p.programsDone(w, r, v, &a, "program-revoked", p.Grants.RevokeBy(r.Context(), a, pathID(r)))
}
