package receiving

import (
	"context"
	"net/url"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// shareClaims is the token payload of a shared link.
type shareClaims struct {
	Team  string `json:"team"`
	Email string `json:"email"`
}

// Share returns a URL that shows the email to everyone who has the URL, for the duration that [tokens.ShareLifetime]
// returns. Each call to Share creates a different URL. All URLs from Share work until they expire or until the email's
// team is deleted.
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

// Shared is a received email that is read through a shared link. Shared occupies memory until it is closed.
type Shared struct {
	Email
	Content        // HTML refers to inline images by cid: URLs (see WriteHTML)
	Author  string // the display name in the first From address; may be empty
}

// Shared returns the email that the token of a shared link identifies. The caller must close the returned email.
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
	v := &Shared{Email: e, Content: s.content(e.ID, p, CID)}
	v.memory = memory
	if v.HTML == nil || !slices.ContainsFunc(v.files, func(f mailparse.File) bool { return f.ContentID != "" }) {
		// From here on, only the HTML and the text are needed. All other memory is released before the response,
		// because the client may read slowly.
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
