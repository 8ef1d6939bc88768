package users

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"time"

	"github.com/go-webauthn/webauthn/protocol"
	"github.com/go-webauthn/webauthn/webauthn"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	challengeLife = 5 * time.Minute
	passkeysMost  = 20 // of a user
	responseMost  = 64 << 10
)

// Keyring purposes for challenges. The server stores no open challenges: the browser keeps each challenge in a signed
// token, and the transaction that accepts the response marks the challenge as used. Unanswered challenges therefore
// need no storage.
const (
	signNewPasskey = "user passkey new"
	signPasskeyIn  = "user passkey sign-in"
	signProof      = "user passkey proof"
)

var (
	errNoPasskeys = fault.New(fault.Unavailable, "", "Passkeys need a public_url with a host name, over https or on "+
		"this machine.")
	errPasskey = fault.New(fault.BadCredential, "", "This passkey was not accepted. Try again, or sign in by other "+
		"means.")
)

// relyingParty returns the WebAuthn relying party for a public URL. The URL must have a host name, because browsers do
// not accept IP addresses for passkeys.
func relyingParty(publicURL string) (*webauthn.WebAuthn, error) {
	u, err := url.Parse(publicURL)
	if err != nil {
		return nil, fmt.Errorf("read public_url: %w", err)
	}
	verified := protocol.AuthenticatorSelection{RequireResidentKey: protocol.ResidentKeyRequired(),
		ResidentKey: protocol.ResidentKeyRequirementRequired, UserVerification: protocol.VerificationRequired}
	if err := protocol.ValidateRPID(u.Hostname()); err != nil {
		return nil, fmt.Errorf("passkeys need a host name: %w", err)
	}
	return webauthn.New(&webauthn.Config{RPID: u.Hostname(), RPDisplayName: "Postrider " + u.Hostname(),
		RPOrigins: []string{u.Scheme + "://" + u.Host}, AuthenticatorSelection: verified,
		AttestationPreference: protocol.PreferNoAttestation})
}

// PasskeysEnabled reports whether passkeys can be used at the public URL.
func (s *Service) PasskeysEnabled() bool { return s.web != nil }

// passkeyUser implements the user interface of the WebAuthn library.
type passkeyUser struct {
	row
	credentials []webauthn.Credential
}

func (h *passkeyUser) WebAuthnID() []byte                         { return h.handle }
func (h *passkeyUser) WebAuthnName() string                       { return h.Email }
func (h *passkeyUser) WebAuthnCredentials() []webauthn.Credential { return h.credentials }
func (h *passkeyUser) WebAuthnDisplayName() string {
	if h.Name == "" {
		return h.Email
	}
	return h.Name
}

func (s *Service) passkeyUser(ctx context.Context, userID string) (*passkeyUser, error) {
	u, err := getRow(ctx, s.DB.Reader, userID)
	if err != nil {
		return nil, err
	}
	h := &passkeyUser{row: u}
	all, err := listPasskeys(ctx, s.DB.Reader, userID)
	for _, p := range all {
		h.credentials = append(h.credentials, p.credential)
	}
	return h, err
}

// challenge returns the options for the browser and a signed token with the WebAuthn session data. The token is bound
// to the given session id, which is "" for a sign-in; openChallenge fails if it is called with a different id.
func (s *Service) challenge(purpose, of string, options any, data *webauthn.SessionData) (Challenge, error) {
	kept, err := json.Marshal(data)
	if err != nil {
		return Challenge{}, fmt.Errorf("encode a challenge: %w", err)
	}
	shown, err := json.Marshal(options)
	if err != nil {
		return Challenge{}, fmt.Errorf("encode the options of a challenge: %w", err)
	}
	return Challenge{s.Keys.Sign(purpose, s.now().Add(challengeLife), of, string(kept)), shown}, nil
}

// openChallenge verifies a token created by challenge and returns the WebAuthn session data that it contains.
func (s *Service) openChallenge(purpose, of, token string) (data webauthn.SessionData, err error) {
	parts, err := s.Keys.Verify(purpose, token, s.now())
	if err != nil || len(parts) != 2 || parts[0] != of {
		return data, fault.New(fault.BadCredential, "", "This took too long. Try again.")
	}
	if err := json.Unmarshal([]byte(parts[1]), &data); err != nil {
		return data, fmt.Errorf("read a challenge: %w", err)
	}
	return data, nil
}

// useChallenge marks a challenge as used, and fails if the challenge has been used before.
func (s *Service) useChallenge(ctx context.Context, tx *db.Tx, data *webauthn.SessionData) error {
	ok, err := markUsed(ctx, tx, data.Challenge, s.now().Add(challengeLife))
	if err == nil && !ok {
		err = errPasskey
	}
	return err
}

