// Package users manages the people who sign in, with their passwords, second factors, passkeys, linked OIDC accounts,
// sessions and one-time links.
//
// # Invariants
//
// A user is identified by id or by email address. Addresses are unique and are compared in the form that
// [message.Address.Key] returns. Session tokens and link tokens are random and stored as hashes, passwords are stored
// as argon2id hashes, and TOTP secrets are stored encrypted. Each sign-in creates a new session. Codes, links and
// challenges work once: the transaction that accepts a code, link or challenge also deletes it or marks it as used. A
// change that withdraws a right takes effect on this node before the method returns. On other nodes, the change takes
// effect when they receive the cache-invalidation hint.
//
// Clients that have not signed in cannot find out which email addresses have an account, because responses, limits and
// the amount of work are the same for unknown addresses. Each sign-in attempt is counted before it is checked, so
// concurrent attempts cannot exceed the limit; see attempts.go.
//
// # Failures
//
// If a cache-invalidation hint is lost, other nodes accept an ended session for at most [cacheFor]. If too many
// passwords are being checked at the same time, sign-ins fail with a TooFast fault.
//
// # Out of scope
//
// Package users does not handle cookies, pages, teams or roles. Package members manages teams and roles. Package users
// does not check who may manage users, because only the operator can manage them, with the program's commands.
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

// HintTopic is the topic of the cache-invalidation hints that are sent after a change that may withdraw a user's rights
// or end a session. The payload of a hint with this topic is the user's id.
const HintTopic = "users"

// User is a person who can sign in.
type User struct {
	ID           string
	Email        string // normalized by message.Address.Key
	Name         string // may be empty
	Disabled     bool   // whether the user is barred from signing in
	HasPassword  bool
	HasTOTP      bool // whether the user must enter a TOTP code after the password
	CreatedAt    time.Time
	LastSignInAt time.Time // zero before the first sign-in
}

// NewUser describes a user to create.
type NewUser struct {
	Email    string
	Name     string // at most 100 characters; may be empty
	Password string // "" for none: the user signs in by other means, or through [Service.ResetLink]
}

// Draft is a validated NewUser with a hashed password. Passwords are hashed before the transaction begins, because
// hashing takes too long to do inside it.
type Draft struct {
	User
	hash   string
	handle []byte
}

// Client describes the browser or program that sent a request, for sessions and the audit log.
type Client struct {
	Address   string // IP address; the attempt limits apply to its network
	UserAgent string
}

// Config contains the settings of a [Service].
type Config struct {
	PublicURL string // prefix of links; its host name is the relying party for passkeys
	OIDC      OIDCConfig
	// HashMemory is the memory that a password hash uses, in KiB. Only tests set HashMemory, to make hashing faster; 0
	// means the secure default.
	HashMemory uint32
}

// OIDCConfig describes the provider through which users can sign in. If Issuer is empty, users cannot sign in through a
// provider.
type OIDCConfig struct {
	Issuer, ClientID, ClientSecret string
	Name                           string   // the provider's name on the sign-in button
	Domains                        []string // lower-case email domains whose users may sign in without an invitation
}

// Deps are the dependencies of a Service.
type Deps struct {
	DB   *db.DB
	Keys *keyring.Keyring
	Log  *slog.Logger
	// Audit is the audit log, which records sign-ins and changes to users.
	Audit *audit.Log
	// TeamsOf returns the ids of a user's teams. A user's actions appear in the audit log of each of the user's teams.
	// Actions of a user without a team appear in no team's log.
	TeamsOf func(ctx context.Context, r db.Reader, userID string) ([]string, error)
	// OnUserDelete runs in the transaction that deletes a user. If OnUserDelete returns an error, the user is not deleted.
	OnUserDelete func(ctx context.Context, tx *db.Tx, userID string) error
	// OnUserDisable runs in the transaction that disables a user.
	OnUserDisable func(ctx context.Context, tx *db.Tx, userID string) error
	// Mail enqueues an email to one address as part of the transaction tx. If Mail is nil, requests for password reset
	// links are refused.
	Mail func(ctx context.Context, tx *db.Tx, to, subject, text string) error `deps:"optional"`
	// Now returns the current time. If Now is nil, the service uses the clock of package db.
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
	cache map[string]cachedSession // keys are token hashes
	epoch int                      // incremented by forget; results read in an earlier epoch are not cached
}

