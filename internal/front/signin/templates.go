package signin

import (
	"net/http"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/sending/templates"
)

var templatePage = pageOf("template.html")

// templateView is the content of the page on which a person reads and publishes the newest version of a template. Apps
// with limits cannot publish templates themselves.
type templateView struct {
	templates.Template
	Version           templates.Version
	Text              string
	Team, TeamID      string
	Problem           string
	MayPublish, Waits bool // Waits: the newest version is not published
}

// showTemplate shows the newest version of a template of the visitor's current team.
func (p *Pages) showTemplate(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	m, ok := v.Team()
	if !ok {
		return web.Redirect(w, r, "/app/account/team")
	}
	a, err := p.inTeam(r, &v, m.TeamID, teams.TemplatesRead)
	if err != nil {
		return err
	}
	return p.templatePage(w, r, &v, &a, http.StatusOK, "")
}

func (p *Pages) templatePage(w http.ResponseWriter, r *http.Request, v *web.Visitor, a *teams.Actor, status int,
	problem string) error {
	t, version, err := p.Templates.Get(r.Context(), a.TeamID, pathID(r))
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return errNoPage
	}
	if err != nil {
		return err
	}
	defer version.Close()
	return p.Site.Show(w, r, status, templatePage, templateView{Template: t, Version: version,
		Text: version.PlainOrConverted(), Team: teamName(v, a.TeamID), TeamID: a.TeamID, Problem: problem,
		MayPublish: a.Scopes.Has(teams.TemplatesWrite), Waits: t.HasUnpublished()},
		web.Crumbs("Connected apps", "/app/apps", visible.Show(t.Name)))
}

// publishTemplate publishes the version of a template that the visitor has read.
func (p *Pages) publishTemplate(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.readTeamForm(w, r, &v, teams.TemplatesWrite)
	if err != nil {
		return err
	}
	version := strings.ToLower(typed.Get("version"))
	if !id.Valid(version) {
		return errNoPage
	}
	ctx := audit.With(r.Context(), audit.Entry{TeamID: a.TeamID, Action: templatePublished})
	_, err = p.Templates.PublishVersion(ctx, a.TeamID, pathID(r), version)
	if err == nil {
		return web.Redirect(w, r, with("/app/apps", "done", "published"))
	}
	f := web.NewForm()
	status, err := f.SetError(err)
	if err != nil {
		return err
	}
	if status == http.StatusNotFound {
		return errNoPage
	}
	return p.templatePage(w, r, &v, &a, status, f.Problem)
}

// templatePublished is the action that package api records for the same operation.
const templatePublished = "template.published"
