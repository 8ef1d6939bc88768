package api

import (
	"context"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/front/api/wire"
)

type broadcastAudienceOut struct {
	Object   string           `json:"object"`
	ID       string           `json:"id"`
	Contacts int64            `json:"contacts" doc:"All contacts of the segment."`
	Mailed   int64            `json:"mailed" doc:"Contacts who would receive the broadcast if it were sent now."`
	HeldOut  int64            `json:"held_out" doc:"The approximate number of contacts who would be held out."`
	LeftOut  map[string]int64 `json:"left_out" doc:"Contacts who would receive nothing, counted by reason."`
}

func (a *API) broadcastAudience(ctx context.Context, c *wire.Call, _ wire.None) (broadcastAudienceOut, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return broadcastAudienceOut{}, err
	}
	of, err := a.Services.Broadcasts.Audience(ctx, c.TeamID, id)
	return broadcastAudienceOut{"broadcast_audience", id, of.Contacts, of.Mailed, of.HeldOut, of.LeftOut}, err
}

// BroadcastTally counts recipients. BroadcastTally is exported because Huma skips the fields of unexported embedded
// types.
type BroadcastTally struct {
	Entered      int64 `json:"entered" doc:"Recipients for whom an email was created, without contacts that were deleted before it was sent."`
	Waiting      int64 `json:"waiting" doc:"Recipients whose email was not handed to a mail server yet."`
	Sent         int64 `json:"sent"`
	Delivered    int64 `json:"delivered"`
	Bounced      int64 `json:"bounced"`
	Failed       int64 `json:"failed"`
	Suppressed   int64 `json:"suppressed" doc:"Suppressed after the email was created. Contacts who were suppressed before count in left_out."`
	Canceled     int64 `json:"canceled"`
	Opened       int64 `json:"opened" doc:"Recipients who opened the email; bots are not counted."`
	Clicked      int64 `json:"clicked" doc:"Recipients who clicked a link; bots are not counted."`
	Complained   int64 `json:"complained"`
	Unsubscribed int64 `json:"unsubscribed"`
}

type variantTally struct {
	Variant      int   `json:"variant" doc:"Counted from 0."`
	Winner       bool  `json:"winner"`
	Entered      int64 `json:"entered"`
	Sent         int64 `json:"sent"`
	Delivered    int64 `json:"delivered"`
	Bounced      int64 `json:"bounced"`
	Opened       int64 `json:"opened"`
	Clicked      int64 `json:"clicked"`
	Complained   int64 `json:"complained"`
	Unsubscribed int64 `json:"unsubscribed"`
}

type broadcastResultsOut struct {
	Object string `json:"object"`
	ID     string `json:"id"`
	State  string `json:"state" enum:"draft,scheduled,queued,paused,canceled,sent,failed"`
	BroadcastTally
	LeftOut  map[string]int64 `json:"left_out" doc:"Contacts who received nothing, counted by reason."`
	Variants []variantTally   `json:"variants"`

	WinnerSignificant *bool `json:"winner_significant" doc:"Whether the winner of the A/B test differed from each other variant when it was chosen, according to a z test at 95 %. Null if the metric chose no winner."`
}

func (a *API) broadcastResults(ctx context.Context, c *wire.Call, _ wire.None) (broadcastResultsOut, error) {
	id, err := c.ID("broadcast_id")
	if err != nil {
		return broadcastResultsOut{}, err
	}
	r, err := a.Services.Broadcasts.Results(ctx, c.TeamID, id)
	out := broadcastResultsOut{"broadcast_results", id, string(r.Broadcast.Status), BroadcastTally{r.Entered, r.Waiting,
		r.Tally.Sent, r.Delivered, r.Bounced, r.Tally.Failed, r.Suppressed, r.Tally.Canceled, r.Opened, r.Clicked,
		r.Complained, r.Unsubscribed}, r.LeftOut, []variantTally{}, nil}
	if yes, ok := r.Broadcast.WinnerSignificant(); ok {
		out.WinnerSignificant = &yes
	}
	for i, t := range r.Variants {
		out.Variants = append(out.Variants, variantTally{i, i == r.Broadcast.Winner, t.Entered, t.Sent, t.Delivered,
			t.Bounced, t.Opened, t.Clicked, t.Complained, t.Unsubscribed})
	}
	return out, err
}

