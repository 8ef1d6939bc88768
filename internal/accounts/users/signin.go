package users

import (
	"context"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	factorWait  = 5 * time.Minute // time limit for entering the second factor
	factorTries = 5
)

// Kinds of tokens.
const (
	setupToken  = "setup"
	resetToken  = "reset"
	factorToken = "factor"
	usedToken   = "used" // marks a challenge as already used
)

// tokenKinds are the kinds of tokens that belong to a user.
var tokenKinds = []string{resetToken, factorToken}

var (
	errWrong = fault.New(fault.BadCredential, "", "The address or the password is wrong.")
	errGone  = fault.New(fault.BadCredential, "", "The sign-in took too long or had too many wrong codes. Begin again.")
	errCode  = fault.Invalidf("code", "This code is wrong, or it was used already.")
)

// SignIn checks a user's password. If the sign-in fails, SignIn returns a BadCredential fault, which does not reveal
// whether the account exists. If too many attempts were made, SignIn returns a TooFast fault.
func (s *Service) SignIn(ctx context.Context, a Attempt) (Outcome, error) {
	email, err := Address(a.Email)
	if err != nil {
		return Outcome{}, err
	}
	limits := passwordLimits(email, a.Client)
	if err := s.consumeAttempts(ctx, limits); err != nil {
		return Outcome{}, err
	}
	u, err := byEmail(ctx, s.DB.Reader, email)
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return Outcome{}, err
	}
	ok, weak, err := s.hash.check(ctx, a.Password, u.password)
	if err != nil {
		return Outcome{}, s.refundAttempt(ctx, limits, err)
	}
	if !ok || u.Disabled {
		s.failed(u.User, email, "wrong password", a.Client)
		return Outcome{}, errWrong
	}
	anew := ""
	if weak {
		if anew, err = s.hash.make(ctx, a.Password); err != nil {
			return Outcome{}, err
		}
	}
	return s.authenticate(ctx, u, func(tx *db.Tx, now row) error {
		if now.password != u.password {
			return errWrong
		}
		refundAttempts(ctx, tx, limits)
		if anew != "" {
			return setUser(ctx, tx, u.ID, "password", anew)
		}
		return nil
	}, a.Client, byPassword)
}

// Names of the sign-in methods that may require a second factor. The name is part of the token with which the sign-in
// is completed. A client cannot change the name in the token, because the hash of the whole token is checked.
const (
	byPassword = "password"
	byProvider = "oidc"
)

// authenticate completes the first factor of a sign-in: it begins a session or, if the user has a second factor,
// returns a token for that factor. The function check runs in the transaction with the user's current row.
func (s *Service) authenticate(ctx context.Context, u row, check func(tx *db.Tx, now row) error, c Client,
	method string) (out Outcome, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		now, err := lockRow(ctx, tx, u.ID)
		if fault.KindOf(err) == fault.NotFound || err == nil && now.Disabled {
			return errWrong
		}
		if err != nil {
			return err
		}
		if err := check(tx, now); err != nil {
			return err
		}
		out = Outcome{User: now.User}
		if now.HasTOTP {
			out.Pending = newToken() + "." + method
			insertToken(ctx, tx, out.Pending, factorToken, u.ID, s.now().Add(factorWait))
			return nil
		}
		if method == byProvider {
			method = s.OIDCName()
		}
		out.Token, err = s.StartIn(ctx, tx, now.User, method, c)
		return err
	})
	if err != nil {
		return Outcome{}, err
	}
	return out, nil
}

// failed logs a failed sign-in. If the account exists, failed also writes an audit entry. The attempt limits also limit
// the number of these audit entries.
func (s *Service) failed(u User, email, why string, c Client) {
	s.Log.Info("a sign-in failed", "account", email, "address", c.Address, "reason", why)
	if u.ID == "" {
		return
	}
	s.enqueue("record a failed sign-in", func(ctx context.Context, tx *db.Tx) error {
		return s.recordByUser(ctx, tx, u, audit.UserSignInFailed, why, c)
	})
}

