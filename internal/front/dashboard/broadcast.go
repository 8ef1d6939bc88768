package dashboard

import (
	"net/http"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
)

var broadcastPage = pageOf("broadcast.html")

// broadcastView is the content of the page of a broadcast.
type broadcastView struct {
	base
	broadcasts.Broadcast
	State   string // as the table of states names it
	Segment string // name of the segment, or "" if it was deleted
	Tally   broadcasts.Tally
	Emails  bool // whether the visitor may see the team's emails
	Docs    string
}

func broadcastPath(broadcastID string) string { return "/app/broadcasts/" + broadcastID }

// broadcastState returns the state as which a broadcast is shown: one that is being sent is queued in the API.
func broadcastState(s broadcasts.Status) string {
	if s == broadcasts.Queued {
		return "sending"
	}
	return string(s)
}

// broadcast shows a broadcast with its results. Changes are made by the API.
func (c *call) broadcast() error {
	one, err := c.Broadcasts.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	results, err := c.Broadcasts.Results(c.ctx(), c.team.TeamID, one.ID)
	if err != nil {
		return err
	}
	segment, err := c.Contacts.Segments.Get(c.ctx(), c.team.TeamID, one.SegmentID)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	return c.show(http.StatusOK, broadcastPage, broadcastView{base: c.base(), Broadcast: one,
		State: broadcastState(one.Status), Segment: segment.Name, Tally: results.Tally,
		Emails: c.actor.Scopes.Has(teams.EmailsRead), Docs: c.docsOf("GET /broadcasts/{broadcast_id}")},
		web.Crumbs(c.team.TeamName, "/app/emails", one.Name), web.Class("form"))
}
