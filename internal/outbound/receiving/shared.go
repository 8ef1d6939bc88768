package receiving

import (
	"context"
	"errors"
	"io"
	"net/url"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// shareClaims is the payload of a shared link's token.
type shareClaims struct {
	Team  string `json:"team"`
	Email string `json:"email"`
}

// Share returns a URL at which anybody can read the email, for the time that [emails.ShareLifetime] returns. Each call
// makes another link. All of them work until they expire or the email's team is deleted.
func (s *Service) Share(ctx context.Context, teamID, emailID, expiresIn string) (string, error) {
	lifetime, err := emails.ShareLifetime(expiresIn)
	if err != nil {
		return "", err
	}
	if _, err := getEmail(ctx, s.p.DB.Reader, teamID, emailID); err != nil {
		return "", err
	}
	token, err := s.p.Keys.JWT(sharePurpose, shareClaims{teamID, emailID}, time.Now(), lifetime)
	if err != nil {
		return "", err
	}
	return s.c.PublicURL + "/shared?token=" + url.QueryEscape(token), nil
}

// Shared is a received email read through a shared link. It occupies memory until it is closed.
type Shared struct {
	Email
	Content        // HTML names inline images by cid: URLs; see WriteHTML
	Author  string // the name in the first address of From; may be empty

	s     *Service
	files []mailparse.File // the inline images are among them
}

// Shared returns the email that a shared link's token names. The caller closes it.
func (s *Service) Shared(ctx context.Context, token string) (*Shared, error) {
	var c shareClaims
	if err := s.p.Keys.VerifyJWT(sharePurpose, token, time.Now(), &c); err != nil {
		return nil, fault.NotFoundf("This link is not valid, or it has expired.")
	}
	if err := s.p.Teams.CheckActive(ctx, c.Team); err != nil {
		return nil, err
	}
	e, err := getEmail(ctx, s.p.DB.Reader, c.Team, c.Email)
	if err != nil {
		return nil, err
	}
	raw, memory, err := s.raw(ctx, &e)
	if err != nil {
		return nil, err
	}
	p := s.parseStored(e.ID, raw)
	v := &Shared{Email: e, Content: s.content(e.ID, p, CID), s: s, files: p.Files}
	v.memory = memory
	if v.HTML == nil || !slices.ContainsFunc(v.files, func(f mailparse.File) bool { return f.ContentID != "" }) {
		// Only the texts are needed from here on, and the client may read them slowly.
		v.files = nil
		memory.shrink(textSize(v.HTML) + textSize(v.Text))
	}
	if len(p.From) > 0 {
		v.Author = db.Text(p.From[0].Name, authorMax)
	}
	return v, nil
}

func textSize(text *string) int64 {
	if text == nil {
		return 0
	}
	return int64(len(*text))
}

// WriteHTML writes the email's HTML with inline images as data URIs, piece by piece. Its errors are those of w, or say
// that the HTML could not be read.
func (v *Shared) WriteHTML(w io.Writer) (err error) {
	if v.HTML == nil {
		return nil
	}
	if !v.s.catchPanic(v.ID, func() { err = writeWithImages(w, *v.HTML, v.files) }) {
		return errors.New("the inline images of a received email could not be read")
	}
	return err
}
