package api

import (
	"cmp"
	"context"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/outbound/forwards"
)

type createForwardIn struct {
	Match   string `json:"match" doc:"The part of the address before the @, such as sales, or * for all addresses at the domain." maxLength:"64"`
	Address string `json:"address,omitzero" doc:"The address to which mail is forwarded. Give either address or url." maxLength:"320"`
	URL     string `json:"url,omitzero" doc:"The URL, with https:// or http://, to which the payload of the event email.received is posted. Give either url or address." maxLength:"2000"`
	Enabled *bool  `json:"enabled,omitzero" doc:"Whether the rule is switched on. The default is true."`
}

type updateForwardIn struct {
	Match   *string `json:"match,omitzero" doc:"The part of the address before the @, or * for all." maxLength:"64"`
	Enabled *bool   `json:"enabled,omitzero" doc:"Whether the rule is switched on. Switching it on resets its failures."`

	Address wire.Immutable[string] `json:"address,omitzero" hidden:"true"`
	URL     wire.Immutable[string] `json:"url,omitzero" hidden:"true"`
}

// ForwardItem represents a forwarding rule in a list. ForwardItem is exported because Huma skips the fields of
// unexported embedded types.
type ForwardItem struct {
	ID         string       `json:"id"`
	DomainID   string       `json:"domain_id"`
	Match      string       `json:"match" doc:"The part of the address before the @, or * for all addresses."`
	Address    *string      `json:"address" doc:"The address to which mail is forwarded; null if the rule has a URL."`
	URL        *string      `json:"url" doc:"The URL to which mail is posted; null if the rule has an address. Without domains:write, the query is masked."`
	Enabled    bool         `json:"enabled" doc:"Whether the rule is switched on."`
	State      string       `json:"state" doc:"The state of the rule. It forwards mail if it is active or failing; failing means that no message has succeeded since a permanent failure." enum:"waiting_for_confirmation,refused,active,failing,disabled"`
	Forwarded  int64        `json:"forwarded" doc:"How many messages the rule has forwarded."`
	Failed     int64        `json:"failed" doc:"How many messages bounced, were reported as spam, or could not be posted."`
	Stopped    int64        `json:"stopped" doc:"How many messages were deliberately not forwarded, such as spam or messages in a mail loop."`
	LastReason *string      `json:"last_reason" doc:"Why the last message failed or was stopped; null if none was."`
	LastAt     *wire.DBTime `json:"last_reason_at" doc:"When the last message failed or was stopped; null if none was."`
	AskedAt    *wire.DBTime `json:"asked_at" doc:"When the last confirmation email that covers the rule was sent; null if none was sent yet."`
	AskAfter   *wire.DBTime `json:"ask_after" doc:"The next confirmation email to the address is not sent before; null if the team has sent it none."`
	CreatedAt  wire.DBTime  `json:"created_at"`
}

type forwardWire struct {
	Object string `json:"object"`
	ForwardItem
}

type forwardWithSecret struct {
	Object string `json:"object"`
	ForwardItem
	SigningSecret *string `json:"signing_secret" doc:"The secret with which requests to the URL are signed: whsec_ followed by the key in base64, as libraries that verify signatures expect it. Null if the rule has an address."`
}

type forwardSecret struct {
	Object        string `json:"object"`
	ID            string `json:"id"`
	SigningSecret string `json:"signing_secret" doc:"whsec_ followed by the key in base64, as libraries that verify signatures expect it."`
}

func forwardToItem(r forwards.Rule) ForwardItem {
	w := ForwardItem{ID: r.ID, DomainID: r.DomainID, Match: r.Local, Address: orNull(r.Address), URL: orNull(r.URL),
		Enabled: r.Enabled, State: string(r.State()), Forwarded: r.Forwarded, Failed: r.Failed, Stopped: r.Stopped,
		LastReason: orNull(r.Reason), CreatedAt: wire.DBTime(r.CreatedAt)}
	if !r.ReasonAt.IsZero() {
		w.LastAt = new(wire.DBTime(r.ReasonAt))
	}
	if !r.AskedAt.IsZero() {
		w.AskedAt = new(wire.DBTime(r.AskedAt))
	}
	if !r.AskAfter.IsZero() {
		w.AskAfter = new(wire.DBTime(r.AskAfter))
	}
	return w
}

