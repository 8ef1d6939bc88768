package grants

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// refreshPurpose is the purpose of the signatures of refresh tokens.
const refreshPurpose = "oauth refresh token"

// RefreshParams is what a client presents for new tokens (RFC 6749 section 6). Scope and
// Resource may only narrow what the access token is for; the refresh token keeps all that was granted.
type RefreshParams struct{ ClientID, Token, Scope, Resource string }

// errInvalidRefresh is the one answer to refresh tokens that do not work, whatever is wrong with them.
var errInvalidRefresh = refuse(InvalidGrant,
	"The refresh token is unknown, has expired, was used before or has been revoked, or "+
		"belongs to another client. Ask for authorization again.")

// Refresh gives new tokens for the newest refresh token of a grant. An older one revokes the grant; see the package
// comment for the exception.
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
	scopes, err := scopesOf(x.Scope, g.Scopes)
	if err != nil {
		return Tokens{}, err
	}
	if !g.Scopes.Covers(scopes) {
		return Tokens{}, refuse(InvalidScope, "scope must be within what was granted.")
	}
	if err := s.checkGrantor(ctx, &g); err != nil {
		return Tokens{}, err
	}
	// What cannot be signed is not used up: a later use of the same token would revoke the grant.
	if _, err := s.signer(ctx, s.DB.Now()); err != nil {
		return Tokens{}, err
	}
	next, err := s.rotate(ctx, p)
	if err != nil {
		return Tokens{}, err
	}
	g.Resource = cmp.Or(resource, g.Resource) // only of this access token
	return s.tokens(ctx, &g, next, scopes)
}

// checkGrantor revokes a grant whose user is no member of the team any more, or whose key was deleted. Leaving has done so
// already, by [Service.RevokeUser], whenever the user has joined: clocks may have been wrong then.
func (s *Service) checkGrantor(ctx context.Context, g *Grant) error {
	_, err := s.grantorActor(ctx, g)
	if err == nil {
		return nil
	}
	if fault.KindOf(err) != fault.NotFound {
		return fmt.Errorf("look up the user of a grant: %w", err)
	}
	why := UserLeft
	if g.UserID == "" {
		why = KeyDeleted
	}
	if _, err := s.revoke(ctx, g.TeamID, g.ID, why); err != nil && fault.KindOf(err) != fault.NotFound {
		return err
	}
	return errInvalidRefresh
}

// rotate makes the next generation of a grant's refresh tokens, or revokes the grant.
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

// refreshState is the refresh tokens of a grant, of which one after another is used.
type refreshState struct {
	newest    int64     // the generation that works
	retried   int64     // the one whose use made the newest; 0 if none was used
	rotatedAt time.Time // when it was first used
}

// use uses the token of a generation, and reports whether it may be. The newest may. The one before it may once more
// within [retryTime], for a client that did not get the answer: what it made is replaced, and if somebody has it after
// all, its use is that of an old token.
func (l *refreshState) use(generation int64, now time.Time) bool {
	switch {
	case generation == l.newest:
		l.retried, l.rotatedAt = generation, now
	case generation == l.retried && now.Sub(l.rotatedAt).Abs() < retryTime: // of the future, if a clock was set back
	default:
		return false
	}
	l.newest++
	return true
}

// refreshToken is what a refresh token says.
type refreshToken struct {
	teamID, grantID string
	generation      int64
}

func (s *Service) sealRefresh(g *Grant, generation int64, now time.Time) string {
	return s.Keys.Sign(refreshPurpose, now.Add(refreshLife), g.TeamID, g.ID, strconv.FormatInt(generation, 10))
}

// openRefresh reads a refresh token. Whether it still works is for its grant to say.
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