// BeginPasskey begins the registration of a passkey for the session's user.
func (s *Service) BeginPasskey(ctx context.Context, session Session) (Challenge, error) {
	if s.web == nil {
		return Challenge{}, errNoPasskeys
	}
	if err := s.requireProof(session); err != nil {
		return Challenge{}, err
	}
	h, err := s.passkeyUser(ctx, session.UserID)
	if err != nil {
		return Challenge{}, err
	}
	if len(h.credentials) >= passkeysMost {
		return Challenge{}, fault.Invalidf("", "There may be %d passkeys. Remove one that you do not use.",
			passkeysMost)
	}
	options, data, err := s.web.BeginRegistration(h,
		webauthn.WithExclusions(webauthn.Credentials(h.credentials).CredentialDescriptors()))
	if err != nil {
		return Challenge{}, fmt.Errorf("begin a passkey: %w", err)
	}
	return s.challenge(signNewPasskey, session.ID, options, data)
}

// FinishPasskey stores the new passkey. The parameter response is the browser's PublicKeyCredential as JSON.
func (s *Service) FinishPasskey(ctx context.Context, session Session, token, name string, response []byte,
	c Client) (Passkey, error) {
	if s.web == nil {
		return Passkey{}, errNoPasskeys
	}
	name, err := checkName(name)
	if err != nil {
		return Passkey{}, err
	}
	if name == "" {
		name = "Passkey"
	}
	data, err := s.openChallenge(signNewPasskey, session.ID, token)
	if err != nil {
		return Passkey{}, err
	}
	h, err := s.passkeyUser(ctx, session.UserID)
	if err != nil {
		return Passkey{}, err
	}
	if len(response) > responseMost {
		return Passkey{}, errPasskey
	}
	parsed, err := protocol.ParseCredentialCreationResponseBytes(response)
	if err != nil {
		return Passkey{}, errPasskey.Because(err)
	}
	made, err := s.web.CreateCredential(h, data, parsed)
	if err != nil {
		return Passkey{}, errPasskey.Because(err)
	}
	p := passkey{Passkey{ID: id.New(), Name: name, CreatedAt: s.now()}, session.UserID, *made}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := s.useChallenge(ctx, tx, &data); err != nil {
			return err
		}
		if err := insertPasskey(ctx, tx, &p); err != nil {
			return err
		}
		s.changed(tx, session.UserID)
		return s.recordByUser(ctx, tx, h.User, audit.FactorAdded, "passkey "+p.Name, c)
	})
	if s.DB.Violates(err, "user_passkeys_credential") {
		return Passkey{}, fault.Invalidf("", "This passkey is there already.").Because(err)
	}
	return p.Passkey, err
}

// BeginPasskeySignIn begins a sign-in by passkey. The user does not enter an email address.
func (s *Service) BeginPasskeySignIn(context.Context) (Challenge, error) {
	if s.web == nil {
		return Challenge{}, errNoPasskeys
	}
	options, data, err := s.web.BeginDiscoverableLogin(webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return Challenge{}, fmt.Errorf("begin a sign-in by passkey: %w", err)
	}
	return s.challenge(signPasskeyIn, "", options, data)
}

// FinishPasskeySignIn signs in the owner of the passkey. A sign-in by passkey requires no second factor, because the
// user has the authenticator and the authenticator has verified the user.
func (s *Service) FinishPasskeySignIn(ctx context.Context, token string, response []byte, c Client) (Outcome, error) {
	if s.web == nil {
		return Outcome{}, errNoPasskeys
	}
	data, err := s.openChallenge(signPasskeyIn, "", token)
	if err != nil {
		return Outcome{}, err
	}
	parsed, err := parseAssertion(response)
	if err != nil {
		return Outcome{}, err
	}
	var trouble error // the callback's error, which the WebAuthn library does not return
	user, used, err := s.web.ValidatePasskeyLogin(func(_, handle []byte) (webauthn.User, error) {
		u, err := byHandle(ctx, s.DB.Reader, handle)
		if err != nil {
			if fault.KindOf(err) != fault.NotFound {
				trouble = err
			}
			return nil, err
		}
		h, err := s.passkeyUser(ctx, u.ID)
		trouble = err
		return h, err
	}, data, parsed)
	if trouble != nil {
		return Outcome{}, trouble
	}
	if err != nil {
		return Outcome{}, errPasskey.Because(err)
	}
	h := user.(*passkeyUser)
	if h.Disabled {
		return Outcome{}, errPasskey
	}
	if err := s.rejectCloned(ctx, h, used, networkLimits("network", c, perNetwork), c); err != nil {
		return Outcome{}, err
	}
	out := Outcome{}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		now, err := lockRow(ctx, tx, h.ID)
		if err != nil {
			return err
		}
		if err := s.usePasskey(ctx, tx, h.ID, used, &data); err != nil {
			return err
		}
		if now.Disabled {
			return errPasskey
		}
		out.User = now.User
		out.Token, err = s.StartIn(ctx, tx, now.User, "passkey", c)
		return err
	})
	if err != nil {
		return Outcome{}, err
	}
	return out, nil
}

