package grants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// refreshPurpose is the keyring purpose for signing refresh tokens.
const refreshPurpose = "oauth refresh token"

// RefreshParams are the parameters of a client's request for new tokens (RFC 6749 section 6). Scope and Resource narrow
// only the new access token; the refresh token keeps the full scope and resource of the grant.
type RefreshParams struct{ ClientID, Token, Scope, Resource string }

// errInvalidRefresh is the error for every invalid refresh token. The client does not learn why the token is invalid.
var errInvalidRefresh = refuse(InvalidGrant,
	"The refresh token is unknown, has expired, was used before or has been revoked, or "+
		"belongs to another client. Ask for authorization again.")

// Refresh exchanges the newest refresh token of a grant for new tokens. Using an older refresh token revokes the grant;
// the package comment describes the one exception.
func (s *Service) Refresh(ctx context.Context, x RefreshParams) (Tokens, error) {
	client, err := s.Client(ctx, x.ClientID)
	if err != nil {
		return Tokens{}, err
	}
	if x.Token == "" {
		return Tokens{}, refuse(InvalidRequest, "refresh_token is missing.")
	}
	p, err := s.openRefresh(x.Token)
	if err != nil {
		return Tokens{}, errInvalidRefresh
	}
	g, err := getGrant(ctx, s.DB.Reader, p.teamID, p.grantID)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return Tokens{}, errInvalidRefresh
	case err != nil:
		return Tokens{}, err
	case g.ClientID != client.ID || !g.RevokedAt.IsZero():
		return Tokens{}, errInvalidRefresh
	}
	resource, err := s.resource(x.Resource)
	if err != nil {
		return Tokens{}, err
	}
	if !covers(g.Resource, resource) {
		return Tokens{}, refuse(InvalidTarget, "resource must be the one that was granted.")
	}
	scopes, err := g.narrow(x.Scope)
	if err != nil {
		return Tokens{}, err
	}
	by, err := s.checkGrantor(ctx, &g)
	if err != nil {
		return Tokens{}, err
	}
	// Before the refresh token is marked as used, check that tokens can be signed. If signing failed after the token was
	// marked as used, a late retry by the client would revoke the grant.
	if _, err := s.signer(ctx, s.DB.Now()); err != nil {
		return Tokens{}, err
	}
	next, err := s.rotate(ctx, p)
	if err != nil {
		return Tokens{}, err
	}
	g.Resource = cmp.Or(resource, g.Resource) // the requested resource narrows only this token, not the grant
	return s.tokens(ctx, &g, next, scopes, by.Scopes)
}

// narrow returns the scopes of a new access token, for which the client asked in a refresh request. The names in the
// previous token response are always allowed. If a person approves the app's emails, that response named
// approvals:request in place of emails:send.
func (g *Grant) narrow(text string) (Scopes, error) {
	set, err := scopesOf(text, g.Scopes)
	if err != nil {
		return set, err
	}
	granted := g.Scopes.All()
	if g.Limits.Approval && granted.Has(teams.EmailsSend) && set.Each.Has(teams.ApprovalsRequest) {
		inPlace := teams.NewScopes(teams.ApprovalsRequest, teams.ApprovalsRead) &^ granted
		set.Each = set.Each&^inPlace | teams.NewScopes(teams.EmailsSend)
	}
	if !g.Scopes.Covers(set) {
		return set, refuse(InvalidScope, "scope must be within what was granted.")
	}
	return set, nil
}

// checkGrantor returns the actor of the user or key that consented to a grant. It revokes the grant if its user is no
// longer a member of the team, or if its API key was deleted. In most cases, [Service.RevokeUser] has already revoked
// the grant. The check also covers grants that were not revoked because a clock was wrong when the user joined.
func (s *Service) checkGrantor(ctx context.Context, g *Grant) (teams.Actor, error) {
	by, err := s.grantorActor(ctx, s.DB.Reader, g)
	if err == nil {
		return by, nil
	}
	if fault.KindOf(err) != fault.NotFound {
		return by, fmt.Errorf("look up the user of a grant: %w", err)
	}
	why := UserLeft
	if g.UserID == "" {
		why = KeyDeleted
	}
	if _, err := s.revoke(ctx, g.TeamID, g.ID, why); err != nil && fault.KindOf(err) != fault.NotFound {
		return by, err
	}
	return by, errInvalidRefresh
}

// rotate creates the next generation of a grant's refresh tokens, or revokes the grant if an old token was used.
func (s *Service) rotate(ctx context.Context, p refreshToken) (next int64, err error) {
	var refused error
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		refused = nil
		l, err := lockRefreshState(ctx, tx, p.teamID, p.grantID)
		if errors.Is(err, db.ErrNoRows) {
			refused = errInvalidRefresh
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the grant of a refresh token: %w", err)
		}
		now := tx.Now()
		if !l.use(p.generation, now) {
			refused = errInvalidRefresh
			_, err := s.revokeIn(ctx, tx, p.teamID, p.grantID, TokenReused)
			return err
		}
		next = l.newest
		saveRefreshState(ctx, tx, p.teamID, p.grantID, l, now.Add(refreshLife))
		return nil
	})
	return next, cmp.Or(err, refused)
}

// refreshState is the state of a grant's refresh tokens.
type refreshState struct {
	newest    int64     // generation of the valid token
	retried   int64     // generation of the token exchanged for the newest; 0 if none
	rotatedAt time.Time // first use of the token with the generation in retried
}

// use records the use of a refresh token with the given generation, and reports whether the use is allowed. The newest
// refresh token may be used. The previous refresh token may be used a second time within [retryTime], because the
// client may not have received the response. A second use of the previous refresh token replaces the newest one. If a
// client received the replaced token after all, that token then counts as an old token.
func (l *refreshState) use(generation int64, now time.Time) bool {
	switch {
	case generation == l.newest:
		l.retried, l.rotatedAt = generation, now
	case generation == l.retried && now.Sub(l.rotatedAt).Abs() < retryTime: // Abs, as the clock may have been set back
	default:
		return false
	}
	l.newest++
	return true
}

// refreshToken is the content of a refresh token.
type refreshToken struct {
	teamID, grantID string
	generation      int64
}

func (s *Service) sealRefresh(g *Grant, generation int64, now time.Time) string {
	return s.Keys.Sign(refreshPurpose, now.Add(refreshLife), g.TeamID, g.ID, strconv.FormatInt(generation, 10))
}

// openRefresh verifies the signature of a refresh token and returns its content, but does not check whether the token
// is the newest one of an active grant.
func (s *Service) openRefresh(token string) (p refreshToken, err error) {
	parts, err := s.Keys.Verify(refreshPurpose, token, s.DB.Now())
	if err != nil {
		return p, err
	}
	if len(parts) != 3 {
		return p, keyring.ErrForged
	}
	p.teamID, p.grantID = parts[0], parts[1]
	p.generation, err = strconv.ParseInt(parts[2], 10, 64)
	return p, err
}
