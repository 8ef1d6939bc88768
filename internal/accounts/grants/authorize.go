package grants

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

const stateMax = 1024 // characters

// Params are the parameters of an authorization request as the client sent them (RFC 6749 section 4.1.1, RFC 7636
// section 4.3, RFC 8707 section 2).
type Params struct {
	ClientID, ResponseType, RedirectURI, Scope, State, Challenge, ChallengeMethod, Resource string
}

// Request is a checked authorization request to which a user may consent.
type Request struct {
	Client      Client
	RedirectURI string
	State       string
	Scopes      Scopes
	Challenge   string
	Resource    string
	Limits      Limits // the sending limits that the user sets on the consent page
}

// challenge matches an S256 challenge: a SHA-256 in base64url without padding.
var challenge = regexp.MustCompile(`^[A-Za-z0-9_-]{43}$`)

// CheckRequest checks an authorization request. If CheckRequest returns an [Error] and the returned Request has a
// RedirectURI, redirect the browser there with the error. If the returned Request has no RedirectURI, show the error to
// the user, because no redirect URI can be trusted (RFC 6749 section 4.1.2.1).
func (s *Service) CheckRequest(ctx context.Context, p Params) (r Request, err error) {
	if p.ClientID == "" {
		return r, refuse(InvalidRequest, "client_id is missing.")
	}
	if r.Client, err = s.Client(ctx, p.ClientID); err != nil {
		return r, err
	}
	switch {
	case p.RedirectURI == "":
		return r, refuse(InvalidRequest, "redirect_uri is missing.")
	case !r.Client.redirects(p.RedirectURI):
		return r, refuse(InvalidRequest, "redirect_uri is none that the client has registered.")
	}
	r.RedirectURI = p.RedirectURI
	if len(p.State) > stateMax {
		return r, refuse(InvalidRequest, "state must have at most %d characters.", stateMax)
	}
	r.State = p.State
	switch {
	case p.ResponseType == "":
		return r, refuse(InvalidRequest, "response_type is missing.")
	case p.ResponseType != "code":
		return r, refuse(UnsupportedResponseType, "response_type must be code.")
	case p.Challenge == "":
		return r, refuse(InvalidRequest, "code_challenge is missing: PKCE is required.")
	case p.ChallengeMethod != "S256":
		return r, refuse(InvalidRequest, "code_challenge_method must be S256.")
	case !challenge.MatchString(p.Challenge):
		return r, refuse(InvalidRequest, "code_challenge must be a SHA-256 in base64url, which has 43 characters.")
	}
	r.Challenge = p.Challenge
	if r.Scopes, err = scopesOf(p.Scope, r.Client.Scopes); err != nil {
		return r, err
	}
	if !r.Client.Scopes.Covers(r.Scopes) {
		return r, refuse(InvalidScope, "The client has not registered for this scope.")
	}
	r.Resource, err = s.resource(p.Resource)
	return r, err
}

// resource normalizes a token's resource URI, which may use an alias of this installation's URL. A resource that is not
// listed in Config.Resources causes an InvalidTarget error.
func (s *Service) resource(text string) (string, error) {
	text = strings.TrimRight(text, "/")
	for _, alias := range s.Aliases {
		if path, ok := strings.CutPrefix(text, alias); ok && (path == "" || path[0] == '/') {
			text = s.Issuer + path
		}
	}
	if text != "" && !slices.Contains(s.Resources, text) {
		return "", refuse(InvalidTarget, "resource must be an address of this server.")
	}
	return text, nil
}

// recordFirstUse marks a client as used, which protects it from the deletion of unused clients. At the client's first
// consent, recordFirstUse also records the client's registration in the audit log.
func (s *Service) recordFirstUse(ctx context.Context, tx *db.Tx, c *Client) error {
	address, err := markUsed(ctx, tx, c.ID)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep OAuth client %s: %w", c.ID, err)
	}
	// The user who consents did not register the client, so the audit entry of the registration has no actor.
	s.Audit.Record(audit.Without(ctx), tx, audit.Entry{Action: audit.ClientRegistered, Target: c.ID, Detail: c.Name,
		Address: address})
	return nil
}

// isFull reports whether a team has the maximum number of active grants. The service calls isFull when the user
// consents, so that the user sees the error, and again under a lock when it creates the grant.
func isFull(ctx context.Context, r db.Reader, teamID string) (bool, error) {
	n, err := countActive(ctx, r, teamID, grantsMax)
	if err != nil {
		return false, fmt.Errorf("count the grants of team %s: %w", teamID, err)
	}
	return n >= grantsMax, nil
}

// covers reports whether a grant for one resource permits a token for another. An empty string means any resource.
func covers(granted, asked string) bool { return asked == "" || granted == "" || asked == granted }

// Approve consents to a request on behalf of the actor's team and returns the authorization code for the client. The
// parameter by is the actor that consents: a member of the team or an API key. The client receives only the requested
// scopes that the consenting actor also has. Approve fails if the actor has none of the requested scopes, or if the
// team has 1,000 active grants.
func (s *Service) Approve(ctx context.Context, r Request, by teams.Actor) (code string, granted Scopes, err error) {
	granted = r.Scopes.Intersect(by.Scopes)
	if granted.Empty() {
		return "", granted, fault.New(fault.OutOfScope, "",
			"You have none of the rights in this team that %s asks for.",
			r.Client.Name)
	}
	if err := r.Limits.check(); err != nil {
		return "", granted, err
	}
	var secret [32]byte
	rand.Read(secret[:])
	code = base64.RawURLEncoding.EncodeToString(secret[:])
	c := storedCode{Hash: keyring.HashAPIKey(code), GrantID: id.New(), TeamID: by.TeamID, ClientID: r.Client.ID,
		Scope: granted.String(), Resource: r.Resource, RedirectURI: r.RedirectURI, Challenge: r.Challenge,
		Limits: r.Limits}
	switch by.Kind {
	case teams.UserActor:
		c.UserID = by.ID
	case teams.KeyActor:
		c.KeyID = by.ID
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		// The actor may come from a cache that was filled before the user left the team, so its scopes are read again.
		switch now, err := s.Members.ScopesIn(ctx, tx, by.TeamID, by.Ref()); {
		case err != nil:
			return err
		case now == 0:
			return fault.Forbiddenf("", "You may not act for this team any more.")
		}
		switch full, err := isFull(ctx, tx.Reader, by.TeamID); {
		case err != nil:
			return err
		case full:
			return fault.Forbiddenf("", "The team has %d active grants. Revoke some before you grant more.", grantsMax)
		}
		insertCode(ctx, tx, &c, tx.Now().Add(codeLife))
		if err := s.recordFirstUse(ctx, tx, &r.Client); err != nil {
			return err
		}
		s.Audit.Record(ctx, tx, audit.Entry{TeamID: by.TeamID, ActorKind: string(by.Kind), ActorID: by.ID,
			ActorName: by.Name, Action: audit.GrantCreated, Target: c.GrantID, Detail: r.Client.Name + ": " + c.Scope})
		return nil
	})
	return code, granted, err
}
