// Package users keeps the people who sign in: passwords, second factors, passkeys, accounts at an OIDC provider,
// sessions, and links that are used once.
//
// # Invariants
//
// A user is found by an id or by an address, which is unique and compared as [message.Address.Key] has it. Tokens of
// sessions and links are random and stored as hashes; passwords are stored as argon2id hashes, and secrets of TOTP
// are sealed. Each sign-in makes a new session. A code, a link and a challenge are used once: the transaction in
// which they take effect takes them away. A change that withdraws a right takes effect on this node before the method
// returns, and on the others when its hint arrives.
//
// Whoever does not sign in learns nothing of who has an account: answers, limits and the work that is done are the same
// for addresses that nobody has. Attempts are counted before they are judged, so that many at once are not more than
// the limit allows; see attempts.go.
//
// # When it fails
//
// If a hint is lost, other nodes notice that a session has ended after at most [cacheFor]. When too many passwords are
// checked at the same time, a fault of kind TooFast asks to try again.
//
// # What it does not do
//
// It does not know teams and roles, which are package members', nor cookies and pages. It does not decide who may
// manage users: that is the operator, by the program's commands.
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

// HintTopic is the topic of hints, each with a user's id, after a change that may withdraw a right of the user or end
// a session.
const HintTopic = "users"

// User is a person.
type User struct {
	ID           string
	Email        string // as message.Address.Key has it
	Name         string // may be empty
	Disabled     bool   // may not sign in
	HasPassword  bool
	HasTOTP      bool // codes are asked for after the password
	CreatedAt    time.Time
	LastSignInAt time.Time // zero before the first
}

// NewUser is a user to be created.
type NewUser struct {
	Email    string
	Name     string // at most 100 characters; may be empty
	Password string // "" for none: then the user signs in by other means, or by a link from [Service.ResetLink]
}

// Draft is a checked NewUser with its password hashed, which takes too long for a transaction.
type Draft struct {
	User
	hash   string
	handle []byte
}

// Client is the program at the other end, as sessions and the audit log show it.
type Client struct {
	Address   string // IP address; it is limited by its network
	UserAgent string
}

// Config is the settings.
type Config struct {
	PublicURL string // passkeys are bound to its host, and links begin with it
	OIDC      OIDCConfig
	// HashMemory is what the hash of a password takes, in KiB, where passwords need no protection: in tests. 0 is what
	// they need. No setting of the program leads here.
	HashMemory uint32
}

// OIDCConfig is the provider by which people may sign in. Without an issuer there is none.
type OIDCConfig struct {
	Issuer, ClientID, ClientSecret string
	Name                           string   // of the provider, on the button
	Domains                        []string // of addresses that may sign in without an invitation, in lower case
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
	// OnUserDelete runs in the transaction that deletes a user. Its error refuses the deletion.
	OnUserDelete func(ctx context.Context, tx *db.Tx, userID string) error
	// OnUserDisable runs in the transaction that disables a user.
	OnUserDisable func(ctx context.Context, tx *db.Tx, userID string) error
	// Mail enqueues an email to one address in tx. If it is nil, requests for links are refused.
	Mail func(ctx context.Context, tx *db.Tx, to, subject, text string) error `deps:"optional"`
	// Now returns the current time; nil uses the clock of the database.
	Now func() time.Time `deps:"optional"`
}

// Service implements what is done with users.
type Service struct {
	Deps
	c    Config
	d    *db.DB
	keys *keyring.Keyring
	log  *slog.Logger
	hash hasher
	oidc provider

	web   *webauthn.WebAuthn // nil if the public URL is no place for passkeys
	tasks chan task

	mu    sync.Mutex
	cache map[string]cachedSession // by the hash of the token
	epoch int                      // incremented by forget; what was read in an older epoch is not cached
}

// New returns the service. It fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	s := &Service{Deps: d, c: c, d: d.DB, keys: d.Keys, log: d.Log, tasks: make(chan task, maxTasks),
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
	return s.d.Now()
}

// Outcome is how far a sign-in has come.
type Outcome struct {
	Token   string // of the new session, for the cookie; "" while a second factor is asked for
	Pending string // for SecondFactor; "" otherwise
	User    User
}

// Attempt is an attempt to sign in with a password.
type Attempt struct {
	Email, Password string
	Client
}

// Session is a browser in which a user has signed in.
type Session struct {
	ID        string
	UserID    string
	TeamID    string // that was looked at last; "" for none
	Address   string // of the client that signed in
	UserAgent string
	CreatedAt time.Time
	UsedAt    time.Time // a minute behind, at most
	ExpiresAt time.Time // unless it is used before
	ProvedAt  time.Time // when the user last gave a password or a passkey
}

// ErrProve is returned by changes of factors when the session's proof is too old: the user gives the password or a
// passkey once more (see [Service.ProvePassword] and [Service.FinishPasskeyProof]). Compare with errors.Is.
var ErrProve error = fault.Forbiddenf("", "Confirm that it is you: give your password or a passkey again.")

// TOTPSetup is a secret that becomes a second factor when it is confirmed by a code.
type TOTPSetup struct {
	Token  string // for ConfirmTOTP
	Secret string // base32, to be typed
	URL    string // otpauth://, what the QR code has
	PNG    []byte // the QR code
}

// Passkey is a passkey.
type Passkey struct {
	ID         string
	Name       string
	CreatedAt  time.Time
	LastUsedAt time.Time // zero before the first use
}

// Challenge is a question to the browser's authenticator.
type Challenge struct {
	Token   string // for the method that finishes it, within 5 minutes
	Options []byte // JSON, an object with the member publicKey, for navigator.credentials
}

// Identity is an account at the OIDC provider.
type Identity struct {
	ID        string
	Issuer    string
	Email     string // what the provider said when it was linked
	CreatedAt time.Time
}

// OIDCFlow is a sign-in at the OIDC provider that was begun.
type OIDCFlow struct {
	URL    string // where the browser goes
	Cookie string // what the browser keeps until it comes back: 10 minutes
}

// OIDCResult is what came of it: an Outcome, or Unknown if nobody has the account.
type OIDCResult struct {
	Outcome
	Linked  bool    // the account was linked to the user who was signed in
	Unknown *Person // whom the provider vouches for, with an address that it has verified
}

// Person is somebody whom the OIDC provider vouches for and who is no user yet. Token is what CreateFromOIDC takes, for
// 10 minutes.
type Person struct {
	Email, Name string
	Allowed     bool // by OIDCConfig.Domains, without an invitation
	Token       string
}
