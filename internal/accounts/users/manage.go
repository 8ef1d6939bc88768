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
	handleSize = 32  // octets; WebAuthn allows 64
)

// Get returns a user.
func (s *Service) Get(ctx context.Context, userID string) (User, error) {
	return getUser(ctx, s.d.Reader, userID)
}

// ByEmail returns the user with an address.
func (s *Service) ByEmail(ctx context.Context, email string) (User, error) {
	key, err := Address(email)
	if err != nil {
		return User{}, err
	}
	r, err := byEmail(ctx, s.d.Reader, key)
	return r.User, err
}

// List returns at most limit users with ids greater than after, oldest first.
func (s *Service) List(ctx context.Context, after string, limit int) ([]User, error) {
	return listUsers(ctx, s.d.Reader, after, limit)
}

// Any reports whether there is a user.
func (s *Service) Any(ctx context.Context) (bool, error) {
	all, err := listUsers(ctx, s.d.Reader, "", 1)
	return len(all) > 0, err
}

// Address returns an address as users are found by it, or a fault.
func Address(email string) (string, error) {
	a, err := message.ParseAddress(email)
	if err != nil {
		return "", fault.Invalidf("email", "The address must be one such as you@example.com: %s", err).Because(err)
	}
	return a.Key(), nil
}

// Prepare checks a user to be created and hashes the password.
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

// CreateIn creates a user. An address that is taken is a fault of the field email, and only the end of the transaction
// may show it: see [Service.AddressError].
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

// AddressError returns the fault for an address that is taken if err is the violation of its index, and err otherwise. Apply
// it to the error of a transaction with CreateIn.
func (s *Service) AddressError(err error) error {
	if s.d.Violates(err, "users_email") {
		return errAddressTaken.Because(err)
	}
	return err
}

// Create is CreateIn with a transaction of its own.
func (s *Service) Create(ctx context.Context, n NewUser) (u User, err error) {
	draft, err := s.Prepare(ctx, n)
	if err != nil {
		return User{}, err
	}
	err = s.d.Update(ctx, func(tx *db.Tx) error {
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
	return s.d.Update(ctx, func(tx *db.Tx) error {
		s.changed(tx, userID)
		if err := setUser(ctx, tx, userID, "name", name); err != nil {
			return err
		}
		return s.recordByUserID(ctx, tx, userID, audit.UserUpdated, "name", Client{})
	})
}

// SetDisabled withdraws or restores a user's right to sign in. Sessions of a disabled user end.
func (s *Service) SetDisabled(ctx context.Context, userID string, disabled bool) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
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

// Delete deletes a user with everything that belongs to it. What others know of the user is its id.
func (s *Service) Delete(ctx context.Context, userID string) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
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

// changed makes all nodes look up the user and its sessions again, when the transaction commits.
func (s *Service) changed(tx *db.Tx, userID string) {
	tx.AfterCommit(func() { s.d.Hint(HintTopic, userID) })
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
