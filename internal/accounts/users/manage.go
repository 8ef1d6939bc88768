package users

import (
	"context"
	"crypto/rand"
	"strings"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	maxName    = 100 // characters
	handleSize = 32  // size of a WebAuthn user handle in bytes; the maximum is 64
)

// Get returns the user with the given id.
func (s *Service) Get(ctx context.Context, userID string) (User, error) {
	return getUser(ctx, s.DB.Reader, userID)
}

// ByEmail returns the user with the given email address.
func (s *Service) ByEmail(ctx context.Context, email string) (User, error) {
	key, err := Address(email)
	if err != nil {
		return User{}, err
	}
	r, err := byEmail(ctx, s.DB.Reader, key)
	return r.User, err
}

// List returns the users whose ids are greater than after, oldest first, up to the given limit.
func (s *Service) List(ctx context.Context, after string, limit int) ([]User, error) {
	return listUsers(ctx, s.DB.Reader, after, limit)
}

// Any reports whether any user exists.
func (s *Service) Any(ctx context.Context) (bool, error) {
	all, err := listUsers(ctx, s.DB.Reader, "", 1)
	return len(all) > 0, err
}

// Address normalizes an email address for a user look-up, and returns a fault if the address is invalid.
func Address(email string) (string, error) {
	a, err := message.ParseAddress(email)
	if err != nil {
		return "", fault.Invalidf("email", "The address must be one such as you@example.com: %s", err).Because(err)
	}
	return a.Key(), nil
}

// Prepare validates a new user's fields and hashes the password.
func (s *Service) Prepare(ctx context.Context, n NewUser) (Draft, error) {
	email, err := Address(n.Email)
	if err != nil {
		return Draft{}, err
	}
	name, err := checkName(n.Name)
	if err != nil {
		return Draft{}, err
	}
	u := newDraft(email, name)
	u.HasPassword = n.Password != ""
	if n.Password == "" {
		return u, nil
	}
	if err := checkPassword(n.Password, email, name); err != nil {
		return Draft{}, err
	}
	u.hash, err = s.hash.make(ctx, n.Password)
	return u, err
}

func newDraft(email, name string) Draft {
	u := Draft{User: User{Email: email, Name: name}, handle: make([]byte, handleSize)}
	rand.Read(u.handle)
	return u
}

// CreateIn creates a user in a transaction. If the address is in use, CreateIn returns a fault for the field email. A
// conflict with a concurrent transaction is detected only at commit; convert that error with [Service.AddressError].
func (s *Service) CreateIn(ctx context.Context, tx *db.Tx, u Draft) (User, error) {
	switch _, err := byEmail(ctx, tx.Reader, u.Email); {
	case err == nil:
		return User{}, errAddressTaken
	case fault.KindOf(err) != fault.NotFound:
		return User{}, err
	}
	u.ID, u.CreatedAt = id.New(), s.now()
	insertUser(ctx, tx, &u)
	return u.User, s.recordByOthers(ctx, tx, u.User, audit.UserCreated, "")
}

var errAddressTaken = fault.Invalidf("email", "There is a user with this address already.")

// AddressError converts an error from a transaction that called [Service.CreateIn]. If err is a violation of the unique
// index on email addresses, AddressError returns a fault which says that the address is in use. AddressError returns
// any other error unchanged.
func (s *Service) AddressError(err error) error {
	if s.DB.Violates(err, "users_email") {
		return errAddressTaken.Because(err)
	}
	return err
}

// Create creates a user in its own transaction.
func (s *Service) Create(ctx context.Context, n NewUser) (u User, err error) {
	draft, err := s.Prepare(ctx, n)
	if err != nil {
		return User{}, err
	}
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		u, err = s.CreateIn(ctx, tx, draft)
		return err
	})
	return u, s.AddressError(err)
}

// Rename changes the user's name.
func (s *Service) Rename(ctx context.Context, userID, name string) error {
	name, err := checkName(name)
	if err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		s.changed(tx, userID)
		if err := setUser(ctx, tx, userID, "name", name); err != nil {
			return err
		}
		return s.recordByUserID(ctx, tx, userID, audit.UserUpdated, "name", Client{})
	})
}

// SetDisabled withdraws or restores a user's right to sign in. Disabling a user also ends the user's sessions.
func (s *Service) SetDisabled(ctx context.Context, userID string, disabled bool) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := setUser(ctx, tx, userID, "disabled", disabled); err != nil {
			return err
		}
		s.changed(tx, userID)
		action := audit.UserEnabled
		if disabled {
			action = audit.UserDisabled
			deleteSessions(ctx, tx, userID, "")
			deleteTokens(ctx, tx, userID)
			if err := s.OnUserDisable(ctx, tx, userID); err != nil {
				return err
			}
		}
		u, err := getUser(ctx, tx.Reader, userID)
		if err != nil {
			return err
		}
		return s.recordByOthers(ctx, tx, u, action, "")
	})
}

// Delete deletes a user and all data that this package stores about the user. Other packages store only the user's id.
func (s *Service) Delete(ctx context.Context, userID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		u, err := getUser(ctx, tx.Reader, userID)
		if err != nil {
			return err
		}
		if err := s.recordByOthers(ctx, tx, u, userDeleted, ""); err != nil {
			return err
		}
		if err := s.OnUserDelete(ctx, tx, userID); err != nil {
			return err
		}
		s.changed(tx, userID)
		deleteTokens(ctx, tx, userID)
		return deleteUser(ctx, tx, userID)
	})
}

// changed makes all nodes drop the cached sessions of a user when the transaction commits.
func (s *Service) changed(tx *db.Tx, userID string) {
	tx.AfterCommit(func() { s.DB.Hint(HintTopic, userID) })
}

func checkName(name string) (string, error) {
	name = strings.TrimSpace(name)
	if !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxName ||
		strings.ContainsFunc(name, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return "", fault.Invalidf("name", "The name must have at most %d characters and no control characters.",
			maxName)
	}
	return name, nil
}