type clickedLink struct {
	URL    string `json:"url"`
	Clicks int    `json:"clicks"`
}

type broadcastRecipientItem struct {
	ID           string        `json:"id" doc:"The position in the list, for the parameters after and before."`
	ContactID    *string       `json:"contact_id" doc:"Null if the contact was deleted."`
	Email        string        `json:"email"`
	EmailID      *string       `json:"email_id" doc:"The ID of the email that the contact received."`
	Variant      int           `json:"variant"`
	State        string        `json:"state" enum:"waiting,sent,delivered,bounced,failed,suppressed,canceled,left_out"`
	Reason       *string       `json:"reason" doc:"Why the contact received no email."`
	Count        *int          `json:"count,omitzero" doc:"The number of opens or clicks; only with the types opened and clicked."`
	BounceType   string        `json:"bounce_type,omitzero" enum:"permanent,transient,undetermined"`
	ClickedLinks []clickedLink `json:"clicked_links,omitzero" doc:"Only with the type clicked; at most 100."`
}

// broadcastRecipientList is a page of recipients. A page can have fewer recipients than the limit even if more
// recipients match, because each request reads a limited number of rows.
type broadcastRecipientList struct {
	Object  string                   `json:"object"`
	HasMore bool                     `json:"has_more"`
	Data    []broadcastRecipientItem `json:"data"`
	Next    string                   `json:"next,omitzero" doc:"Present if few of very many recipients match and there may be more. Pass it as after (or before) to continue the search."`
}

func (a *API) listBroadcastRecipients(ctx context.Context, c *wire.Call, _ wire.None) (broadcastRecipientList, error) {
	var empty broadcastRecipientList
	id, err := c.ID("broadcast_id")
	if err != nil {
		return empty, err
	}
	p, err := c.OpaquePage(20)
	if err != nil {
		return empty, err
	}
	q := c.Query()
	kind := broadcasts.RecipientType(q.Get("type"))
	all, more, next, err := a.Services.Broadcasts.Recipients(ctx, c.TeamID, id, broadcasts.RecipientQuery{Type: kind,
		BounceType: q.Get("bounce_type"), Email: q.Get("email")}, p)
	l := wire.ListOf(all, more, func(r broadcasts.Recipient) broadcastRecipientItem {
		i := broadcastRecipientItem{ID: r.Cursor(), Email: r.Address, EmailID: orNull(r.EmailID), Variant: r.Variant,
			State: r.State, Reason: orNull(r.Reason)}
		if !r.Deleted {
			i.ContactID = &r.ContactID
		}
		switch kind {
		case "opened":
			i.Count = &r.Opens
		case "clicked":
			i.Count, i.ClickedLinks = &r.Clicks, []clickedLink{}
			for _, l := range r.Links {
				i.ClickedLinks = append(i.ClickedLinks, clickedLink{l.URL, l.Clicks})
			}
		case "bounced":
			i.BounceType = r.BounceType
		}
		return i
	})
	return broadcastRecipientList{l.Object, l.HasMore, l.Data, next}, err
}

type broadcastLinkItem struct {
	ID           string `json:"id" doc:"The position in the list, for the parameters after and before."`
	URL          string `json:"url"`
	Clicks       int    `json:"clicks"`
	UniqueClicks int    `json:"unique_clicks" doc:"The number of recipients who clicked the link."`
}

func (a *API) listBroadcastLinks(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[broadcastLinkItem], error) {
	var empty wire.List[broadcastLinkItem]
	id, err := c.ID("broadcast_id")
	if err != nil {
		return empty, err
	}
	p, err := c.OpaquePage(20)
	if err != nil {
		return empty, err
	}
	all, more, err := a.Services.Broadcasts.Links(ctx, c.TeamID, id, p)
	return wire.ListOf(all, more, func(l broadcasts.Link) broadcastLinkItem {
		return broadcastLinkItem{l.Cursor(), l.URL, l.Clicks, l.Recipients}
	}), err
}
