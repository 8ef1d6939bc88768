package grants

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// List returns a page of a team's grants, newest first, including revoked ones.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Grant, bool, error) {
	return listGrants(ctx, s.DB.Reader, teamID, p)
}

// Revoke revokes a grant. The grant's tokens stop working immediately on this node. On other nodes, they stop working
// when the cache-invalidation hint arrives, or within 5 seconds if the hint is lost. Revoke returns a NotFound fault if
// the grant is already revoked.
func (s *Service) Revoke(ctx context.Context, teamID, grantID string, why Reason) (Grant, error) {
	return s.revoke(ctx, teamID, grantID, why)
}

// RevokeBy revokes a grant on behalf of a dashboard user. Users may revoke grants to which they consented; revoking any
// other grant requires the scope grants:write.
func (s *Service) RevokeBy(ctx context.Context, by teams.Actor, grantID string) error {
	g, err := getGrant(ctx, s.DB.Reader, by.TeamID, grantID) // no lock is needed, because a grant's user never changes
	if err == nil && (by.Kind != teams.UserActor || g.UserID != by.ID) {
		err = by.Require(teams.GrantsWrite)
	}
	if err == nil {
		_, err = s.revoke(ctx, by.TeamID, grantID, FromSite)
	}
	return err
}

func (s *Service) revoke(ctx context.Context, teamID, grantID string, why Reason) (g Grant, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		done, err := s.revokeIn(ctx, tx, teamID, grantID, why)
		if err == nil && !done {
			return fault.NotFoundf("OAuth grant not found")
		}
		if err == nil {
			g, err = getGrant(ctx, tx.Reader, teamID, grantID)
		}
		return err
	})
	return g, err
}

// revokeIn revokes a grant in a transaction, and reports whether the grant was active.
func (s *Service) revokeIn(ctx context.Context, tx *db.Tx, teamID, grantID string, why Reason) (bool, error) {
	n, err := setRevoked(ctx, tx, teamID, grantID, why)
	if err != nil {
		return false, fmt.Errorf("revoke grant %s: %w", grantID, err)
	}
	if n == 0 {
		return false, nil
	}
	s.changed(tx, teamID)
	e := audit.Entry{TeamID: teamID, Action: audit.GrantRevoked, Target: grantID, Detail: string(why)}
	switch why {
	case ByClient:
		e.ActorKind, e.ActorID = string(teams.GrantActor), grantID
	case TokenReused, CodeReused:
		e.Action, e.ActorKind, e.ActorID = audit.GrantReused, string(teams.GrantActor), grantID
	}
	s.Audit.Record(ctx, tx, e)
	return true, s.OnStop(ctx, tx, teamID, grantID)
}

// RevokeUser revokes all grants of a user in a team, in the transaction that ends the membership. RevokeUser deletes
// the user's unused codes before it revokes the grants. If a code is being exchanged, the deletion waits for the
// exchange to finish, so RevokeUser also revokes the grant that results from the exchange.
func (s *Service) RevokeUser(ctx context.Context, tx *db.Tx, teamID, userID string) error {
	if err := deleteCodesOf(ctx, tx, teamID, userID); err != nil {
		return fmt.Errorf("delete the codes of user %s: %w", userID, err)
	}
	n, err := setRevokedOf(ctx, tx, teamID, userID)
	if err != nil {
		return fmt.Errorf("revoke the grants of user %s: %w", userID, err)
	}
	if n > 0 {
		s.changed(tx, teamID)
		s.Audit.Record(ctx, tx, audit.Entry{TeamID: teamID, Action: audit.GrantRevoked, Target: userID,
			Detail: fmt.Sprintf("%s: %d grants", UserLeft, n)})
	}
	return nil
}

