package grants

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// Tokens are the tokens issued to a client.
type Tokens struct {
	Access  string
	Refresh string
	Life    int64  // lifetime of the access token, in seconds
	Scopes  Scopes // what the access token allows now, which may be less than was granted
}

// ExchangeParams are the parameters of a client's request for its first tokens (RFC 6749 section 4.1.3).
type ExchangeParams struct{ ClientID, Code, RedirectURI, Verifier, Resource string }

var verifier = regexp.MustCompile(`^[A-Za-z0-9._~-]{43,128}$`) // RFC 7636 section 4.1

// errInvalidCode is the error for every invalid authorization code. The client does not learn why the code is invalid.
var errInvalidCode = refuse(InvalidGrant,
	"The code is unknown, has expired, was used before, or was made for another client, "+
		"redirect_uri or code_verifier. Ask for authorization again.")

// Exchange exchanges an authorization code for the first tokens and creates the grant. The second use of an
// authorization code revokes the grant that the first use created.
func (s *Service) Exchange(ctx context.Context, x ExchangeParams) (Tokens, error) {
	client, err := s.Client(ctx, x.ClientID)
	if err != nil {
		return Tokens{}, err
	}
	switch {
	case x.Code == "":
		return Tokens{}, refuse(InvalidRequest, "code is missing.")
	case x.RedirectURI == "":
		return Tokens{}, refuse(InvalidRequest, "redirect_uri is missing.")
	case !verifier.MatchString(x.Verifier):
		return Tokens{}, refuse(InvalidRequest,
			"code_verifier must have 43 to 128 letters, digits, or characters of -._~.")
	}
	resource, err := s.resource(x.Resource)
	if err != nil {
		return Tokens{}, err
	}
	hash := keyring.HashAPIKey(x.Code)
	hashed := sha256.Sum256([]byte(x.Verifier))
	challenge := base64.RawURLEncoding.EncodeToString(hashed[:])
	// Before the code is marked as used, check that tokens can be signed. If signing failed after the code was marked as
	// used, the client's retry would count as a second use and revoke the grant.
	if _, err := s.signer(ctx, s.DB.Now()); err != nil {
		return Tokens{}, err
	}
	var g Grant
	var by teams.Actor
	var refused error
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		refused = nil
		c, err := useCode(ctx, tx, hash)
		switch {
		case errors.Is(err, db.ErrNoRows):
			refused = errInvalidCode
			return s.revokeReused(ctx, tx, hash)
		case err != nil:
			return err
		}
		if c.ClientID != client.ID || c.RedirectURI != x.RedirectURI || !tx.Now().Before(c.ExpiresAt) ||
			subtle.ConstantTimeCompare([]byte(c.Challenge), []byte(challenge)) != 1 || !covers(c.Resource, resource) {
			refused = errInvalidCode
			return nil // the transaction commits, so the code stays marked as used
		}
		// Without the lock, concurrent exchanges would not see each other's grants and could exceed the limit.
		if err := tx.Serialize(ctx, "grants "+c.TeamID); err != nil {
			return err
		}
		switch full, err := isFull(ctx, tx.Reader, c.TeamID); {
		case err != nil:
			return err
		case full:
			refused = refuse(InvalidGrant, "The team has %d active grants, which is the most. Ask for authorization again "+
				"when some are revoked.", grantsMax)
			return nil
		}
		scopes := storedScopes(c.Scope)
		g = Grant{ID: c.GrantID, TeamID: c.TeamID, UserID: c.UserID, KeyID: c.KeyID, ClientID: c.ClientID, Scopes: scopes,
			Resource: c.Resource, Limits: c.Limits, CreatedAt: tx.Now(), ExpiresAt: tx.Now().Add(refreshLife)}
		if by, err = s.grantorActor(ctx, tx.Reader, &g); fault.KindOf(err) == fault.NotFound && err != nil {
			refused = errInvalidCode // the user left the team or the key was deleted after the consent
			return nil
		}
		if err != nil {
			return fmt.Errorf("look up the user of a code: %w", err)
		}
		insertGrant(ctx, tx, &g)
		return nil
	})
	if err := cmp.Or(err, refused); err != nil {
		return Tokens{}, err
	}
	g.Resource = cmp.Or(resource, g.Resource) // the requested resource narrows only this token, not the grant
	return s.tokens(ctx, &g, 1, g.Scopes, by.Scopes)
}

// revokeReused revokes the grant of an authorization code that is used a second time, because one of the two uses may
// come from an attacker (RFC 6749 section 4.1.2).
func (s *Service) revokeReused(ctx context.Context, tx *db.Tx, hash string) error {
	c, err := getCode(ctx, tx.Reader, hash)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = s.revokeIn(ctx, tx, c.TeamID, c.GrantID, CodeReused)
	return err
}