// forwardIDs returns the ids in the path of an operation on a rule.
func forwardIDs(c *wire.Call) (domainID, ruleID string, err error) {
	if domainID, err = c.ID("domain_id"); err == nil {
		ruleID, err = c.ID("forward_id")
	}
	return domainID, ruleID, err
}

func (a *API) createForward(ctx context.Context, c *wire.Call, in createForwardIn) (forwardWithSecret, error) {
	id, err := c.ID("domain_id")
	if err == nil {
		err = c.Actor.Require(furtherScopes["POST /domains/{domain_id}/forwards"][0])
	}
	if err != nil {
		return forwardWithSecret{}, err
	}
	r, err := a.Services.Forwards.Create(ctx, c.TeamID, id, forwards.NewRule{Local: in.Match, Address: in.Address,
		URL: in.URL, Off: in.Enabled != nil && !*in.Enabled})
	return forwardWithSecret{"forward", forwardToItem(r), orNull(r.Secret)}, err
}

func (a *API) listForwards(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[ForwardItem], error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return wire.List[ForwardItem]{}, err
	}
	p, err := c.Page(20)
	if err != nil {
		return wire.List[ForwardItem]{}, err
	}
	all, more, err := a.Services.Forwards.List(ctx, c.TeamID, id, p)
	if !c.Scopes.Has(teams.DomainsWrite) {
		for i := range all {
			all[i] = all[i].HideURL()
		}
	}
	return wire.ListOf(all, more, forwardToItem), err
}

func (a *API) getForward(ctx context.Context, c *wire.Call, _ wire.None) (forwardWithSecret, error) {
	domainID, id, err := forwardIDs(c)
	if err != nil {
		return forwardWithSecret{}, err
	}
	r, err := a.Services.Forwards.GetSecret(ctx, c.TeamID, domainID, id)
	c.Unaudited = r.Secret == ""
	return forwardWithSecret{"forward", forwardToItem(r), orNull(r.Secret)}, err
}

func (a *API) rotateForward(ctx context.Context, c *wire.Call, _ wire.None) (forwardSecret, error) {
	domainID, id, err := forwardIDs(c)
	if err != nil {
		return forwardSecret{}, err
	}
	secret, err := a.Services.Forwards.Rotate(ctx, c.TeamID, domainID, id)
	return forwardSecret{"forward", id, secret}, err
}

func (a *API) updateForward(ctx context.Context, c *wire.Call, in updateForwardIn) (forwardWire, error) {
	domainID, id, err := forwardIDs(c)
	if err == nil {
		err = c.Actor.Require(furtherScopes["PATCH /domains/{domain_id}/forwards/{forward_id}"][0])
	}
	change := forwards.Change{Local: in.Match, Enabled: in.Enabled}
	switch {
	case err != nil:
	case in.Address.Given() || in.URL.Given():
		var r forwards.Rule
		if r, err = a.Services.Forwards.Get(ctx, c.TeamID, domainID, id); err == nil {
			err = cmp.Or(in.Address.MustEqual("address", r.Address), in.URL.MustEqual("url", r.URL))
		}
	default:
		err = c.RequireChange(in, change)
	}
	if err != nil {
		return forwardWire{}, err
	}
	r, err := a.Services.Forwards.Update(ctx, c.TeamID, domainID, id, change)
	return forwardWire{"forward", forwardToItem(r)}, err
}

func (a *API) deleteForward(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	domainID, id, err := forwardIDs(c)
	if err != nil {
		return gone{}, err
	}
	return gone{"forward", id, true}, a.Services.Forwards.Delete(ctx, c.TeamID, domainID, id)
}

func (a *API) askForward(ctx context.Context, c *wire.Call, _ wire.None) (forwardWire, error) {
	domainID, id, err := forwardIDs(c)
	if err != nil {
		return forwardWire{}, err
	}
	r, err := a.Services.Forwards.Ask(ctx, c.TeamID, domainID, id)
	return forwardWire{"forward", forwardToItem(r)}, err
}
