// Package grants is the OAuth authorization server's core: clients, the grants by which connected apps act for teams,
// and their tokens.
//
// # Flow
//
// A client registers ([Service.Register]) or is built in. It requests scopes through the browser of a user
// ([Service.CheckRequest]). The user consents ([Service.Approve]), which creates a code. The client exchanges the code
// for an access token, valid for a quarter of an hour, and a refresh token, which renews both ([Service.Exchange],
// [Service.Refresh]). The first exchange creates the grant, which teams see and can revoke.
//
// An access token is a JWT (RFC 9068). The signature of an access token proves that it was issued here; the grant is
// looked up to check that it is still active. A refresh token contains its grant and its generation, and is signed with
// the keyring; the grant's row stores the newest generation. A grant therefore costs one row, however often its tokens
// are renewed, and every older refresh token is still recognized.
//
// A user may limit what a grant sends ([Limits]): the recipients of one email, the emails a day, and whether a person
// approves each email. Each email is counted in the transaction that accepts it, in one row of the grant.
//
// # Invariants
//
// A grant's scopes are the intersection of its own scopes, those of the token, and those of its user's role at present.
// A grant never has the scope [teams.OwnersWrite], and has [teams.ApprovalsWrite] only with full access. A grant with
// limits has no scopes that would circumvent them.
//
// A code works once, for the client, the redirect URI and the PKCE verifier for which it was created. A wrong or second
// use makes it invalid, and a second use revokes the grant. A grant ends with the membership of the user who consented
// to it. A team has at most [grantsMax] active grants.
//
// Only the newest refresh token works. The use of an older one revokes the grant, with one exception. Within
// [retryTime], a client that did not receive the answer may use its token again, if no later token was used. The
// service then replaces the token that the client did not receive.
//
// Each of these decisions is one transaction on the grant's row. This node refuses a revoked grant at once. Other nodes
// refuse it when they get the hint about it.
//
// # Errors
//
// If a hint is lost, other nodes accept the tokens of a revoked grant for at most [checkedFor]. Errors of clients have
// the type [Error], with the names of RFC 6749; errors of users and teams are faults.
//
// # Limits of this package
//
// It does not handle HTTP or show pages: package oauth does. It supports neither clients with secrets nor the implicit
// and password flows (RFC 9700 section 2). It stores limits and counts emails, but package emails enforces the limits.
package grants

import (
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
	retryTime   = 10 * time.Second // time within which a client that did not receive an answer may retry
	checkedFor  = 5 * time.Second  // the longest time until a revocation on another node is noticed if its hint is lost
	grantsMax   = 1000             // active grants of a team
)

// CLI is the id of the official command-line client, which does not register (API reference section 24.8).
const CLI = "7136aa0b-625c-4c9c-8820-e9784c8eb141"

// Client is an app that may request grants. Clients are public, that is, they have no secret, so their names are not
// verified.
type Client struct {
	ID           string
	Name         string
	RedirectURIs []string
	Scopes       Scopes // the scopes that the client may request, and gets by default
	URI, LogoURI string // of its home page and logo; "" if not given
	Registered   bool   // the client registered itself
	CreatedAt    time.Time
}

// Grant is the permission of a client to act for a team.
type Grant struct {
	ID            string
	TeamID        string
	UserID        string // the user who consented; "" if it was an API key, in development
	KeyID         string // the key that consented; "" if it was a user
	ClientID      string
	ClientName    string
	LogoURI       string // of the client; "" if not given
	Scopes        Scopes
	Resource      string // the only resource that accepts its tokens (RFC 8707); "" means all resources of this server
	Limits        Limits
	CreatedAt     time.Time
	UsedAt        time.Time // when tokens were last issued
	ExpiresAt     time.Time // the grant expires then, unless the client renews its tokens
	RevokedAt     time.Time // zero while the grant is active
	RevokedReason Reason    // "" while it is active
}

// Reason is why a grant was revoked.
type Reason string

const (
	FromAPI      Reason = "revoked_from_api" // specification, OAuth grants
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
	Resources []string // URLs that grants may name as resource (RFC 8707), the API's first
	Aliases   []string // other URLs of this installation that clients may use for the resources
}

// Deps are the dependencies of a [Service].
type Deps struct {
	DB      *db.DB
	Keys    *keyring.Keyring
	Teams   *teams.Service
	Members *members.Service
	Audit   *audit.Log
}

// Service implements the operations on clients, grants and tokens.
type Service struct {
	Config
	Deps
	signing signing
}

// New returns the service. It fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return newService(c, d), nil
}

// newService is New without the check, for tests that need few dependencies.
func newService(c Config, d Deps) *Service {
	s := &Service{Config: c, Deps: d}
	d.DB.OnHint(keysTopic, func(string) { s.signing.forget() })
	// A grant's scopes also depend on its user. Package teams clears its cache when it gets its own hint. Package
	// members clears its cache later, when it gets a second hint. Between the two, package teams may cache outdated
	// data of members, so its cache is cleared again.
	for _, topic := range []string{teams.HintTopic, members.HintTopic, users.HintTopic} {
		d.DB.OnHint(topic, func(string) { d.Teams.Forget() })
	}
	return s
}
