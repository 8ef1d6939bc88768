package users

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	keptFor  = time.Hour // how long a form is kept
	keptMost = 500       // forms that are kept at the same time, because visitors without a session submit them
)

// KeptForm is a form that a visitor submitted after the session had ended.
type KeptForm struct {
	Page   string // path of the page that has the form
	Action string // address to which the form was submitted
	Form   string // what was typed, without secrets, encoded as in a URL
}

// KeepForm keeps a form for an hour, and returns the token with which [Service.TakeForm] returns it. The token is "" if
// too many forms are kept already.
func (s *Service) KeepForm(ctx context.Context, f KeptForm) (token string, err error) {
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
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
	err = s.DB.Update(ctx, func(tx *db.Tx) error {
		f, ok, err = takeForm(ctx, tx, hashToken(token), page, s.now())
		return err
	})
	return f, ok, err
}
