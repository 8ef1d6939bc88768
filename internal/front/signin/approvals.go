package signin

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/approvals"
)

var (
	approvalsPage = pageOf("approvals.html")
	approvalPage  = pageOf("approval.html")
	filePage      = pageOf("file.html")
)

const (
	pendingShown = 100
	decidedShown = 30
)

// approvalList is the content of the page that lists a team's approvals.
type approvalList struct {
	Team, Done       string
	Pending, Decided []approvals.Approval
	More             bool // whether there are more pending approvals than those in Pending
}

// approvalView is the content of the page for one approval, which shows the complete email as it would be sent.
type approvalView struct {
	approvals.Approval
	Team, Done, Problem string
	TeamID              string
	MayDecide           bool
	Text                string // the email's plain text part
	Generated           bool   // whether Text was generated from the HTML
	HTML                string
	Files               []fileView
	Usage               string // what the app has sent today, if its emails are limited
}

type fileView struct {
	Name, Type string
	Size       int
}

func (p *Pages) showApprovals(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	m, ok := v.Team()
	if !ok {
		return web.Redirect(w, r, "/app/account/team")
	}
	a, err := p.inTeam(r, &v, m.TeamID, teams.ApprovalsRead)
	if err != nil {
		return err
	}
	of := approvalList{Team: m.TeamName, Done: doneMessage(r)}
	of.Pending, of.More, err = p.Approvals.List(r.Context(), a, approvals.Pending, page.Page{Limit: pendingShown})
	if err != nil {
		return err
	}
	all, _, err := p.Approvals.List(r.Context(), a, "", page.Page{Limit: pendingShown + decidedShown})
	for _, one := range all {
		if one.State != approvals.Pending && len(of.Decided) < decidedShown {
			of.Decided = append(of.Decided, one)
		}
	}
	if err != nil {
		return err
	}
	return p.Site.Show(w, r, http.StatusOK, approvalsPage, of, web.Class("form"),
		web.Crumbs(m.TeamName, "/app/emails", "Approvals"))
}

// showApproval shows an approval that belongs to any of the visitor's teams. Visitors follow a link in an email, and
// the link does not depend on their current team.
func (p *Pages) showApproval(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	one, a, m, err := p.findApproval(r, &v)
	if err != nil {
		return err
	}
	return p.approvalPage(w, r, http.StatusOK, m, &a, one, "")
}

// findApproval returns the approval in the request's path from any of the visitor's teams.
func (p *Pages) findApproval(r *http.Request, v *web.Visitor) (one approvals.Approval, a teams.Actor,
	m members.Membership, err error) {
	for _, m := range v.Teams {
		a, err := p.inTeam(r, v, m.TeamID, teams.ApprovalsRead)
		if err != nil {
			return one, a, m, err
		}
		one, err := p.Approvals.Get(r.Context(), a, pathID(r))
		if err == nil || fault.KindOf(err) != fault.NotFound {
			return one, a, m, err
		}
	}
	return one, a, m, errNoPage
}

// showMail shows the HTML of a pending email in a frame.
func (p *Pages) showMail(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	one, _, _, err := p.findApproval(r, &v)
	if err != nil {
		return err
	}
	if one.Email == nil || one.Email.HTML == nil {
		return errNoPage
	}
	web.MailHeaders(w.Header(), false)
	io.WriteString(w, *one.Email.HTML)
	return nil
}

// fileChunk is the maximum number of bytes of a file that a page shows.
const fileChunk = 200_000

// showFile shows part of a file of a pending email as text.
func (p *Pages) showFile(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	one, _, _, err := p.findApproval(r, &v)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(r.PathValue("number"))
	if err != nil || one.Email == nil || n < 0 || n >= len(one.Email.Attachments) {
		return errNoPage
	}
	f := one.Email.Attachments[n]
	from, _ := strconv.Atoi(r.URL.Query().Get("from"))
	from = max(min(from, len(f.Content)), 0)
	to := min(from+fileChunk, len(f.Content))
	for back := 1; back < utf8.UTFMax && to < len(f.Content) && !utf8.RuneStart(f.Content[to]); back++ {
		to--
	}
	of := struct {
		fileView
		ID, Text, Next string
		From           int
	}{fileView{f.Filename, f.ContentType, len(f.Content)}, one.ID, string(f.Content[from:to]), "", from}
	if to < len(f.Content) {
		of.Next = fmt.Sprintf("/app/approvals/%s/files/%d?from=%d", one.ID, n, to)
	}
	return p.Site.Show(w, r, http.StatusOK, filePage, of, web.Bare(), web.Class("wide"))
}

func (p *Pages) approvalPage(w http.ResponseWriter, r *http.Request, status int, m members.Membership, a *teams.Actor,
	one approvals.Approval, problem string) error {
	of := approvalView{Approval: one, Team: m.TeamName, TeamID: m.TeamID, Problem: problem,
		MayDecide: a.Scopes.Has(teams.ApprovalsWrite)}
	if one.State == approvals.Pending && one.Actor.Kind == teams.GrantActor {
		u, err := p.Grants.Usage(r.Context(), a.TeamID, one.Actor.ID)
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return err
		}
		if u.Limits.Emails > 0 {
			of.Usage = fmt.Sprintf("%s of %s emails today", web.Number(int(u.Sent)), web.Number(int(u.Limits.Emails)))
		}
	}
	if e := one.Email; e != nil {
		if e.HTML != nil {
			of.HTML = *e.HTML
		}
		if of.Generated = e.Text == nil; of.Generated {
			of.Text = htmltext.FromHTML(of.HTML)
		} else {
			of.Text = *e.Text
		}
		for _, f := range e.Attachments {
			of.Files = append(of.Files, fileView{f.Filename, f.ContentType, len(f.Content)})
		}
	}
	return p.Site.Show(w, r, status, approvalPage, of, web.Bare(), web.Class("wide"))
}

func (p *Pages) approve(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, _, err := p.readTeamForm(w, r, &v, teams.ApprovalsWrite)
	if err != nil {
		return err
	}
	one, err := p.Approvals.Approve(r.Context(), a, pathID(r))
	return p.decided(w, r, v, &a, one, err)
}

func (p *Pages) reject(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
	a, typed, err := p.readTeamForm(w, r, &v, teams.ApprovalsWrite)
	if err != nil {
		return err
	}
	one, err := p.Approvals.Reject(r.Context(), a, pathID(r), typed.Get("reason"))
	return p.decided(w, r, v, &a, one, err)
}

// decided responds to a decision about an approval, either with a redirect to the list and a message, or with the
// approval and the error.
func (p *Pages) decided(w http.ResponseWriter, r *http.Request, v web.Visitor, a *teams.Actor, one approvals.Approval,
	err error) error {
	switch {
	case err == nil && one.State == approvals.Failed:
		return web.Redirect(w, r, "/app/approvals/"+one.ID)
	case err == nil:
		return web.Redirect(w, r, with("/app/approvals", "done", "email-"+string(one.State)))
	case fault.KindOf(err) == fault.NotFound:
		return errNoPage
	}
	f := web.NewForm()
	status, ours := f.SetError(err)
	if ours != nil {
		return ours
	}
	now, err := p.Approvals.Get(r.Context(), *a, pathID(r))
	if err != nil {
		return err
	}
	for _, m := range v.Teams {
		if m.TeamID == a.TeamID {
			return p.approvalPage(w, r, status, m, a, now, f.Problem)
		}
	}
	return errNoPage
}
