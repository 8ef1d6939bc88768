package users

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"image/png"
	"net/url"
	"strings"
	"time"

	"github.com/pquerna/otp"
	"github.com/pquerna/otp/hotp"
	"github.com/pquerna/otp/totp"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

const (
	totpStep      = 30 // seconds (RFC 6238 section 4.1)
	totpDrift     = 1  // number of steps by which the user's clock may be off
	totpSetup     = 15 * time.Minute
	recoveryCodes = 10
	qrSize        = 240 // pixels

	totpSecretSize = 20 // bytes (RFC 4226 section 4)
)

// Keyring purposes for encrypting and signing TOTP secrets and recovery codes.
const (
	sealTOTP  = "user totp"
	signTOTP  = "user totp setup"
	tagBackup = "user recovery code"
)

// Sealed lists the columns with encrypted secrets.
var Sealed = []keyring.Column{{Table: "users", Name: "totp_secret", Purpose: sealTOTP}}

// BeginTOTP creates a TOTP secret for the session's user.
func (s *Service) BeginTOTP(ctx context.Context, session Session) (TOTPSetup, error) {
	if err := s.requireProof(session); err != nil {
		return TOTPSetup{}, err
	}
	u, err := getRow(ctx, s.DB.Reader, session.UserID)
	if err != nil {
		return TOTPSetup{}, err
	}
	secret := make([]byte, totpSecretSize)
	rand.Read(secret)
	setup, err := s.describeTOTP(u.Email, secret)
	if err != nil {
		return TOTPSetup{}, err
	}
	// The token is signed but not encrypted, because the page displays the TOTP secret anyway. The signature proves that
	// this installation created the secret.
	setup.Token = s.Keys.Sign(signTOTP, s.now().Add(totpSetup), u.ID, setup.Secret)
	return setup, nil
}

// ResumeTOTP returns the TOTP secret that BeginTOTP created with the given token, so that a page can show the QR code
// again after a wrong code.
func (s *Service) ResumeTOTP(ctx context.Context, session Session, token string) (TOTPSetup, error) {
	if err := s.requireProof(session); err != nil {
		return TOTPSetup{}, err
	}
	text, err := s.openTOTP(session, token)
	if err != nil {
		return TOTPSetup{}, err
	}
	secret, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(text)
	if err != nil {
		return TOTPSetup{}, fmt.Errorf("decode a secret of TOTP: %w", err)
	}
	u, err := getUser(ctx, s.DB.Reader, session.UserID)
	if err != nil {
		return TOTPSetup{}, err
	}
	setup, err := s.describeTOTP(u.Email, secret)
	setup.Token = token
	return setup, err
}

// openTOTP returns the secret in a token that BeginTOTP created for the session's user.
func (s *Service) openTOTP(session Session, token string) (string, error) {
	parts, err := s.Keys.Verify(signTOTP, token, s.now())
	if err != nil || len(parts) != 2 || parts[0] != session.UserID {
		return "", fault.Invalidf("token", "This took too long. Begin anew.")
	}
	return parts[1], nil
}

// describeTOTP returns a secret as text, as URL and as QR code. The result has no token.
func (s *Service) describeTOTP(email string, secret []byte) (TOTPSetup, error) {
	key, err := totp.Generate(totp.GenerateOpts{Issuer: s.siteName(), AccountName: email, Secret: secret})
	if err != nil {
		return TOTPSetup{}, fmt.Errorf("make a secret of TOTP: %w", err)
	}
	code, err := key.Image(qrSize, qrSize)
	if err != nil {
		return TOTPSetup{}, fmt.Errorf("draw a secret of TOTP: %w", err)
	}
	var image bytes.Buffer
	if err := png.Encode(&image, code); err != nil {
		return TOTPSetup{}, fmt.Errorf("encode a QR code: %w", err)
	}
	return TOTPSetup{Secret: key.Secret(), URL: key.URL(), PNG: image.Bytes()}, nil
}

// siteName returns the name that authenticator apps display for this installation, which contains the installation's
// host name.
func (s *Service) siteName() string {
	u, err := url.Parse(s.c.PublicURL)
	if err != nil || u.Hostname() == "" {
		return "Postrider"
	}
	return "Postrider " + u.Hostname()
}

// ConfirmTOTP turns on TOTP as the second factor, replaces any earlier TOTP secret, and returns new recovery codes. The
// recovery codes cannot be displayed again later. For a wrong code, ConfirmTOTP returns an Invalid fault for the field
// `code`, and the user may try again.
func (s *Service) ConfirmTOTP(ctx context.Context, session Session, token, code string, c Client) ([]string, error) {
	if err := s.requireProof(session); err != nil {
		return nil, err
	}
	secret, err := s.openTOTP(session, token)
	if err != nil {
		return nil, err
	}
	step, err := matchSecret(secret, code, s.now(), 0)
	if err != nil {
		return nil, err
	}
	if step == 0 {
		return nil, fault.Invalidf("code", "This code is wrong. See whether the clock of your device is right.")
	}
	sealed, err := s.Keys.Seal(sealTOTP, []byte(secret), []byte(session.UserID))
	if err != nil {
		return nil, fmt.Errorf("seal a secret of TOTP: %w", err)
	}
	codes := newRecoveryCodes()
	return codes, s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := setUser(ctx, tx, session.UserID, "totp_secret", sealed); err != nil {
			return err
		}
		if err := setUser(ctx, tx, session.UserID, "totp_step", step); err != nil {
			return err
		}
		s.setRecovery(ctx, tx, session.UserID, codes)
		deleteSessions(ctx, tx, session.UserID, session.ID)
		s.changed(tx, session.UserID)
		return s.recordByUserID(ctx, tx, session.UserID, audit.FactorAdded, authenticator, c)
	})
}

