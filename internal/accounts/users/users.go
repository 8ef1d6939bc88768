// Package users manages the people who sign in: passwords, second factors, passkeys, accounts at an OIDC provider,
// sessions, and one-time links.
//
// # Invariants
//
// A user is looked up by id or by address. Addresses are unique and compared as [message.Address.Key] returns them. The
// tokens of sessions and links are random and stored as hashes, passwords as argon2id hashes, and TOTP secrets sealed.
// Each sign-in creates a new session. Codes, links and challenges work once: the transaction that accepts one also
// deletes it or marks it as used. A change that withdraws a right takes effect on this node before the method returns,
// and on other nodes when its hint arrives.
//
// Clients that have not signed in cannot find out which addresses have an account. Answers, limits and the amount of
// work are the same for unknown addresses. Attempts are counted before they are checked, so concurrent attempts
// cannot exceed the limit; see attempts.go.
//
// # Errors
//
// If a hint is lost, other nodes notice the end of a session after at most [cacheFor]. If too many passwords are being
// checked at the same time, a fault of the kind TooFast asks to try again.
//
// # Limits of this package
//
// It does not know teams and roles, which belong to package members, nor cookies and pages. It does not decide who may
// manage users: only the operator may, through the program's commands.
package users

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// HintTopic is the topic of hints after a change that may withdraw a right of a user or end a session. The hint is the
// user's id.
const HintTopic = "users"

// User is a person who can sign in.
type User struct {
	ID           string
	Email        string // as message.Address.Key returns it
	Name         string // may be empty
	Disabled     bool   // the user may not sign in
	HasPassword  bool
	HasTOTP      bool // the user needs a code after the password
	CreatedAt    time.Time
	LastSignInAt time.Time // zero before the first
}

// NewUser describes a user to create.
type NewUser struct {
	Email    string
	Name     string // at most 100 characters; may be empty
	Password string // "" for none: the user signs in by other means, or through [Service.ResetLink]
}

// Draft is a checked NewUser whose password is hashed. Hashing takes too long for a transaction.
type Draft struct {
	User
	hash   string
	handle []byte
}

// Client is the browser or program that sent a request, as sessions and the audit log show it.
type Client struct {
	Address   string // IP address; limits apply to its network
	UserAgent string
}

// Config is the settings.
type Config struct {
	PublicURL string // the host of passkeys, and the prefix of links
	OIDC      OIDCConfig
	// HashMemory is the memory of a password hash, in KiB, for tests that need no protection; 0 means the secure default.
	// No setting of the program changes it.
	HashMemory uint32
}

// OIDCConfig describes the provider through which users can sign in. Without an issuer, there is no provider.
type OIDCConfig struct {
	Issuer, ClientID, ClientSecret string
	Name                           string   // the provider's name on the button
	Domains                        []string // domains of addresses that may sign in without an invitation, in lower case
}

// Deps are the dependencies of a Service.
type Deps struct {
	DB   *db.DB
	Keys *keyring.Keyring
	Log  *slog.Logger
	// Audit records what users do with their accounts.
	Audit *audit.Log
	// TeamsOf returns the ids of a user's teams, in whose audit logs the user's acts appear. Acts of a user without a
	// team belong to no team's log.
	TeamsOf func(ctx context.Context, r db.Reader, userID string) ([]string, error)
	// OnUserDelete runs in the transaction that deletes a user. An error of OnUserDelete refuses the deletion.
	OnUserDelete func(ctx context.Context, tx *db.Tx, userID string) error
	// OnUserDisable runs in the transaction that disables a user.
	OnUserDisable func(ctx context.Context, tx *db.Tx, userID string) error
	// Mail enqueues an email to one address in tx. If Mail is nil, requests for links are refused.
	Mail func(ctx context.Context, tx *db.Tx, to, subject, text string) error `deps:"optional"`
	// Now returns the current time; nil uses the clock of the database.
	Now func() time.Time `deps:"optional"`
}

// Service implements the operations on users and their sessions.
type Service struct {
	Deps
	c    Config
	hash hasher
	oidc provider

	web   *webauthn.WebAuthn // nil if passkeys cannot be used at the public URL
	tasks chan task

	mu    sync.Mutex
	cache map[string]cachedSession // by the hash of the token
	epoch int                      // incremented by forget; results that were read in an older epoch are not cached
}

// New returns the service. It fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	s := &Service{Deps: d, c: c, tasks: make(chan task, maxTasks),
		cache: map[string]cachedSession{}}
	if c.HashMemory > 0 {
		s.hash.cheap = hashCost{c.HashMemory, 1, 1}
	}
	s.web, _ = relyingParty(c.PublicURL) // see PasskeysWork
	d.DB.OnHint(HintTopic, func(string) { s.forget() })
	return s, nil
}

func (s *Service) now() time.Time {
	if s.Now != nil {
		return s.Now().UTC().Truncate(time.Microsecond)
	}
	return s.DB.Now()
}

// Outcome is the result of a step of a sign-in.
type Outcome struct {
	Token   string // of the new session, for the cookie; "" while a second factor is required
	Pending string // the argument for SecondFactor; "" if none is required
	User    User
}

// Attempt is an attempt to sign in with a password.
type Attempt struct {
	Email, Password string
	Client
}

// Session is a browser in which a user is signed in.
type Session struct {
	ID        string
	UserID    string
	TeamID    string // the team that was viewed last; "" for none
	Address   string // IP address of the client that signed in
	UserAgent string
	CreatedAt time.Time
	UsedAt    time.Time // up to a minute old
	ExpiresAt time.Time // later if the session is used before
	ProvedAt  time.Time // when the user last entered a password or used a passkey
}

// ErrProve is returned by changes of factors if the session's last proof is too old. The user must enter the password
// or use a passkey again (see [Service.ProvePassword] and [Service.FinishPasskeyProof]). Compare with errors.Is.
var ErrProve error = fault.Forbiddenf("", "Confirm that it is you: give your password or a passkey again.")

// TOTPSetup is a TOTP secret that becomes a second factor when a code confirms it.
type TOTPSetup struct {
	Token  string // for ConfirmTOTP
	Secret string // base32, for typing
	URL    string // otpauth://, the content of the QR code
	PNG    []byte // the QR code
}

// Passkey is a passkey.
type Passkey struct {
	ID         string
	Name       string
	CreatedAt  time.Time
	LastUsedAt time.Time // zero before the first use
}

// Challenge is a WebAuthn challenge for the browser's authenticator.
type Challenge struct {
	Token   string // the argument of the finishing method, within 5 minutes
	Options []byte // a JSON object with the member publicKey, for navigator.credentials
}

// Identity is an account at the OIDC provider.
type Identity struct {
	ID        string
	Issuer    string
	Email     string // the address that the provider returned when the account was linked
	CreatedAt time.Time
}

// OIDCFlow is a sign-in at the OIDC provider that has begun.
type OIDCFlow struct {
	URL    string // where to redirect the browser
	Cookie string // cookie for the browser until it returns, for 10 minutes
}

// OIDCResult is the result of a sign-in at the OIDC provider: an Outcome, or Unknown if no user has the account.
type OIDCResult struct {
	Outcome
	Linked  bool    // the account was linked to the signed-in user
	Unknown *Person // the identity from the provider, with a verified address
}

// Person is an identity from the OIDC provider for which no user exists yet. Token is the argument of CreateFromOIDC,
// for 10 minutes.
type Person struct {
	Email, Name string
	Allowed     bool // OIDCConfig.Domains allows it without an invitation
	Token       string
}