// SecondFactor completes a sign-in with a TOTP code or a recovery code. For a wrong code, SecondFactor returns an
// Invalid fault for the field `code`, and the user may try again. A BadCredential fault means that the user must
// restart the sign-in.
func (s *Service) SecondFactor(ctx context.Context, pending, code string, c Client) (Outcome, error) {
	hash := hashToken(pending)
	userID, err := tokenUser(ctx, s.DB.Reader, hash, factorToken, s.now())
	if err != nil {
		return Outcome{}, err
	}
	if userID == "" {
		return Outcome{}, errGone
	}
	limits := codeLimits(userID, c)
	if err := s.consumeAttempts(ctx, limits); err != nil {
		return Outcome{}, err
	}
	u, err := getRow(ctx, s.DB.Reader, userID)
	if fault.KindOf(err) == fault.NotFound {
		return Outcome{}, errGone
	}
	if err != nil {
		return Outcome{}, err
	}
	step, err := s.matchTOTP(&u, code)
	if err != nil {
		return Outcome{}, err
	}
	_, first, _ := strings.Cut(pending, ".")
	if first == byProvider {
		first = s.OIDCName()
	}
	out, wrong := Outcome{}, false
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		wrong = false
		now, err := lockRow(ctx, tx, userID)
		if err != nil {
			return err
		}
		left, err := tryToken(ctx, tx, hash, factorToken, factorTries, s.now())
		if err != nil {
			return err
		}
		if !left {
			return errGone
		}
		method, err := s.useCode(ctx, tx, &u, step, code, c)
		if err != nil {
			return err
		}
		if method == "" {
			wrong = true
			return nil // the try counts
		}
		endToken(ctx, tx, errGone, hash)
		if now.Disabled {
			return errGone
		}
		refundAttempts(ctx, tx, limits)
		out = Outcome{User: now.User}
		out.Token, err = s.StartIn(ctx, tx, now.User, first+" and "+method, c)
		return err
	})
	switch {
	case err != nil:
		return Outcome{}, err
	case wrong:
		s.failed(u.User, u.Email, "wrong code", c)
		return Outcome{}, errCode
	}
	return out, nil
}

// useCode marks a TOTP code as used, given the time step that the code matched. If the step is 0, useCode consumes a
// recovery code instead. The result is the name of the method used as the second factor, or "" if the code is wrong.
func (s *Service) useCode(ctx context.Context, tx *db.Tx, u *row, step int64, code string, c Client) (string, error) {
	if step > 0 {
		if ok, err := useStep(ctx, tx, u, step); !ok {
			return "", err
		}
		return "code", nil
	}
	if ok, err := takeRecovery(ctx, tx, u.ID, s.hashRecovery(u.ID, code)); !ok {
		return "", err
	}
	return "recovery code", s.recordByUser(ctx, tx, u.User, audit.RecoveryUsed, "", c)
}

// ProvePassword renews a session's proof of identity with the user's password. The argument c is the client that sent
// the request, which may differ from the client that signed in.
func (s *Service) ProvePassword(ctx context.Context, session Session, password string, c Client) error {
	u, limits, err := s.checkCurrentPassword(ctx, session, "password", password, c)
	if err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		refundAttempts(ctx, tx, limits)
		return s.renewProof(ctx, tx, session.ID, u.ID)
	})
}

func (s *Service) renewProof(ctx context.Context, tx *db.Tx, sessionID, userID string) error {
	setProved(ctx, tx, sessionID, userID, s.now())
	s.changed(tx, userID)
	return nil
}

// checkCurrentPassword checks the password of the session's user and counts the attempt, which the caller must refund
// in its transaction. For a wrong password, checkCurrentPassword returns an Invalid fault for the given field.
func (s *Service) checkCurrentPassword(ctx context.Context, session Session, field, password string, c Client) (row,
	[]limit, error) {
	u, err := getRow(ctx, s.DB.Reader, session.UserID)
	if err != nil {
		return u, nil, err
	}
	limits := proofLimits(session, c)
	if err := s.consumeAttempts(ctx, limits); err != nil {
		return u, nil, err
	}
	ok, _, err := s.hash.check(ctx, password, u.password)
	if err != nil {
		return u, nil, s.refundAttempt(ctx, limits, err)
	}
	if !ok {
		s.failed(u.User, u.Email, "wrong password when asked again", c)
		return u, nil, fault.Invalidf(field, "The password is wrong.")
	}
	return u, limits, nil
}

// SetPassword changes the password of the session's user and ends the user's other sessions. If the user has a
// password, it must be passed as current; if current is wrong, SetPassword returns an Invalid fault for the field
// `current`. If the user has no password, the session needs a recent proof of identity.
func (s *Service) SetPassword(ctx context.Context, session Session, current, password string, c Client) error {
	u, err := getRow(ctx, s.DB.Reader, session.UserID)
	if err != nil {
		return err
	}
	// The new password is checked first, so that an unacceptable new password does not count as a failed attempt.
	if err := checkPassword(password, u.Email, u.Name); err != nil {
		return err
	}
	var limits []limit
	if u.HasPassword {
		u, limits, err = s.checkCurrentPassword(ctx, session, "current", current, c)
	} else {
		err = s.requireProof(session)
	}
	if err != nil {
		return err
	}
	hash, err := s.hash.make(ctx, password)
	if err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		ok, err := replacePassword(ctx, tx, u.ID, u.password, hash)
		if err != nil {
			return err
		}
		if !ok {
			return fault.New(fault.Locked, "", "The password was changed at the same time. Try again.")
		}
		refundAttempts(ctx, tx, limits)
		deleteSessions(ctx, tx, u.ID, session.ID)
		deleteTokens(ctx, tx, u.ID)
		if err := s.renewProof(ctx, tx, session.ID, u.ID); err != nil {
			return err
		}
		return s.recordByUser(ctx, tx, u.User, audit.PasswordChanged, "", c)
	})
}

// requireProof returns ErrProve unless the session's proof of identity is recent.
func (s *Service) requireProof(session Session) error {
	if !session.Fresh(s.now()) {
		return ErrProve
	}
	return nil
}
