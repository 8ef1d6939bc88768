package users

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	setupLife = 72 * time.Hour
	resetLife = time.Hour
)

var errLink = fault.NotFoundf(
	"This link does not work any more: it was used, replaced by a later one, or it is too old.")

var errNoMail = fault.Forbiddenf("", "This installation sends no emails with links. Ask the operator for a link to a "+
	"new password: `postrider users reset`.")

// SetupLink returns the URL of the page that creates the first user, or "" if users exist. A new set-up link
// invalidates all earlier ones.
func (s *Service) SetupLink(ctx context.Context) (string, error) {
	token, made := newToken(), false
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		made = false
		if err := tx.Serialize(ctx, firstUser); err != nil {
			return err
		}
		all, err := listUsers(ctx, tx.Reader, "", 1)
		if err != nil || len(all) > 0 {
			return err
		}
		deleteKind(ctx, tx, setupToken, "")
		insertToken(ctx, tx, token, setupToken, "", s.now().Add(setupLife))
		made = true
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("make a set-up link: %w", err)
	}
	if !made {
		return "", nil
	}
	return s.link("/setup", token), nil
}

// firstUser is the name of the lock that is held while checking whether any user exists.
const firstUser = "first user"

func (s *Service) link(path, token string) string {
	return s.c.PublicURL + path + "?token=" + url.QueryEscape(token)
}

// CheckSetup returns a NotFound fault if the token from a set-up link is not valid.
func (s *Service) CheckSetup(ctx context.Context, token string) error {
	switch ok, err := hasToken(ctx, s.DB.Reader, hashToken(token), setupToken, s.now()); {
	case err != nil:
		return err
	case !ok:
		return errLink
	}
	return nil
}

// UseSetupIn consumes the token in the transaction that creates the first user. Call UseSetupIn before
// [Service.CreateIn].
func (s *Service) UseSetupIn(ctx context.Context, tx *db.Tx, token string) error {
	if err := tx.Serialize(ctx, firstUser); err != nil {
		return err
	}
	ok, err := takeToken(ctx, tx, hashToken(token), setupToken, s.now())
	if err != nil {
		return err
	}
	all, err := listUsers(ctx, tx.Reader, "", 1)
	if err != nil {
		return err
	}
	if !ok || len(all) > 0 {
		return errLink
	}
	return nil
}

// RequestReset mails a password reset link to an address if a user has that address. The email is sent in the
// background, so the result and the response time do not reveal whether the address is known. If the installation
// cannot send email, RequestReset returns a fault for every address.
func (s *Service) RequestReset(ctx context.Context, email string, c Client) error {
	email, err := Address(email)
	if err != nil {
		return err
	}
	if err := s.consumeAttempts(ctx, resetLimits(email, c)); err != nil {
		return err
	}
	if s.Mail == nil {
		s.Log.Warn("a link for a new password was requested, but mail is not configured", "account", email)
		return errNoMail
	}
	if !s.enqueue("mail a link for a new password", func(ctx context.Context, tx *db.Tx) error {
		return s.mailReset(ctx, tx, email, c)
	}) {
		return errBusy
	}
	return nil
}

func (s *Service) mailReset(ctx context.Context, tx *db.Tx, email string, c Client) error {
	u, err := byEmail(ctx, tx.Reader, email)
	if fault.KindOf(err) == fault.NotFound || err == nil && u.Disabled {
		return nil
	}
	if err != nil {
		return err
	}
	link := s.resetLink(ctx, tx, u.User)
	if err := s.recordByUser(ctx, tx, u.User, resetRequested, "", c); err != nil {
		return err
	}
	return s.Mail(ctx, tx, u.Email, "Choose a new password", "Somebody, probably you, asked for a new password of the "+
		"account "+u.Email+" at "+s.c.PublicURL+".\n\nChoose it here within an hour:\n"+link+
		"\n\nIf it was not you, there is nothing to do: the password stays as it is.\n")
}

// resetLink creates a password reset link, which replaces the user's earlier reset links.
func (s *Service) resetLink(ctx context.Context, tx *db.Tx, u User) string {
	token := newToken()
	deleteKind(ctx, tx, resetToken, u.ID)
	insertToken(ctx, tx, token, resetToken, u.ID, s.now().Add(resetLife))
	return s.link("/password/reset", token)
}

// ResetLink returns a password reset link, valid for an hour, that the operator can give to a user.
func (s *Service) ResetLink(ctx context.Context, userID string) (link string, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		u, err := getUser(ctx, tx.Reader, userID)
		if err != nil {
			return err
		}
		if u.Disabled {
			return fault.Forbiddenf("", "%s is disabled. Enable the account first.", u.Email)
		}
		link = s.resetLink(ctx, tx, u)
		return s.recordByOthers(ctx, tx, u, resetRequested, "")
	})
	if err != nil {
		return "", err
	}
	return link, nil
}

// CheckReset returns the user to whom a reset link belongs, or a NotFound fault if the link is invalid.
func (s *Service) CheckReset(ctx context.Context, token string) (User, error) {
	userID, err := tokenUser(ctx, s.DB.Reader, hashToken(token), resetToken, s.now())
	if err != nil {
		return User{}, err
	}
	if userID == "" {
		return User{}, errLink
	}
	u, err := getUser(ctx, s.DB.Reader, userID)
	if fault.KindOf(err) == fault.NotFound || err == nil && u.Disabled {
		return User{}, errLink
	}
	return u, err
}

// Reset uses a reset link to set a new password, and ends all sessions of the user. Reset does not sign the user in,
// because access to the mailbox does not prove possession of the second factor.
func (s *Service) Reset(ctx context.Context, token, password string, c Client) error {
	u, err := s.CheckReset(ctx, token)
	if err != nil {
		return err
	}
	if err := checkPassword(password, u.Email, u.Name); err != nil {
		return err
	}
	hash, err := s.hash.make(ctx, password)
	if err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		now, err := lockRow(ctx, tx, u.ID) // lock the user first, because a concurrent change deletes the token
		if err != nil {
			return err
		}
		ok, err := takeToken(ctx, tx, hashToken(token), resetToken, s.now())
		if err != nil {
			return err
		}
		if !ok || now.Disabled {
			return errLink
		}
		if err := setUser(ctx, tx, u.ID, "password", hash); err != nil {
			return err
		}
		deleteAttempts(ctx, tx, passwordLimits(u.Email, c)[0].name)
		deleteSessions(ctx, tx, u.ID, "")
		deleteTokens(ctx, tx, u.ID)
		s.changed(tx, u.ID)
		return s.recordByUser(ctx, tx, u, audit.PasswordReset, "", c)
	})
}