// DisableTOTP turns off the TOTP second factor and deletes the recovery codes. If the factor is already off,
// DisableTOTP does nothing.
func (s *Service) DisableTOTP(ctx context.Context, session Session, c Client) error {
	if err := s.requireProof(session); err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		u, err := getUser(ctx, tx.Reader, session.UserID)
		if err != nil || !u.HasTOTP {
			return err
		}
		if err := s.clearTOTP(ctx, tx, session.UserID); err != nil {
			return err
		}
		return s.recordByUser(ctx, tx, u, audit.FactorRemoved, authenticator, c)
	})
}

// ClearFactors removes the TOTP factor, the recovery codes and the passkeys of a user who has lost them. Only the
// operator may use ClearFactors.
func (s *Service) ClearFactors(ctx context.Context, userID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := s.clearTOTP(ctx, tx, userID); err != nil {
			return err
		}
		deletePasskeys(ctx, tx, userID)
		deleteSessions(ctx, tx, userID, "")
		u, err := getUser(ctx, tx.Reader, userID)
		if err != nil {
			return err
		}
		return s.recordByOthers(ctx, tx, u, factorsCleared, "")
	})
}

func (s *Service) clearTOTP(ctx context.Context, tx *db.Tx, userID string) error {
	if err := setUser(ctx, tx, userID, "totp_secret", []byte{}); err != nil {
		return err
	}
	s.setRecovery(ctx, tx, userID, nil)
	s.changed(tx, userID)
	return nil
}

// matchTOTP returns the time step that a user's TOTP code matches, or 0 if the code is wrong.
func (s *Service) matchTOTP(u *row, code string) (int64, error) {
	if !u.HasTOTP {
		return 0, nil
	}
	secret, err := s.Keys.Open(sealTOTP, u.totpSecret, []byte(u.ID))
	if err != nil {
		return 0, fmt.Errorf("open the secret of TOTP of user %s: %w", u.ID, err)
	}
	return matchSecret(string(secret), code, s.now(), u.totpStep)
}

// matchSecret returns the time step at which a TOTP secret yields the given code, or 0 if the code is wrong. The time
// step must be within totpDrift of the current step and later than the last used step.
func matchSecret(secret, code string, now time.Time, used int64) (int64, error) {
	code = strings.NewReplacer(" ", "", "-", "").Replace(code)
	if len(code) != int(otp.DigitsSix) {
		return 0, nil
	}
	at := now.Unix() / totpStep
	for step := max(at-totpDrift, used+1, 1); step <= at+totpDrift; step++ {
		want, err := hotp.GenerateCodeCustom(secret, uint64(step),
			hotp.ValidateOpts{Digits: otp.DigitsSix, Algorithm: otp.AlgorithmSHA1})
		if err != nil {
			return 0, fmt.Errorf("make a code of TOTP: %w", err)
		}
		if subtle.ConstantTimeCompare([]byte(want), []byte(code)) == 1 {
			return step, nil
		}
	}
	return 0, nil
}

// NewRecoveryCodes replaces the user's recovery codes.
func (s *Service) NewRecoveryCodes(ctx context.Context, session Session, c Client) ([]string, error) {
	if err := s.requireProof(session); err != nil {
		return nil, err
	}
	codes := newRecoveryCodes()
	return codes, s.DB.Update(ctx, func(tx *db.Tx) error {
		u, err := getUser(ctx, tx.Reader, session.UserID)
		if err != nil {
			return err
		}
		if !u.HasTOTP {
			return fault.Invalidf("", "Recovery codes replace codes of an authenticator app: set one up first.")
		}
		s.setRecovery(ctx, tx, u.ID, codes)
		return s.recordByUser(ctx, tx, u, recoveryCreated, "", c)
	})
}

// RecoveryCodesLeft returns the number of a user's unused recovery codes.
func (s *Service) RecoveryCodesLeft(ctx context.Context, userID string) (int, error) {
	return countRecovery(ctx, s.DB.Reader, userID)
}

// newRecoveryCodes returns new recovery codes. Each code has 60 random bits, written as three groups of four letters
// and digits.
func newRecoveryCodes() []string {
	codes := make([]string, recoveryCodes)
	for i := range codes {
		b := make([]byte, 8)
		rand.Read(b)
		t := strings.ToLower(base32.StdEncoding.EncodeToString(b))[:12]
		codes[i] = t[:4] + "-" + t[4:8] + "-" + t[8:]
	}
	return codes
}

// setRecovery replaces the user's recovery codes.
func (s *Service) setRecovery(ctx context.Context, tx *db.Tx, userID string, codes []string) {
	hashes := make([]string, len(codes))
	for i, code := range codes {
		hashes[i] = s.hashRecovery(userID, code)[0]
	}
	replaceRecovery(ctx, tx, userID, hashes)
}

// hashRecovery returns the keyed hash that is stored for a recovery code, and then the hashes that were stored with
// earlier master keys. The hash ignores case, spaces and hyphens. The hash depends on the master key, so that the short
// recovery codes cannot be guessed from a copy of the database.
func (s *Service) hashRecovery(userID, code string) (hashes []string) {
	code = strings.ToLower(strings.NewReplacer(" ", "", "-", "").Replace(code))
	for _, tag := range s.Keys.Tags(tagBackup, []byte(userID+"\x00"+code), 32) {
		hashes = append(hashes, hex.EncodeToString(tag))
	}
	return hashes
}