// RevokeKey revokes all grants to which an API key consented, in the transaction that deletes the key.
func (s *Service) RevokeKey(ctx context.Context, tx *db.Tx, teamID, keyID string) error {
	if err := deleteCodesOfKey(ctx, tx, teamID, keyID); err != nil {
		return fmt.Errorf("delete the codes of key %s: %w", keyID, err)
	}
	n, err := setRevokedOfKey(ctx, tx, teamID, keyID)
	if err != nil {
		return fmt.Errorf("revoke the grants of key %s: %w", keyID, err)
	}
	if n > 0 {
		s.changed(tx, teamID)
		s.Audit.Also(ctx, tx, audit.Entry{TeamID: teamID, Action: audit.GrantRevoked, Target: keyID,
			Detail: fmt.Sprintf("%s: %d grants", KeyDeleted, n)})
	}
	return nil
}

// RevokeDisabled revokes all grants of a user, in the transaction that disables the user.
func (s *Service) RevokeDisabled(ctx context.Context, tx *db.Tx, userID string) error {
	all, err := s.Members.TeamsOf(ctx, tx.Reader, userID)
	if err != nil {
		return err
	}
	for _, teamID := range all {
		if err := s.RevokeUser(ctx, tx, teamID, userID); err != nil {
			return err
		}
	}
	return nil
}

// ScopesOf returns the current scopes of an API key or a grant, or 0 if the key was deleted or the grant was revoked.
func (s *Service) ScopesOf(ctx context.Context, r db.Reader, teamID string, by teams.ActorRef) (teams.Scopes, error) {
	switch by.Kind {
	case teams.KeyActor:
		return s.Teams.KeyScopes(ctx, r, teamID, by.ID)
	case teams.GrantActor:
		g, err := getGrant(ctx, r, teamID, by.ID)
		if fault.KindOf(err) == fault.NotFound || err == nil && !g.RevokedAt.IsZero() {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		may := teams.FullAccess.Scopes() // an API key consented to the grant
		if g.UserID != "" {
			may, err = s.Members.Scopes(ctx, r, teamID, teams.ActorRef{Kind: teams.UserActor, ID: g.UserID})
		}
		return g.AllowedScopes(may), err
	}
	return 0, fmt.Errorf("this release knows no actor of the kind %q", by.Kind)
}

// changed makes all nodes clear their cached actors of a team when the transaction commits.
func (s *Service) changed(tx *db.Tx, teamID string) {
	tx.AfterCommit(func() { s.DB.Hint(teams.HintTopic, teamID) })
}

// RevokeToken revokes the grant to which a client's refresh token belongs (RFC 7009). If the token is invalid or
// belongs to another client, RevokeToken does nothing and returns no error. RevokeToken rejects access tokens, because
// they cannot be revoked individually.
func (s *Service) RevokeToken(ctx context.Context, clientID, token, hint string) error {
	client, err := s.Client(ctx, clientID)
	if err != nil {
		return err
	}
	switch {
	case token == "":
		return refuse(InvalidRequest, "token is missing.")
	case hint == "access_token" || teams.IsAccessToken(token):
		return refuse(UnsupportedTokenType,
			"Access tokens cannot be revoked one by one. Send the refresh token, which revokes "+
				"all tokens of the grant.")
	}
	p, err := s.openRefresh(token)
	if err != nil {
		return nil // an invalid token needs no revocation
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		g, err := getGrant(ctx, tx.Reader, p.teamID, p.grantID)
		if fault.KindOf(err) == fault.NotFound || err == nil && g.ClientID != client.ID {
			return nil
		}
		if err == nil {
			_, err = s.revokeIn(ctx, tx, p.teamID, p.grantID, ByClient)
		}
		return err
	})
}

// Active reports whether a grant's scheduled request may still be carried out: the grant has not been revoked, and its
// user may still act for the team.
func (s *Service) Active(ctx context.Context, r db.Reader, teamID, grantID string) (bool, error) {
	g, err := getGrant(ctx, r, teamID, grantID)
	if err == nil && g.RevokedAt.IsZero() {
		_, err = s.grantorActor(ctx, r, &g)
	}
	if fault.KindOf(err) == fault.NotFound && err != nil {
		return false, nil
	}
	return err == nil && g.RevokedAt.IsZero(), err
}