// New returns the service. New fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	s := &Service{Deps: d, c: c, tasks: make(chan task, maxTasks),
		cache: map[string]cachedSession{}}
	if c.HashMemory > 0 {
		s.hash.cheap = hashCost{c.HashMemory, 1, 1}
	}
	s.web, _ = relyingParty(c.PublicURL) // see PasskeysEnabled
	d.DB.OnHint(HintTopic, func(string) { s.forget() })
	return s, nil
}

func (s *Service) now() time.Time {
	if s.Now != nil {
		return s.Now().UTC().Truncate(time.Microsecond)
	}
	return s.DB.Now()
}

// Outcome is the result of a sign-in step.
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

// Session represents a browser in which a user is signed in.
type Session struct {
	ID        string
	UserID    string
	TeamID    string // the team that was viewed last; "" for none
	Address   string // IP address of the client that signed in
	UserAgent string
	CreatedAt time.Time
	UsedAt    time.Time // time of last use; may be up to a minute out of date
	ExpiresAt time.Time // extended if the session is used before this time
	ProvedAt  time.Time // when the user last entered a password or used a passkey
}

// ErrProve is returned by methods that change authentication factors if the session's last proof of identity is too
// old. The user must enter the password or use a passkey again (see [Service.ProvePassword] and
// [Service.FinishPasskeyProof]). Compare with errors.Is.
var ErrProve error = fault.Forbiddenf("", "Confirm that it is you: give your password or a passkey again.")

// TOTPSetup is a TOTP secret that becomes a second factor when a code confirms it.
type TOTPSetup struct {
	Token  string // for ConfirmTOTP and ResumeTOTP
	Secret string // base32, for typing
	URL    string // otpauth://, the content of the QR code
	PNG    []byte // the QR code
}

// Passkey describes a user's passkey.
type Passkey struct {
	ID         string
	Name       string
	CreatedAt  time.Time
	LastUsedAt time.Time // zero before the first use
}

// Challenge is a WebAuthn challenge for the browser's authenticator.
type Challenge struct {
	Token   string // argument for the method that finishes the operation; valid for 5 minutes
	Options []byte // JSON object with the member publicKey, for navigator.credentials
}

// Identity is an OIDC provider account that is linked to a user.
type Identity struct {
	ID        string
	Issuer    string
	Email     string // email address that the provider returned when the account was linked
	CreatedAt time.Time
}

// OIDCFlow contains the URL and the cookie that the browser needs to sign in at the OIDC provider.
type OIDCFlow struct {
	URL    string // where to redirect the browser
	Cookie string // cookie that the browser must send to the callback; valid for 10 minutes
}

// OIDCResult is the result of a sign-in at the OIDC provider. OIDCResult contains an Outcome, or Unknown if no user is
// linked to the provider's account.
type OIDCResult struct {
	Outcome

	// Cookie replaces the cookie of the flow, if it is not "". With it, the same request can be repeated after a failure,
	// although the provider accepts its code only once. It is also set if FinishOIDC returns an error.
	Cookie string

	Linked  bool    // whether the account was linked to the signed-in user
	Unknown *Person // the person with a verified address, if no such user exists
}

// Person is an identity from the OIDC provider for which no user exists yet. The Token of a Person is the argument for
// [Service.CreateFromOIDC] and is valid for 10 minutes.
type Person struct {
	Email, Name string
	Allowed     bool // whether OIDCConfig.Domains allows the person to sign in without an invitation
	Token       string
}
