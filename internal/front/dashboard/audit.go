package dashboard

import (
	"net/http"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/platform/audit"
)

var auditPage = pageOf("audit.html")

// auditList is the content of the page with the audit log of the team.
type auditList struct {
	base
	Rows    []auditRow
	Pager   pager
	Actor   string
	Name    string // of the actor
	Action  string
	Actors  []web.Choice
	Actions []web.Choice
	Words   string // of the action
	Set     int
	NoActor string
	NoAct   string
	Further string // where a search goes on that found nothing in the entries it read
}

// commonActions are offered in the menu of actions. An address can name any other.
var commonActions = []string{audit.UserSignedIn, audit.MemberInvited, audit.MemberJoined, audit.MemberRoleChanged,
	audit.MemberRemoved, audit.GrantCreated, audit.GrantRevoked, audit.ApprovalApproved, audit.ApprovalRejected,
	"api_key.created", "api_key.deleted", "domain.created", "domain.deleted", "webhook.created", "webhook.updated",
	"webhook.deleted", "suppression.created", "suppression.deleted", "email.cancelled", "email.shared", teamRenamed}

// offer adds the actions to the menu.
func (l *auditList) offer() {
	all := commonActions
	if l.Action != "" {
		l.Words = auditWords(l.Action)
		if !slices.Contains(all, l.Action) {
			all = append([]string{l.Action}, all...)
		}
	}
	for _, a := range all {
		l.Actions = append(l.Actions, web.Choice{Value: a, Label: auditWords(a)})
	}
}

func (c *call) audit() error {
	p, err := c.page(rowsShown)
	if err != nil {
		return err
	}
	q := c.r.URL.Query()
	data := auditList{base: c.base(), Actor: strings.ToLower(q.Get("actor")), Action: strings.TrimSpace(q.Get("action")),
		NoActor: web.With(c.r.URL, "actor", "", "after", "", "before", ""),
		NoAct:   web.With(c.r.URL, "action", "", "after", "", "before", "")}
	f := audit.Filter{Action: data.Action}
	if data.Actor != "" {
		f.ActorID = validID(data.Actor)
		data.Set++
	}
	if data.Action != "" {
		data.Set++
	}
	all, more, next, err := c.Audit.List(c.ctx(), c.team.TeamID, f, p)
	if err != nil {
		return err
	}
	var ids []string
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	data.Pager = c.pager(p, ids, more)
	if data.Rows, err = c.auditRows(all); err != nil {
		return err
	}
	data.offer()
	if next != "" {
		name, other := "after", "before"
		if p.Before != "" {
			name, other = other, name
		}
		data.Further = web.With(c.r.URL, name, next, other, "")
		if data.Pager.Older == "" && name == "after" {
			data.Pager.Older = data.Further
		}
	}
	if err := c.actors(&data); err != nil {
		return err
	}
	return c.show(http.StatusOK, auditPage, data, web.Crumbs("Settings", "/app/settings", "Audit log"))
}

// actors adds the members and keys of the team to the menu of actors.
func (c *call) actors(data *auditList) error {
	members, err := c.memberMenu()
	if err != nil {
		return err
	}
	keys, err := c.keyMenu()
	if err != nil {
		return err
	}
	for i := range keys {
		keys[i].Label = "Key " + keys[i].Label
	}
	all := slices.Concat(members, keys)
	data.Actors, data.Name = all, all.label(data.Actor)
	for _, e := range data.Rows {
		if data.Name == "" && e.ActorID == data.Actor {
			data.Name = e.Actor
		}
	}
	return nil
}
