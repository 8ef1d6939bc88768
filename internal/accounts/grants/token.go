package grants

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	tokenType = "at+jwt" // RFC 9068 section 2.1
	tokenMax  = 4096     // maximum length of an access token, in characters
)

// claims are the claims of an access token (RFC 9068 section 2.2).
type claims struct {
	Issuer   string           `json:"iss"`
	Subject  string           `json:"sub"` // the id of the user, or of the team if an API key consented
	Audience jwt.Audience     `json:"aud"`
	ClientID string           `json:"client_id"`
	Scope    string           `json:"scope"`
	ID       string           `json:"jti"`
	IssuedAt *jwt.NumericDate `json:"iat"`
	Expiry   *jwt.NumericDate `json:"exp"`
	TeamID   string           `json:"team_id"`
	GrantID  string           `json:"grant_id"`
}

// tokens issues a new access token and a new refresh token for a grant. The access token is valid for the grant's
// resource. The parameter may holds the current scopes of the user or key that consented. Call tokens after the
// transaction commits, because signing takes time.
func (s *Service) tokens(ctx context.Context, g *Grant, generation int64, scopes Scopes, may teams.Scopes) (Tokens,
	error) {
	now := s.DB.Now()
	access, err := s.sign(ctx, g, scopes, now)
	if err != nil {
		return Tokens{}, fmt.Errorf("make an access token: %w", err)
	}
	return Tokens{Access: access, Refresh: s.sealRefresh(g, generation, now), Life: int64(accessLife / time.Second),
		Scopes: g.tokenScopes(scopes, may)}, nil
}

// tokenScopes returns what a token with the given scopes allows now, because of the grant's limits and the current
// scopes of the user or key that consented (RFC 6749 section 5.1). The token itself keeps all its scopes, so that it
// allows more when the limits are loosened. Scopes that clients cannot request by name are omitted, because clients
// may send the names back when they refresh the token.
func (g *Grant) tokenScopes(set Scopes, may teams.Scopes) Scopes {
	now := g.AllowedScopes(may & set.All())
	if now == set.All() {
		return set
	}
	return Scopes{Each: now &^ unnamed}
}

func (s *Service) sign(ctx context.Context, g *Grant, scopes Scopes, now time.Time) (string, error) {
	k, err := s.signer(ctx, now)
	if err != nil {
		return "", err
	}
	c := claims{Issuer: s.Issuer, Subject: g.UserID, Audience: slices.Clone(s.Resources), ClientID: g.ClientID,
		Scope: scopes.String(), ID: id.New(), IssuedAt: jwt.NewNumericDate(now),
		Expiry: jwt.NewNumericDate(now.Add(accessLife)), TeamID: g.TeamID, GrantID: g.ID}
	if g.Resource != "" {
		c.Audience = jwt.Audience{g.Resource}
	}
	if g.UserID == "" {
		c.Subject = g.TeamID
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.ES256, Key: k.private},
		(&jose.SignerOptions{}).WithType(tokenType).WithHeader("kid", k.id))
	if err != nil {
		return "", err
	}
	return jwt.Signed(signer).Claims(c).Serialize()
}

// badToken returns the fault for every invalid access token. The client does not learn why the token is invalid.
func badToken() error {
	return fault.New(fault.BadCredential, "",
		"The access token is invalid, has expired or was revoked. Get a new one with "+
			"the refresh token, or ask for authorization again.")
}

// Authenticate returns the actor for an access token, and the time until which the result may be cached, which is at
// most 5 s away. A hint with the topic [teams.HintTopic] invalidates the cached result.
func (s *Service) Authenticate(ctx context.Context, token string) (teams.Actor, time.Time, error) {
	now := s.DB.Now()
	c, err := s.verify(ctx, token, now)
	if err != nil {
		return teams.Actor{}, time.Time{}, err
	}
	g, err := getGrant(ctx, s.DB.Reader, c.TeamID, c.GrantID)
	var a teams.Actor
	if err == nil && !g.RevokedAt.IsZero() {
		return teams.Actor{}, time.Time{}, badToken()
	}
	if err == nil {
		a, err = s.grantorActor(ctx, s.DB.Reader, &g)
	}
	if err != nil {
		if fault.KindOf(err) == fault.NotFound {
			err = badToken()
		}
		return teams.Actor{}, time.Time{}, err
	}
	a.Kind, a.ID, a.Name = teams.GrantActor, g.ID, g.ClientName
	a.Scopes = g.AllowedScopes(a.Scopes & storedScopes(c.Scope).All())
	a.Limited, a.Resource = g.Limits.Any(), s.singleResource(c.Audience)
	if g.UsedAt.Equal(g.CreatedAt) || now.Sub(g.UsedAt) >= usedEvery {
		s.uses.Mark(g.TeamID, g.ID, now)
	}
	until := time.Now().Add(min(checkedFor, c.Expiry.Time().Sub(now)))
	return a, until, nil
}

// grantorActor returns the actor of the user or key that consented to a grant, with its current scopes. If the user
// left the team or the key was deleted, grantorActor returns a NotFound fault.
func (s *Service) grantorActor(ctx context.Context, r db.Reader, g *Grant) (teams.Actor, error) {
	if g.UserID != "" {
		return s.Members.ActorNow(ctx, r, g.UserID, g.TeamID)
	}
	if g.KeyID != "" {
		return s.Teams.KeyActor(ctx, r, g.TeamID, g.KeyID)
	}
	t, err := s.Teams.GetIn(ctx, r, g.TeamID) // grants that keys made in earlier releases have no key id
	return teams.Actor{TeamID: t.ID, Scopes: teams.FullAccess.Scopes(), RateLimit: t.RateLimit,
		Suspended: t.Suspended}, err
}

// singleResource returns the only resource for which an access token is valid, in the form used by actors, or "" if the
// token is valid for all resources.
func (s *Service) singleResource(audience jwt.Audience) string {
	all := slices.DeleteFunc(slices.Clone(s.Resources), func(one string) bool { return !audience.Contains(one) })
	if len(all) != 1 {
		return ""
	}
	return cmp.Or(strings.TrimPrefix(all[0], s.Issuer), teams.APIResource)
}

// verify checks the signature, resource and expiry of an access token without looking up its grant.
func (s *Service) verify(ctx context.Context, token string, now time.Time) (c claims, err error) {
	if len(token) > tokenMax {
		return c, badToken()
	}
	signed, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return c, badToken()
	}
	h := signed.Signatures[0].Protected
	if typ, _ := h.ExtraHeaders[jose.HeaderType].(string); typ != tokenType {
		return c, badToken()
	}
	public, err := s.verifier(ctx, h.KeyID)
	if err != nil {
		return c, err
	}
	if public == nil {
		return c, badToken()
	}
	payload, err := signed.Verify(public)
	if err != nil || json.Unmarshal(payload, &c) != nil || c.Issuer != s.Issuer || c.Expiry == nil ||
		!now.Before(c.Expiry.Time()) || !slices.ContainsFunc(s.Resources, c.Audience.Contains) {
		return claims{}, badToken()
	}
	return c, nil
}
