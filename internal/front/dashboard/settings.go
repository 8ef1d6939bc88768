package dashboard

import (
	"net/http"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/front/web"
)

var settingsPage = pageOf("settings.html")

// teamRenamed is the audit action for a new name of the team, as of the command that renames a team.
const teamRenamed = "team.renamed"

// settingsView is the content of the page with the settings of the team.
type settingsView struct {
	base
	Team      teams.Team
	Name      *web.Form
	Usage     []usageRow
	Rate      int // requests per second; 0 means no limit
	Retention []retentionRow
	Managed   string // the host at which the team receives emails, or ""
	SMTP      []SubmissionPort
	MailHosts []MailHost
	Theme     string
	Path      string
	Keys      bool // whether single keys are shortcuts
	MayName   bool
	MayAudit  bool
}

// usageRow is a bar of the usage. A limit of 0 means that there is none.
type usageRow struct {
	Label       string
	Used, Limit int64
	Says        string
	Resets      time.Time
	Width, Tone string
}

// retentionRow says how long some data is kept.
type retentionRow struct{ Label, For string }

func (c *call) settings() error { return c.settingsPage(http.StatusOK, nil) }

// settingsPage shows the settings. The form is that of a name that was refused, or nil.
func (c *call) settingsPage(status int, name *web.Form) error {
	t, err := c.Teams.Get(c.ctx(), c.team.TeamID)
	if err != nil {
		return err
	}
	own, err := c.Teams.Retention(c.ctx(), t.ID)
	if err != nil {
		return err
	}
	data := settingsView{base: c.base(), Team: t, Name: name, Rate: t.RateLimit,
		Retention: retentionRows(own.Effective(c.Keeps())), Managed: c.Receiving.ManagedHost(t.ID),
		SMTP: c.Submission(), Path: "/app/settings", Theme: c.Site.Theme(c.r),
		Keys:    c.Site.SingleKeys(c.r),
		MayName: c.actor.Scopes.Has(teams.MembersWrite), MayAudit: c.actor.Scopes.Has(teams.AuditRead)}
	if data.Rate == 0 {
		data.Rate = c.RateLimit()
	}
	if data.MailHosts, err = c.mailHosts(c.ctx(), data.MayName); err != nil {
		return err
	}
	if name == nil {
		data.Name = nameForm(t.Name)
	}
	if c.actor.Scopes.Has(teams.UsageRead) {
		if data.Usage, err = c.usage(); err != nil {
			return err
		}
	}
	return c.show(status, settingsPage, data, web.Crumbs(t.Name, "/app/emails", "Settings"), web.Class("form"))
}

func nameForm(name string) *web.Form {
	return web.NewForm(&web.Field{Name: "name", Label: "Name of the team", Value: name, Max: 100,
		Hint: "Members, invitations and consent pages show it."})
}

func (c *call) renameTeam() error {
	form := nameForm("").Fill(c.form)
	if err := c.Teams.Rename(c.ctx(), c.team.TeamID, c.form.Get("name")); err != nil {
		status, ours := form.SetError(err)
		if ours != nil {
			return err
		}
		return c.settingsPage(status, form)
	}
	return c.redirect("/app/settings", "The team has a new name.")
}

// usage returns the bars of the usage, as the API's operation for usage does.
func (c *call) usage() ([]usageRow, error) {
	now := c.Metrics.Now().UTC()
	day := startOf(now, "day")
	month := time.Date(now.Year(), now.Month(), 1, 0, 0, 0, 0, time.UTC)
	quota, err := c.Quotas.Usage(c.ctx(), c.team.TeamID)
	if err != nil {
		return nil, err
	}
	var rows []usageRow
	for _, x := range []struct {
		label       string
		from, to    time.Time
		used, limit int64
	}{
		{"Emails today", day, day.AddDate(0, 0, 1), quota.Day, quota.Daily},
		{"Emails this month", month, month.AddDate(0, 1, 0), quota.Month, quota.Monthly},
	} {
		u, err := c.Metrics.Usage(c.ctx(), c.team.TeamID, x.from, now)
		if err != nil {
			return nil, err
		}
		row := usageRow{Label: x.label, Used: int64(u.Sent + u.Received), Limit: x.limit, Resets: x.to,
			Says: web.Number(u.Sent) + " sent and " + web.Number(u.Received) + " received"}
		if x.limit > 0 { // emails that are accepted but not sent count too
			row.Used = x.used
		}
		rows = append(rows, row)
	}
	audience, err := c.Contacts.Usage(c.ctx(), c.team.TeamID)
	if err != nil {
		return nil, err
	}
	count, err := c.Domains.Count(c.ctx(), c.team.TeamID)
	if err != nil {
		return nil, err
	}
	rows = append(rows, usageRow{Label: "Domains", Used: int64(count)},
		usageRow{Label: "Contacts", Used: int64(audience.Contacts)},
		usageRow{Label: "Segments", Used: int64(audience.Segments), Limit: segments.Max})
	for i := range rows {
		rows[i].fill()
	}
	return rows, nil
}

// fill computes the bar. Tone is warn from 80 % and bad from 100 %, like the notices to the owner.
func (r *usageRow) fill() {
	if r.Limit == 0 {
		return
	}
	r.Width = web.Percent(float64(r.Used), float64(r.Limit), .5)
	switch {
	case r.Used >= r.Limit:
		r.Tone = "bad"
	case 5*r.Used >= 4*r.Limit:
		r.Tone = "warn"
	}
}

func retentionRows(r teams.Retention) []retentionRow {
	return []retentionRow{{"Sent emails", keptFor(r.Emails)},
		{"Their texts and attachments", keptFor(shorter(r.Bodies, r.Emails))},
		{"Their timelines and attempts", keptFor(shorter(r.Events, r.Emails))}, {"Received emails", keptFor(r.Received)}}
}

// shorter returns the shorter of two periods, in which 0 means forever.
func shorter(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// keptFor returns the words for a retention period.
func keptFor(d time.Duration) string {
	switch {
	case d == 0:
		return "until deleted"
	case d%(24*time.Hour) == 0 && d == 24*time.Hour:
		return "1 day"
	case d%(24*time.Hour) == 0:
		return web.Number(int(d/(24*time.Hour))) + " days"
	}
	return strings.TrimSuffix(strings.TrimSuffix(d.String(), "0s"), "0m")
}
