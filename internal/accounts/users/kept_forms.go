package users

import (
	"context"
	"crypto/hmac"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	keptFor  = time.Hour // how long a form is kept
	keptMost = 500       // forms that are kept at the same time, because visitors without a session submit them

	// keptUser is the maximum number of forms of a user that are kept in an hour, so that one user cannot take the places
	// of all others.
	keptUser = 20

	browserPurpose = "user who was signed in last"
	browserTagSize = 16 // bytes
)

// BrowserToken returns a value that names the user who was signed in last in a browser. Only this installation can
// create the value. It is no proof of who submits a request: the user may have signed out since then.
func (s *Service) BrowserToken(userID string) string {
	return browserToken(userID, s.Keys.Tag(browserPurpose, []byte(userID), browserTagSize))
}

// BrowserUser returns the id of the user that a value of [Service.BrowserToken] names, or "" for any other value.
func (s *Service) BrowserUser(token string) (userID string) {
	userID, _, _ = strings.Cut(token, ".")
	for _, tag := range s.Keys.Tags(browserPurpose, []byte(userID), browserTagSize) {
		if hmac.Equal([]byte(token), []byte(browserToken(userID, tag))) {
			return userID
		}
	}
	return ""
}

func browserToken(userID string, tag []byte) string {
	return userID + "." + base64.RawURLEncoding.EncodeToString(tag)
}

// KeptForm is a form that a visitor submitted after the session had ended.
type KeptForm struct {
	Page   string // path of the page that has the form
	Action string // address to which the form was submitted
	Form   string // what was typed, without secrets, encoded as in a URL
}

// KeepForm keeps a form of a user for an hour, and returns the token with which [Service.TakeForm] returns it. The
// token is "" if too many forms are kept already, of the user or in all.
func (s *Service) KeepForm(ctx context.Context, userID string, f KeptForm) (token string, err error) {
	ctx = db.WithoutAddition(ctx)
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		of, _, err := countAttempt(ctx, tx, "kept:"+userID, s.now())
		if err != nil || of > keptUser {
			return err
		}
		n, err := countForms(ctx, tx.Reader, keptMost)
		if err != nil || n >= keptMost {
			return err
		}
		token = newToken()
		insertForm(ctx, tx, &f, hashToken(token), s.now().Add(keptFor))
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("keep a form: %w", err)
	}
	return token, nil
}

// TakeForm returns the form that was kept for a page under a token, once. If there is none, ok is false.
func (s *Service) TakeForm(ctx context.Context, token, page string) (f KeptForm, ok bool, err error) {
	if len(token) != tokenLength {
		return f, false, nil
	}
	ctx = db.WithoutAddition(ctx)
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		f, ok, err = takeForm(ctx, tx, hashToken(token), page, s.now())
		return err
	})
	return f, ok, err
}
