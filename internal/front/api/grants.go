package api

import (
	"context"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
)

// grantItem represents a grant in a list. As the API reference requires, grantItem has no field named "object".
type grantItem struct {
	ID            string      `json:"id"`
	ClientID      string      `json:"client_id" doc:"The OAuth client that the grant was given to."`
	Scopes        []string    `json:"scopes" doc:"The granted rights: full_access, or scopes such as emails:send. The limits and the user's role may allow less."`
	Resource      *string     `json:"resource" nullable:"true" doc:"The resource that the grant is for; null if the OAuth client named none."`
	CreatedAt     wire.DBTime `json:"created_at"`
	RevokedAt     wire.DBTime `json:"revoked_at" nullable:"true" doc:"Null while the grant is active."`
	RevokedReason *string     `json:"revoked_reason" nullable:"true" doc:"Null while the grant is active."`
	Client        grantClient `json:"client"`
	// Limits is an extension to the API reference.
	Limits grantLimits `json:"limits" doc:"The limits that a user has set for the OAuth client."`
}

// grantLimits holds a grant's sending limits.
type grantLimits struct {
	Recipients *int64 `json:"recipients_per_email" nullable:"true" doc:"To, Cc and Bcc together; null means no limit."`
	Emails     *int64 `json:"emails_per_day" nullable:"true" doc:"Per UTC day, counted per recipient. Null means no limit."`
	Approval   bool   `json:"approval" doc:"Whether a person must approve each email before it is sent."`
}

func grantLimitsOf(l grants.Limits) grantLimits {
	w := grantLimits{Approval: l.Approval}
	if l.Recipients > 0 {
		w.Recipients = &l.Recipients
	}
	if l.Emails > 0 {
		w.Emails = &l.Emails
	}
	return w
}

type grantClient struct {
	Name    string  `json:"name" doc:"The name that the OAuth client registered."`
	LogoURI *string `json:"logo_uri" nullable:"true"`
}

type grantRevoked struct {
	Object        string       `json:"object"`
	ID            string       `json:"id"`
	RevokedAt     wire.ISOTime `json:"revoked_at"`
	RevokedReason string       `json:"revoked_reason"`
}

func grantToItem(g grants.Grant) grantItem {
	return grantItem{g.ID, g.ClientID, orEmpty(g.Scopes.Names()), orNull(g.Resource), wire.DBTime(g.CreatedAt),
		wire.DBTime(g.RevokedAt), orNull(string(g.RevokedReason)), grantClient{g.ClientName, orNull(g.LogoURI)},
		grantLimitsOf(g.Limits)}
}

func (a *API) listGrants(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[grantItem], error) {
	p, err := c.Page(0)
	if err != nil {
		return wire.List[grantItem]{}, err
	}
	read := func(p page.Page) ([]grants.Grant, bool, error) { return a.Services.Grants.List(ctx, c.TeamID, p) }
	return wire.FullList(p, read, func(g grants.Grant) string { return g.ID }, grantToItem)
}

type updateGrantIn struct {
	Limits *updateLimitsIn `json:"limits" nullable:"false"`
}

type updateLimitsIn struct {
	Recipients wire.Optional[int64] `json:"recipients_per_email,omitzero" doc:"To, Cc and Bcc together; null removes the limit." minimum:"1" maximum:"150"`
	Emails     wire.Optional[int64] `json:"emails_per_day,omitzero" doc:"Per UTC day, counted per recipient. Null removes the limit." minimum:"1" maximum:"1000000"`
	Approval   *bool                `json:"approval,omitzero" nullable:"false" doc:"Whether a person must approve each email before it is sent."`
}

// change applies the requested changes to the limits l.
func (in *updateGrantIn) change(l *grants.Limits) error {
	n := in.Limits
	if n == nil {
		return fault.MissingField("limits")
	}
	for _, one := range []struct {
		name string
		wire.Optional[int64]
		to *int64
	}{{"recipients_per_email", n.Recipients, &l.Recipients}, {"emails_per_day", n.Emails, &l.Emails}} {
		if one.Value != nil && *one.Value < 1 {
			return fault.Invalidf("limits."+one.name, "The `limits.%s` field must be at least 1, or null for no limit.",
				one.name)
		}
		if one.Given {
			*one.to = one.OrZero()
		}
	}
	if n.Approval != nil {
		l.Approval = *n.Approval
	}
	return nil
}

// grantWire is the response to a request that changes a grant.
type grantWire struct {
	Object string      `json:"object"`
	ID     string      `json:"id"`
	Limits grantLimits `json:"limits"`
}

func (a *API) updateGrant(ctx context.Context, c *wire.Call, in updateGrantIn) (grantWire, error) {
	id, err := c.ID("oauth_grant_id")
	if err != nil {
		return grantWire{}, err
	}
	g, err := a.Services.Grants.SetLimits(ctx, c.Actor, id, in.change)
	return grantWire{"oauth_grant", g.ID, grantLimitsOf(g.Limits)}, err
}

func (a *API) revokeGrant(ctx context.Context, c *wire.Call, _ wire.None) (grantRevoked, error) {
	id, err := c.ID("oauth_grant_id")
	if err != nil {
		return grantRevoked{}, err
	}
	g, err := a.Services.Grants.Revoke(ctx, c.TeamID, id, grants.FromAPI)
	return grantRevoked{"oauth_grant", g.ID, wire.ISOTime(g.RevokedAt), string(g.RevokedReason)}, err
}
