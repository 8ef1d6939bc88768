// Package grants lets programs act for teams: OAuth clients, what they were granted, and the tokens by which they use
// it.
//
// # Shape
//
// A client registers ([Service.Register]) or is known from the start. It asks for scopes by way of a person's browser
// ([Service.CheckRequest]); the person consents ([Service.Approve]), which gives a code; the client exchanges the code for an
// access token, which works for a quarter of an hour, and a refresh token, which gives both anew ([Service.Exchange],
// [Service.Refresh]). The first exchange makes the grant, which is what teams see and revoke.
//
// An access token is a JWT (RFC 9068). Its signature says that we made it, and the grant, which is looked up, whether
// it still holds. A refresh token carries its grant and its generation, and is signed by the keyring; the grant's row
// says which generation is the newest. So the tokens of a grant cost one row, however often they were renewed, and any
// older one is still recognised for what it is.
//
// A person may limit what a grant sends ([Limits]): how many addresses an email has, how many emails a day, and that
// a person decides of each. Each email counts in the transaction that accepts it, in the one row that a grant has.
//
// # Invariants
//
// A grant does at most what its scopes, those of the token and those of its user's role now have in common, and never
// [teams.OwnersWrite], nor, while it has limits, what would get round them; [teams.ApprovalsWrite] takes full access. A
// code works once, for the client, the redirect address and the PKCE
// verifier that it was made for; presented wrongly or twice it is spent, and what it gave is revoked. A grant ends with
// who consented to it. A team has at most [grantsMax] that are active. The newest
// refresh token alone works. An older one revokes the grant, except in [retryTime] after its use if nothing that
// followed from it was used: then the client did not get the answer, and the token that it did not get is replaced.
//
// Each of these decisions is one transaction on the grant's row. A revoked grant is refused by this node at once, and
// by others when the hint arrives.
//
// # When it fails
//
// If a hint is lost, other nodes accept a revoked grant's tokens for at most [checkedFor]. Refusals of clients are of
// the type [Error], with the names of RFC 6749; what people and teams do wrong is a fault.
//
// # What it does not do
//
// It knows nothing of HTTP, and shows no pages: package oauth does. It has no clients with secrets, no implicit and
// password flows (RFC 9700 section 2). It keeps what a grant is limited to and counts, but package emails asks it.
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
	accessLife  = 15 * time.Minute    // of access tokens (API reference section 24.4)
	refreshLife = 60 * 24 * time.Hour // of refresh tokens, from when they were issued
	codeLife    = 10 * time.Minute
	retryTime   = 10 * time.Second // in which a client that did not get an answer may ask again
	checkedFor  = 5 * time.Second  // the longest that a revocation on another node goes unnoticed if its hint is lost
	grantsMax   = 1000             // active ones of a team
)

// CLI is the id of the official command-line program, which does not register (API reference section 24.8).
const CLI = "7136aa0b-625c-4c9c-8820-e9784c8eb141"

// Client is a program that may ask for grants. Clients are public: they have no secret, so that a name is only what the
// program says of itself.
type Client struct {
	ID           string
	Name         string
	RedirectURIs []string
	Scopes       Scopes // what it may ask for at most, and asks for if it does not say
	URI, LogoURI string // of its home page and picture; "" if it gave none
	Registered   bool   // by itself, so that nobody has verified its name
	CreatedAt    time.Time
}

// Grant is what a client may do for a team.
type Grant struct {
	ID            string
	TeamID        string
	UserID        string // who granted it; "" if it was an API key, in development
	KeyID         string // of that key; "" if it was a person
	ClientID      string
	ClientName    string
	LogoURI       string // of the client; "" if it gave none
	Scopes        Scopes
	Resource      string // the only one that it is for (RFC 8707); "" if the client named none, which is all of ours
	Limits        Limits
	CreatedAt     time.Time
	UsedAt        time.Time // when tokens were last issued for it
	ExpiresAt     time.Time // unless the client renews its tokens before
	RevokedAt     time.Time // zero while it is active
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
	UserLeft     Reason = "user_left"           // its user is no member of the team any more, or is disabled
	KeyDeleted   Reason = "key_deleted"         // the API key that consented to it, in development, was deleted
	GrantExpired Reason = "expired"             // its client has not renewed its tokens
)

// Config is what a [Service] is configured with.
type Config struct {
	Issuer    string   // the address of this installation, without a slash at its end
	Resources []string // addresses that grants may be for (RFC 8707), the API's first
	Aliases   []string // other addresses of this installation, by which clients may name the resources
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
	// What a grant may do depends on its user, too. Package teams forgets at its own hint before package members does, and
	// could look up in between what members still remember.
	for _, topic := range []string{teams.HintTopic, members.HintTopic, users.HintTopic} {
		d.DB.OnHint(topic, func(string) { d.Teams.Forget() })
	}
	return s
}