// rejectCloned returns a fault if the signature counter of a passkey decreased, which indicates that the passkey was
// copied. The attempt counts toward the limits, which bound how many audit entries a client can cause.
func (s *Service) rejectCloned(ctx context.Context, h *passkeyUser, used *webauthn.Credential, limits []limit,
	c Client) error {
	if !used.Authenticator.CloneWarning {
		return nil
	}
	if err := s.consumeAttempts(ctx, limits); err != nil {
		return err
	}
	s.failed(h.User, h.Email, "the counter of a passkey went back", c)
	return fault.New(fault.BadCredential, "", "This passkey may have been copied: its counter went back. Sign in by "+
		"other means, and remove it.")
}

// usePasskey records the use of a passkey in the transaction that accepts it.
func (s *Service) usePasskey(ctx context.Context, tx *db.Tx, userID string, used *webauthn.Credential,
	data *webauthn.SessionData) error {
	if err := s.useChallenge(ctx, tx, data); err != nil {
		return err
	}
	ok, err := updatePasskey(ctx, tx, userID, used, s.now())
	if err == nil && !ok {
		err = errPasskey
	}
	return err
}

// BeginPasskeyProof begins the renewal of a session's proof of identity with a passkey.
func (s *Service) BeginPasskeyProof(ctx context.Context, session Session) (Challenge, error) {
	if s.web == nil {
		return Challenge{}, errNoPasskeys
	}
	h, err := s.passkeyUser(ctx, session.UserID)
	if err != nil {
		return Challenge{}, err
	}
	if len(h.credentials) == 0 {
		return Challenge{}, fault.Invalidf("", "There is no passkey. Give the password.")
	}
	options, data, err := s.web.BeginLogin(h, webauthn.WithUserVerification(protocol.VerificationRequired))
	if err != nil {
		return Challenge{}, fmt.Errorf("begin a proof by passkey: %w", err)
	}
	return s.challenge(signProof, session.ID, options, data)
}

// FinishPasskeyProof renews the session's proof of identity.
func (s *Service) FinishPasskeyProof(ctx context.Context, session Session, token string, response []byte,
	c Client) error {
	if s.web == nil {
		return errNoPasskeys
	}
	data, err := s.openChallenge(signProof, session.ID, token)
	if err != nil {
		return err
	}
	parsed, err := parseAssertion(response)
	if err != nil {
		return err
	}
	h, err := s.passkeyUser(ctx, session.UserID)
	if err != nil {
		return err
	}
	used, err := s.web.ValidateLogin(h, data, parsed)
	if err != nil {
		return errPasskey.Because(err)
	}
	if err := s.rejectCloned(ctx, h, used, proofLimits(session, c), c); err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := s.usePasskey(ctx, tx, h.ID, used, &data); err != nil {
			return err
		}
		return s.renewProof(ctx, tx, session.ID, h.ID)
	})
}

func parseAssertion(response []byte) (*protocol.ParsedCredentialAssertionData, error) {
	if len(response) > responseMost {
		return nil, errPasskey
	}
	parsed, err := protocol.ParseCredentialRequestResponseBytes(response)
	if err != nil {
		return nil, errPasskey.Because(err)
	}
	return parsed, nil
}

// Passkeys returns the user's passkeys, oldest first.
func (s *Service) Passkeys(ctx context.Context, userID string) ([]Passkey, error) {
	all, err := listPasskeys(ctx, s.DB.Reader, userID)
	shown := make([]Passkey, len(all))
	for i := range all {
		shown[i] = all[i].Passkey
	}
	return shown, err
}

// RenamePasskey changes the name of a passkey.
func (s *Service) RenamePasskey(ctx context.Context, session Session, passkeyID, name string, c Client) error {
	name, err := checkName(name)
	if err != nil {
		return err
	}
	if name == "" {
		return fault.MissingField("name")
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		renamePasskey(ctx, tx, session.UserID, passkeyID, name)
		return s.recordByUserID(ctx, tx, session.UserID, passkeyRenamed, name, c)
	})
}

var errNoPasskey = fault.NotFoundf("Passkey not found")

// RemovePasskey deletes a passkey.
func (s *Service) RemovePasskey(ctx context.Context, session Session, passkeyID string, c Client) error {
	if err := s.requireProof(session); err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		u, err := lockRow(ctx, tx, session.UserID) // first: see mayStillEnter
		if err != nil {
			return err
		}
		deletePasskey(ctx, tx, u.ID, passkeyID)
		if err := checkCanSignIn(ctx, tx, u); err != nil {
			return err
		}
		s.changed(tx, session.UserID)
		return s.recordByUserID(ctx, tx, session.UserID, audit.FactorRemoved, "passkey", c)
	})
}

// checkCanSignIn returns a fault if the user has no way left to sign in. The transaction must lock the user before it
// deletes a factor. The lock ensures that if two transactions delete the last two factors, the second transaction sees
// the first deletion.
func checkCanSignIn(ctx context.Context, tx *db.Tx, u row) error {
	if u.HasPassword {
		return nil
	}
	n, err := countFactors(ctx, tx.Reader, u.ID)
	if err == nil && n == 0 {
		err = fault.Forbiddenf("", "This is the only way in which you can sign in. Set a password first.")
	}
	return err
}
