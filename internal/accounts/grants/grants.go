// Package grants is the core of the OAuth authorization server: it manages clients, their tokens, and the grants with
// which connected apps act for teams.
//
// # Flow
//
// A client registers ([Service.Register]) or is built in. The client requests scopes through a user's browser
// ([Service.CheckRequest]). The user consents ([Service.Approve]), which creates a code. The client exchanges the code
// for an access token, valid for 15 minutes, and a refresh token ([Service.Exchange]). The refresh token renews both
// tokens ([Service.Refresh]). The first exchange creates the grant, which teams see and can revoke.
//
// An access token is a JWT (RFC 9068). The signature of an access token proves that this installation issued the token.
// After it has verified the signature, the service looks up the token's grant to check that the grant is still active.
// A refresh token contains the id of its grant and a generation number, and is signed with the keyring. The grant's row
// stores the newest generation number. With generation numbers, a grant needs only one row, no matter how often its
// tokens are renewed, and the service recognizes every older refresh token.
//
// A user may limit what a grant sends ([Limits]): the number of recipients per email and the number of emails per day.
// A user may also require that a person approves each email. The transaction that accepts an email from an app also
// counts the email in the row of the app's grant.
//
// # Invariants
//
// The effective scopes are the intersection of the grant's scopes, the token's scopes and the scopes of the user's
// current role. A grant never has the scope [teams.OwnersWrite]. A grant has the scope [teams.ApprovalsWrite] only with
// full access. A grant with limits has no scopes with which an app could circumvent the limits.
//
// An authorization code works once, for the client, the redirect URI and the PKCE verifier for which it was created. An
// authorization code becomes invalid if it is used with wrong parameters. A second use of the code also revokes the
// grant. A grant is revoked when the user who consented to it leaves the team. A team has at most [grantsMax] active
// grants.
//
// Only the newest refresh token of a grant works. Using an older refresh token revokes the grant, with one exception.
// Within [retryTime], a client that did not receive the response may use the same refresh token again, if no newer
// refresh token was used. When a client retries a refresh, the service issues a new refresh token in place of the one
// that the client did not receive.
//
// Each use of a code or a refresh token is decided in one transaction on the grant's row. The node that revokes a grant
// refuses its tokens immediately. Other nodes refuse the tokens of a revoked grant when they receive the
// cache-invalidation hint.
//
// # Failures
//
// If a cache-invalidation hint is lost, other nodes accept the tokens of a revoked grant for at most [checkedFor].
// Errors caused by a client have the type [Error] and the error codes of RFC 6749. Errors caused by users and teams are
// faults from package fault.
//
// # Out of scope
//
// Package grants does not handle HTTP requests or show pages; package oauth does. Package grants supports neither
// clients with secrets nor the implicit and password flows (RFC 9700 section 2). Package grants stores limits and
// counts emails, but package emails enforces the limits.
package grants

import (
	"context"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

const (
	accessLife  = 15 * time.Minute    // lifetime of access tokens (API reference section 24.4)
	refreshLife = 60 * 24 * time.Hour // lifetime of refresh tokens
	codeLife    = 10 * time.Minute
	retryTime   = 10 * time.Second // how long a client that did not receive a response may retry
	checkedFor  = 5 * time.Second  // maximum delay of a revocation on other nodes when its cache-invalidation hint is lost
	grantsMax   = 1000             // maximum number of active grants of a team
	usedEvery   = time.Minute      // how often a use of a grant is recorded
)

// CLI is the id of the official command-line client, which does not register (API reference section 24.8).
const CLI = "7136aa0b-625c-4c9c-8820-e9784c8eb141"

// Client is an app that may request grants. Clients are public, that is, they have no secret, so their names are not
// verified.
type Client struct {
	ID           string
	Name         string
	RedirectURIs []string
	Scopes       Scopes // scopes that the client may request; also the default if it requests none
	URI, LogoURI string // URLs of the client's home page and logo; "" if not given
	Registered   bool   // whether the client registered itself
	CreatedAt    time.Time
}

// Grant is a client's permission to act for a team.
type Grant struct {
	ID            string
	TeamID        string
	UserID        string // the user who consented; "" if it was an API key, in development
	KeyID         string // the key that consented; "" if it was a user
	ClientID      string
	ClientName    string
	LogoURI       string // URL of the client's logo; "" if not given
	Scopes        Scopes
	Resource      string // the only resource that accepts its tokens (RFC 8707); "" means all resources of this server
	Limits        Limits
	CreatedAt     time.Time
	UsedAt        time.Time // last use of a token, up to a minute old; CreatedAt before the first use
	ExpiresAt     time.Time // when the grant expires unless the client renews its tokens
	RevokedAt     time.Time // zero while the grant is active
	RevokedReason Reason    // "" while the grant is active

	dailySince time.Time // when the daily limit was set; zero if the user set it at the consent
}

// Reason is the reason why a grant was revoked.
type Reason string

const (
	FromAPI      Reason = "revoked_from_api" // the API reference specifies these values under OAuth grants
	FromSite     Reason = "revoked_from_dashboard"
	ByClient     Reason = "revoked_by_client"
	TokenReused  Reason = "refresh_token_reuse" // an old refresh token was used
	CodeReused   Reason = "code_reuse"          // a code was used twice
	UserLeft     Reason = "user_left"           // the grant's user left the team or was disabled
	KeyDeleted   Reason = "key_deleted"         // the API key that consented, in development, was deleted
	GrantExpired Reason = "expired"             // the grant's client did not renew its tokens
)

// Config has the settings of a [Service].
type Config struct {
	Issuer    string   // the URL of this installation, without a trailing slash
	Resources []string // URLs that grants may name as their resource (RFC 8707); the first is the API's URL
	Aliases   []string // other URLs of this installation that clients may use instead of those in Resources
}

// Deps are the dependencies of a [Service].
type Deps struct {
	DB      *db.DB
	Keys    *keyring.Keyring
	Teams   *teams.Service
	Members *members.Service
	Audit   *audit.Log
	Log     *slog.Logger
	// OnStop stops the automations of a grant, in the transaction that revokes the grant or gives it limits.
	OnStop func(ctx context.Context, tx *db.Tx, teamID, grantID string) error
}

// Service implements the operations on clients, grants and tokens.
type Service struct {
	Config
	Deps
	signing signing
	uses    *teams.LastUses
}

// New returns the service. New fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return newService(c, d), nil
}

// newService is like New but does not check for missing dependencies. Tests that need only a few dependencies use it.
func newService(c Config, d Deps) *Service {
	s := &Service{Config: c, Deps: d, uses: teams.NewLastUses(d.DB, d.Log, "connected apps", setUsed)}
	d.DB.OnHint(keysTopic, func(string) { s.signing.forget() })
	// A grant's scopes depend on its user's role, which package members caches. A role change sends one cache-invalidation
	// hint for package teams and another for package members. Between the two hints, package teams may cache an outdated
	// role, so the cache of package teams is cleared on both hints.
	for _, topic := range []string{teams.HintTopic, members.HintTopic, users.HintTopic} {
		d.DB.OnHint(topic, func(string) { d.Teams.Forget() })
	}
	return s
}

// Run writes the grants' times of last use periodically, and once more when ctx is done. The page of connected apps
// shows these times.
func (s *Service) Run(ctx context.Context) error { return s.uses.Run(ctx) }
